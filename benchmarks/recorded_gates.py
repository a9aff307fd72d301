"""Gates on items that vLLM really produced: how often an identical configuration fails, and how soon damage is found.

    python benchmarks/recorded_gates.py                     # benchmarks/recordings, 1,000 resampled gates per row
    python benchmarks/recorded_gates.py --gates 50 A/A int4  # some rows only; a gate takes seconds

First every recorded launch of the baseline is judged as it stands. Then as many documents and items as the standard
suite has are drawn, with replacement and the same ones in both arms, and a run is played back on them: probe by probe,
batch by batch, looked at after each as a worker does, until it would have stopped. Prints markdown tables.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from unittest.mock import patch

import numpy as np
from arms import ARMS, quality_suite
from interval_coverage import table
from method_verdicts import answerable
from recordings import REFERENCE, Recording, compared, read_recordings

from gatekeeper.catalog import get_policy
from gatekeeper.domain import token_samples
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.interim import certain_failure, settled
from gatekeeper.domain.item_order import batch_ends
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, Role, Stop
from gatekeeper.domain.plan import Plan, make_plan
from gatekeeper.domain.probes import AccuracyProbe, FidelityProbe
from gatekeeper.domain.verdict import Report, Verdict
from gatekeeper.embedded.bundled_model import bundled_model

FOLDER: Final = Path(__file__).parent / "recordings"
LAUNCHES: Final = tuple(name for name in ARMS if name.startswith("launch"))
P = TypeVar("P", bound=AccuracyProbe | FidelityProbe)
SAME: Final = "A/A"
RESAMPLED: Final = ("fp8_e4m3", "fp8_e4m3-nearest", "fp8_e5m2", "fp8_e5m2-nearest", "int8", "int4")


@dataclass(frozen=True, kw_only=True)
class Played:
    """How a run ended, and what its candidate needed until then; `seconds` of its engine, start included."""

    report: Report
    documents: int
    items: int
    seconds: float


def plan_of(policy: str) -> Plan:
    """A plan of the recorded suite, with the policy's rules on what was recorded.

    The recorded arms take the candidate's place whatever it says.
    """
    change = Change.model_validate(
        {"model": "smollm2-135m", "candidate": {"quantization": {"scheme": "fp8_e5m2"}}}
    )
    suite, whole = quality_suite(documents=32, items_per_task=None), get_policy(policy)
    return make_plan(
        change, model=bundled_model(Path("unbuilt")), suite=suite, device="cpu", policy=answerable(whole, suite),
        allowed_arguments=frozenset(),
    )  # fmt: skip


# --- resampling ------------------------------------------------------------------------------------------------------


def drawn(plan: Plan, arms: Sequence[ArmRecord], rng: np.random.Generator) -> list[ArmRecord]:
    """As many documents and items of each task as the suite has, drawn with replacement; the same ones in all arms."""
    fidelity, accuracy = _probe(plan, FidelityProbe), _probe(plan, AccuracyProbe)
    documents = sorted({trace.item_id for trace in arms[0].traces})
    items: dict[str, set[str]] = {}
    for row in arms[0].measurements:
        items.setdefault(row.cluster, set()).add(row.item_id)
    taken = [
        item for task, size in accuracy.expected_items.items() for item in rng.choice(sorted(items[task]), size)
    ]  # fmt: skip
    return _filled(
        arms, rng.choice(documents, fidelity.documents).tolist(), rng.permutation(taken).tolist(),
        batch_ends(fidelity.documents, fidelity.batches), batch_ends(len(taken), accuracy.batches),
    )  # fmt: skip


def _filled(
    arms: Sequence[ArmRecord],
    documents: Sequence[str],
    items: Sequence[str],
    document_ends: Sequence[int],
    item_ends: Sequence[int],
) -> list[ArmRecord]:
    """The arms with these documents and items, renamed by their place, in the batches that end there."""
    filled = []
    for arm in arms:
        traces = {trace.item_id: trace for trace in arm.traces}
        rows: dict[str, list[Measurement]] = {}
        for row in arm.measurements:
            rows.setdefault(row.item_id, []).append(row)
        scored = [
            replace(traces[name], item_id=f"{n:03}", cluster=f"{n:03}", batch=bisect_right(document_ends, n))
            for n, name in enumerate(documents)
        ]
        measured = [
            replace(row, item_id=f"{n:03}", batch=bisect_right(item_ends, n))
            for n, name in enumerate(items)
            for row in rows[name]
        ]
        filled.append(replace(arm, traces=tuple(scored), measurements=tuple(measured)))
    return filled


# --- playing a run back ----------------------------------------------------------------------------------------------


def played(plan: Plan, arms: dict[Role, ArmRecord], clock: Recording) -> Played:
    """Take the candidate batch by batch, as `workers.execute` does, and stop where it would. `clock`: its times."""
    whole, now = arms["candidate"], replace(arms["candidate"], traces=(), measurements=(), complete=False)
    certain = None
    for probe in plan.suite.probes:
        if certain is not None:
            now = replace(now, skipped=(*now.skipped, (probe.probe, certain)))
            continue
        if isinstance(probe, AccuracyProbe | FidelityProbe):
            now = _probe_played(plan, arms, whole, now, probe)
        certain = certain_failure(plan, {**arms, "candidate": now})
    now = replace(now, complete=True)
    return Played(
        report=judge(plan, {**arms, "candidate": now}), documents=len(now.traces),
        items=len({row.item_id for row in now.measurements}), seconds=seconds_of(now, clock),
    )  # fmt: skip


def _probe_played(
    plan: Plan,
    arms: dict[Role, ArmRecord],
    whole: ArmRecord,
    now: ArmRecord,
    probe: AccuracyProbe | FidelityProbe,
) -> ArmRecord:
    for batch in range(probe.batches):
        now = replace(
            now,
            traces=now.traces + tuple(t for t in whole.traces if (t.suite, t.batch) == (probe.probe, batch)),
            measurements=now.measurements
            + tuple(row for row in whole.measurements if (row.suite, row.batch) == (probe.probe, batch)),
        )
        if batch + 1 == probe.batches:
            break
        reason = settled(plan, {**arms, "candidate": now}, probe.probe, "cold", batch + 1)
        if reason is not None:
            stop = Stop(suite=probe.probe, mode="cold", batches=batch + 1, reason=reason)
            return replace(now, stops=(*now.stops, stop))
    return now


def seconds_of(arm: ArmRecord, clock: Recording) -> float:
    """What the engine took for the documents and items that an arm has, start included, at the recorded rates."""
    scored = max(part.seconds for part in clock.stored if part.documents)
    per_document = scored / clock.documents
    items = len({row.item_id for part in clock.stored for row in part.measurements})
    per_item = (clock.stored[-1].seconds - scored) / items
    answered = len({row.item_id for row in arm.measurements})
    return clock.start_seconds + per_document * len(arm.traces) + per_item * answered


def _probe(plan: Plan, kind: type[P]) -> P:
    return next(probe for probe in plan.suite.probes if isinstance(probe, kind))


# --- tables ----------------------------------------------------------------------------------------------------------


def real_gates(plan: Plan, launches: Sequence[Recording]) -> None:
    """Launches of one configuration, judged as they stand: the first is the baseline, each other one a candidate.

    Its control is the launch recorded next. A launch that measured less is held against as much of the baseline.
    """
    rows = []
    for launch, control in zip(launches[1:], (*launches[2:], launches[1]), strict=True):
        candidate = launch.arm("candidate", plan.baseline)
        arms: dict[Role, ArmRecord] = {
            "baseline": shared(launches[0].arm("baseline", plan.baseline), candidate),
            "control": shared(control.arm("control", plan.baseline), candidate), "candidate": candidate,
        }  # fmt: skip
        report = played(plan, arms, launch).report
        deltas = {delta.metric: delta for delta in judge(plan, arms).deltas if delta.group == "all"}
        flips = (deltas["accuracy"].lost or 0) + (deltas["accuracy"].gained or 0)
        rows.append(
            [launch.name, f"{len(candidate.traces)}", f"{deltas['accuracy'].n}", report.verdict.value,
             f"{deltas['decode_kl'].estimate:.1e}", f"{flips}", f"{deltas['choice_probability'].estimate:+.1e}"]
        )  # fmt: skip
    header = [
        "candidate",
        "documents",
        "items",
        "verdict",
        "KL",
        "items that flip",
        "right-choice probability",
    ]
    table("Launches of one configuration, judged as they stand:", header, rows)


def shared(arm: ArmRecord, other: ArmRecord) -> ArmRecord:
    """Those documents and items of `arm` that `other` has too, in its batches."""
    batches = {trace.item_id: trace.batch for trace in other.traces}
    asked = {row.item_id: row.batch for row in other.measurements}
    return replace(
        arm,
        traces=tuple(replace(t, batch=batches[t.item_id]) for t in arm.traces if t.item_id in batches),
        measurements=tuple(
            replace(row, batch=asked[row.item_id]) for row in arm.measurements if row.item_id in asked
        ),
    )


def resampled_gates(
    plan: Plan, arms: Mapping[str, Recording], wanted: Sequence[str], gates: int, seed: int
) -> None:
    """Bootstrapped gates of every arm, played back with their looks; no rule here reads the noise of a control.

    Launches that agree to the last bit cannot fail. What real flips do without any harm shows where an FP8 arm and the
    reference change places at random, item by item.
    """
    same = [arms[name] for name in LAUNCHES[1:] if name in arms]
    narrow = {name: arms[name] for name in RESAMPLED if name in arms and name in wanted}
    rows = [_row(SAME, plan, arms[REFERENCE], same, gates, seed, _as_recorded)] if SAME in wanted else []
    for name, arm in narrow.items():
        rows.append(_row(name, plan, arms[REFERENCE], [arm], gates, seed, _as_recorded))
        if name.startswith("fp8"):
            title = f"{name}, items' arms exchanged at random"
            rows.append(_row(title, plan, arms[REFERENCE], [arm], gates, seed, exchanged))
    header = ["candidate", "PASS, %", "FAIL, %", "INCONCLUSIVE, %", "documents", "items", "seconds"]
    table(f"Resampled gates, {gates:,} each, until the decision:", header, rows)


Arms: TypeAlias = tuple[ArmRecord, ArmRecord]


def _row(
    title: str,
    plan: Plan,
    reference: Recording,
    candidates: Sequence[Recording],
    gates: int,
    seed: int,
    change: Callable[[Arms, np.random.Generator], Arms],
) -> list[str]:
    rng, runs = np.random.default_rng([seed, *title.encode()]), []
    for number in range(gates):
        clock = candidates[number % len(candidates)]
        baseline, new = drawn(
            plan, [reference.arm("baseline", plan.baseline), clock.arm("candidate", plan.baseline)], rng
        )
        baseline, new = change((baseline, new), rng)
        runs.append(played(plan, {"baseline": baseline, "candidate": new}, clock))
    return [title, *_shares(run.report for run in runs), *_costs(runs)]


def _as_recorded(arms: Arms, _rng: np.random.Generator) -> Arms:
    return arms


def exchanged(arms: Arms, rng: np.random.Generator) -> Arms:
    """No harm, but flips: a coin tossed for each item says whether its results change arms; documents are the same."""
    baseline, candidate = arms
    items = sorted({row.item_id for row in baseline.measurements})
    heads = dict(zip(items, rng.integers(2, size=len(items)), strict=True))
    rows = [
        (after, before) if heads[before.item_id] else (before, after)
        for before, after in zip(baseline.measurements, candidate.measurements, strict=True)
    ]
    return (
        replace(baseline, measurements=tuple(before for before, _ in rows)),
        replace(candidate, measurements=tuple(after for _, after in rows), traces=baseline.traces),
    )


def _shares(reports: Iterable[Report]) -> list[str]:
    verdicts = Counter(report.verdict for report in reports)
    return [
        f"{100 * verdicts[verdict] / verdicts.total():.1f}"
        for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
    ]


def _costs(runs: Sequence[Played]) -> list[str]:
    def mean(of: Callable[[Played], float]) -> str:
        return f"{np.mean([of(run) for run in runs]):.0f}"

    return [mean(lambda run: run.documents), mean(lambda run: run.items), mean(lambda run: run.seconds)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", default=[SAME, *RESAMPLED], help="default: A/A and every narrow cache"
    )
    parser.add_argument("--recordings", type=Path, default=FOLDER)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    arms = read_recordings(options.recordings, tuple(ARMS))
    if len(arms.keys() & set(LAUNCHES)) < 3:
        sys.exit(f"{options.recordings} holds fewer than three launches; record_arms.py records them")
    plan = plan_of(options.policy)
    with patch.object(token_samples, "compare_traces", compared):
        real_gates(plan, [arms[name] for name in LAUNCHES if name in arms])
        resampled_gates(plan, arms, options.rows, options.gates, options.seed)


if __name__ == "__main__":
    main()
