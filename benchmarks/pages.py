"""How long the service takes for its pages when it holds many runs.

    PYTHONPATH=. python benchmarks/pages.py                                       # 10,000 runs, 1,000,000 figures
    PYTHONPATH=. python benchmarks/pages.py --runs 1000 --figures 100 --requests 50

Real runs are stored through the services, then multiplied in PostgreSQL: every copy has its own events, deltas and a
candidate with its own figures; baselines are shared by 50 runs each, as reuse makes them. Each page is asked for over
and over, of random runs and with random filters, in this process and without a network. Prints a markdown table.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np
from fastapi.testclient import TestClient
from interval_coverage import table
from sqlalchemy import text
from sqlalchemy.orm import Session

from gatekeeper.app import create_app
from gatekeeper.embedded import postgres
from gatekeeper.services.context import Context
from gatekeeper.services.models import register_model
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.migrate import upgrade
from tests.e2e.stored_runs import finished_run
from tests.unit.web import samples

SHARED_BY: Final = 50
SEED: Final = 1
COPY: Final = (
    """
    create temporary table copies as
        select gen_random_uuid() as id, number, (select id from arms where run_id = :origin and role = 'baseline')
            as baseline_id, (select id from arms where run_id = :origin and role = 'control') as control_id
        from generate_series(1, :runs) as number
    """,
    """
    insert into runs (id, state, device, plan, model, scheme, eviction, label, repo, commit, author, request_hash,
            created_at, queued_at, started_at, finished_at, verdict, sentence, report)
        select copies.id, state, device, plan, 'model-' || number % 20, scheme, eviction, label || ' ' || number,
            'repo-' || number % 30, md5(number::text), 'author-' || number % 40, request_hash,
            now() - number * interval '10 minutes', now(), now(), now(), verdict, sentence, report
        from copies, runs where runs.id = :origin
    """,
    """
    insert into deltas (run_id, created_at, model, scheme, eviction, label, metric, suite, mode, "group", estimate,
            lower, upper, document, finding, severity, detail)
        select copies.id, created_at, 'model-' || number % 20, scheme, eviction, label, metric, suite, mode, "group",
            estimate * (0.8 + 0.4 * random()), lower, upper, document, finding, severity, detail
        from copies, deltas where deltas.run_id = :origin order by number desc
    """,
    """
    insert into events (run_id, at, kind, payload)
        select copies.id, at, kind, payload from copies, events where events.run_id = :origin order by number, seq
    """,
    """
    insert into arms (run_id, attempt, role, fingerprint, plan, argv, engine, effective, exercises, complete,
            started_at, finished_at)
        select copies.id, attempt, role, fingerprint, plan, argv, engine, effective, exercises, complete,
            started_at, finished_at
        from copies, arms where arms.run_id = :origin and (role = 'candidate' or number % :shared_by = 0)
    """,
    """
    update copies set baseline_id = own.id from arms as own, copies as first
        where own.run_id = first.id and own.role = 'baseline'
            and first.number = copies.number - copies.number % :shared_by
    """,
    """
    insert into run_arms (run_id, attempt, role, arm_id)
        select copies.id, 1, 'candidate', arms.id from copies join arms
                on arms.run_id = copies.id and arms.role = 'candidate'
        union all select id, 1, 'baseline', baseline_id from copies
        union all select id, 1, 'control', control_id from copies
    """,
    """
    insert into measurements (arm_id, suite, mode, item_id, metric, cluster, value, batch)
        select arms.id, own.suite, mode, item_id, metric, cluster, value, batch
        from arms join copies on copies.id = arms.run_id, (
            select measurements.* from measurements join arms on arms.id = arm_id
            where run_id = :origin and role = 'candidate' order by measurements.suite desc, item_id limit :figures
        ) as own
        where arms.id <> (select id from arms where run_id = :origin and role = 'candidate')
    """,
)


def fill(sessions: Sessions, settings: Settings, *, runs: int, figures: int) -> None:
    """Store one run of each of four kinds and multiply it."""
    register_model(sessions, samples.MODEL)
    kinds = (samples.passing, samples.failing, samples.window, samples.inconclusive)
    for kind in kinds:
        origin = finished_run(sessions, settings, kind())
        with transaction(sessions) as session:
            for statement in COPY:
                _execute(session, statement, origin, runs=runs // len(kinds), figures=figures)
            session.execute(text("drop table copies"))
    with sessions().connection(execution_options={"isolation_level": "AUTOCOMMIT"}) as connection:
        connection.execute(text("vacuum analyze"))


def _execute(session: Session, statement: str, origin: UUID, *, runs: int, figures: int) -> None:
    values = {"origin": origin, "runs": runs, "figures": figures, "shared_by": SHARED_BY}
    session.execute(
        text(statement), {name: value for name, value in values.items() if f":{name}" in statement}
    )


def list_addresses(rng: random.Random) -> str:
    """A list as people ask for it: mostly the newest runs, else filtered, searched for, or of a time long ago."""
    return rng.choice(
        [
            "/runs",
            "/runs?verdict=FAIL",
            f"/runs?model=model-{rng.randrange(20)}",
            f"/runs?author=author-{rng.randrange(40)}&verdict=PASS",
            f"/runs?ref=repo-{rng.randrange(30)}",
            "/runs?eviction=sliding_window",
            f"/runs?q=fp8+{rng.randrange(1000)}",
            "/runs?q=nobody+wrote+this",
            f"/runs?until=2026-{rng.randrange(9, 12):02}-01",
        ]
    )


def measure(client: TestClient, address: Callable[[], str], requests: int) -> list[float]:
    """Milliseconds of each request; the first few, which fill caches, do not count."""
    taken = []
    for number in range(-5, requests):
        path = address()
        start = time.perf_counter()
        answer = client.get(path)
        if number >= 0:
            taken.append(1000 * (time.perf_counter() - start))
        assert answer.status_code == 200, path
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--figures", type=int, default=1_000_000, help="of items, in all runs together")
    parser.add_argument("--requests", type=int, default=200, help="of each page")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gatekeeper-pages-") as folder,
        postgres.running(Path(folder) / "postgres", settings=postgres.FAST) as url,
    ):
        upgrade(url)
        settings = Settings(home=Path(folder), database_url=url, sweep_seconds=3600)
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            context: Context = client.app.state.context  # type: ignore[attr-defined]
            fill(context.sessions, settings, runs=asked.runs, figures=asked.figures // asked.runs)
            report(client, context.sessions, asked.requests)


def report(client: TestClient, sessions: Sessions, requests: int) -> None:
    """Measure every page and print what it takes."""
    rng = random.Random(SEED)
    with transaction(sessions) as session:
        ids = list(session.scalars(text("select id from runs")))
        counts = {
            name: session.scalar(text(f"select count(*) from {name}"))  # noqa: S608 - two names from here
            for name in ("runs", "measurements")
        }
    pages: Mapping[str, Callable[[], str]] = {
        "runs": lambda: list_addresses(rng),
        "a run": lambda: f"/runs/{rng.choice(ids)}",
    }
    rows = []
    for name, address in pages.items():
        taken = measure(client, address, requests)
        rows.append([name, *(f"{value:.0f} ms" for value in (*np.percentile(taken, (50, 95)), max(taken)))])
    held = f"{counts['runs']:,} runs, {counts['measurements']:,} figures of items, {requests} requests each"
    table(held, ("page", "p50", "p95", "largest"), rows)


if __name__ == "__main__":
    main()
