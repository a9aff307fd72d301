"""`gatekeeper rejudge --verify` on a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from gatekeeper.cli import main
from gatekeeper.services.finish import finish_error
from gatekeeper.storage.database import Sessions, make_engine, make_sessions, transaction
from tests.e2e.stored_runs import OWNER, StoredRuns, store_runs
from tests.integration.services.seeds import make_settings


@pytest.fixture
def sessions(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("GATEKEEPER_HOME", str(tmp_path))
    monkeypatch.delenv("GATEKEEPER_SERVER", raising=False)
    engine = make_engine(database_url)
    yield make_sessions(engine)
    engine.dispose()


@pytest.fixture
def stored(sessions: Sessions, database_url: str, tmp_path: Path) -> StoredRuns:
    found = store_runs(sessions, make_settings(database_url, tmp_path))
    finish_error(sessions, found.running, owner=OWNER, cause="the disk is full")
    return found


def verify(*words: object) -> Result:
    return CliRunner().invoke(main, ["rejudge", "--verify", *map(str, words)])


def test_all_runs_are_reproduced_and_those_without_a_policys_verdict_are_counted(stored: StoredRuns) -> None:
    result = verify()
    assert result.exit_code == 0, result.output
    assert result.stdout == "8 of 8 reports reproduced; 1 runs were never judged\n"
    assert verify(stored.running).stdout == "0 of 0 reports reproduced; 1 runs were never judged\n"


def test_a_run_that_differs_is_named_with_the_places(sessions: Sessions, stored: StoredRuns) -> None:
    changed = "update runs set report = jsonb_set(report, '{sentence}', '\"PASS: trust me\"') where id = :id"
    with transaction(sessions) as session:
        session.execute(text(changed), {"id": stored.failed})
    result = verify()
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"differs  {stored.failed}  chat-fp8-e5m2  at sentence",
        "7 of 8 reports reproduced; 1 runs were never judged",
    ]
    assert verify(stored.failed).exit_code == 1
    assert verify(stored.passed).exit_code == 0


@pytest.mark.parametrize("run_id", ["latest", "3f2a91c0-1111-4222-8333-444455556666"])
def test_an_unknown_run_is_refused(sessions: Sessions, run_id: str) -> None:  # noqa: ARG001 - points at the database
    assert verify(run_id).exit_code == 4
