"""Gates on items that vLLM's CPU build really produced: how often an identical configuration fails, and FP8 is caught.

    python benchmarks/recorded_gates.py record --launches 11 --into recorded.pickle     # about 1.5 minutes per launch
    python benchmarks/recorded_gates.py judge recorded.pickle --gates 200               # prints markdown tables

`record` launches the baseline `--launches` times and each FP8 format once, with the smoke suite's quality probes.
`judge` judges every pair of baseline launches as it stands (real A/A gates), then resamples documents and items with
replacement, the same ones in both arms, and judges those.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Report
from gatekeeper.embedded.bundled_model import directory
from tests.fakes.engine import MemoryArm, MemoryRun
from workers.execute import Bounds, Job, measure_arm

SCHEMES = ("fp8_e4m3", "fp8_e5m2")


def quality_suite() -> Suite:
    """The smoke suite without its speed rounds."""
    smoke = get_suite("smoke")
    return smoke.model_copy(update={"probes": tuple(p for p in smoke.probes if p.probe != "performance")})


def plan_of(scheme: str, home: Path) -> Plan:
    """The plan of one FP8 change of the bundled model."""
    source = directory(home)
    shape = ModelShape.from_hf_config(json.loads((source / "config.json").read_text(encoding="utf-8")))
    change = Change.model_validate(
        {"model": "smollm2-135m", "candidate": {"quantization": {"scheme": scheme}}, "suite": "smoke"}
    )
    return make_plan(
        change, model=Model(name="smollm2-135m", source=str(source), shape=shape), suite=quality_suite(),
        policy=get_policy("fast"), device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip


def record(home: Path, launches: int, into: Path) -> None:
    """Measure the arms for real and keep them, rewriting the file after each."""
    arms: dict[str, list[ArmRecord]] = {"baseline": []}
    bounds = Bounds(start_seconds=300, stall_seconds=240, tasks_dir=None, gpu=None, check=lambda: None)
    work = [("baseline", SCHEMES[0])] * launches + [(scheme, scheme) for scheme in SCHEMES]
    for name, scheme in work:
        begun, recorder = time.monotonic(), MemoryRun()
        job = Job(run_id=uuid.uuid4().hex, plan=plan_of(scheme, home), dead_roles=frozenset())
        role = "baseline" if name == "baseline" else "candidate"
        assert measure_arm(job, role, recorder, bounds, None), recorder.arms
        arm: MemoryArm = recorder.arms[role]
        arms.setdefault(name, []).append(arm.record)
        into.write_bytes(pickle.dumps(arms))
        print(f"{name} launch {len(arms[name])}: {time.monotonic() - begun:.0f} s", flush=True)


def resampled(
    baseline: ArmRecord, candidate: ArmRecord, rng: np.random.Generator
) -> tuple[ArmRecord, ArmRecord]:
    """Draw documents and items with replacement, the same draws for both arms; repeated ones get names of their own."""
    documents = sorted({trace.item_id for trace in baseline.traces})
    items = sorted({m.item_id for m in baseline.measurements})
    drawn = [rng.choice(len(pool), len(pool)) for pool in (documents, items)]

    def of(arm: ArmRecord) -> ArmRecord:
        traces = {trace.item_id: trace for trace in arm.traces}
        rows: dict[str, list[object]] = {}
        for row in arm.measurements:
            rows.setdefault(row.item_id, []).append(row)
        chosen = [traces[documents[index]] for index in drawn[0]]
        return replace(
            arm,
            traces=tuple(replace(t, item_id=f"{n}", cluster=f"{n}") for n, t in enumerate(chosen)),
            measurements=tuple(
                replace(row, item_id=f"{n}")  # type: ignore[type-var]
                for n, index in enumerate(drawn[1])
                for row in rows[items[index]]
            ),
        )

    return of(baseline), of(candidate)


def gate(plan: Plan, baseline: ArmRecord, candidate: ArmRecord, control: ArmRecord) -> Report:
    """Judge two recorded arms; a baseline launch in the candidate's place keeps the baseline's own plan."""
    arms = {
        "baseline": replace(baseline, role="baseline"),
        "control": replace(control, role="control"),
        "candidate": replace(candidate, role="candidate"),
    }
    return judge(plan, arms)  # type: ignore[arg-type]


def tally(title: str, reports: Iterator[Report]) -> None:
    """Print one table row: verdicts and the extremes of decode KL."""
    verdicts, kl = Counter[str](), []
    for report in reports:
        verdicts[report.verdict] += 1
        kl += [delta.estimate for delta in report.deltas if delta.metric == "decode_kl"]
    shares = ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items()))
    print(f"| {title} | {sum(verdicts.values())} | {shares} | {min(kl):.4f} to {max(kl):.4f} |")


def judge_all(arms: dict[str, Sequence[ArmRecord]], home: Path, gates: int) -> None:
    """Print the tables."""
    rng = np.random.default_rng(1)
    baselines, plan = arms["baseline"], plan_of("fp8_e5m2", home)
    pairs = list(combinations(baselines, 2))
    print("| gates | n | verdicts | decode KL |\n| --- | --- | --- | --- |")
    tally("A/A, every pair of launches", (gate(plan, a, b, a) for a, b in pairs))

    def drawn(scheme: str | None) -> Iterator[Report]:
        for _ in range(gates):
            first, other = pairs[int(rng.integers(len(pairs)))]
            candidate = other if scheme is None else arms[scheme][0]
            baseline, resampled_candidate = resampled(first, candidate, rng)
            yield gate(plan_of(scheme or "fp8_e5m2", home), baseline, resampled_candidate, baseline)

    for title, scheme in (("A/A, resampled", None), *((f"{s}, resampled", s) for s in SCHEMES)):
        tally(title, drawn(scheme))


def main() -> None:
    """Parse arguments and run one of the two commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--home", type=Path, default=Path(".gatekeeper"), help="where the bundled model was built"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--launches", type=int, default=11)
    recording.add_argument("--into", type=Path, required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("file", type=Path)
    judging.add_argument("--gates", type=int, default=200)
    options = parser.parse_args()
    home = options.home.absolute()
    if options.command == "record":
        record(home, options.launches, options.into)
    else:
        judge_all(pickle.loads(options.file.read_bytes()), home, options.gates)  # noqa: S301 - written by `record`


if __name__ == "__main__":
    main()
