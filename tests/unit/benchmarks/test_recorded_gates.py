"""Gates played back from the recordings that come with the benchmarks."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from arms import ARMS
from recorded_gates import FOLDER, drawn, plan_of, played
from recordings import REFERENCE, Recording, compared, read_recordings

from gatekeeper.domain import token_samples
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Verdict


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return read_recordings(FOLDER, tuple(ARMS))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of("default")


def arms(plan: Plan, recordings: dict[str, Recording], candidate: str) -> list[ArmRecord]:
    recorded = recordings[REFERENCE].arm("baseline", plan.baseline)
    new = recordings[candidate].arm("candidate", plan.baseline)
    return drawn(plan, [recorded, new], np.random.default_rng(1))


def test_both_arms_get_the_same_documents_and_items(plan: Plan, recordings: dict[str, Recording]) -> None:
    reference = recordings[REFERENCE].arm("baseline", plan.baseline)
    baseline, again = drawn(plan, [reference, replace(reference, role="candidate")], np.random.default_rng(1))
    assert (baseline.traces, baseline.measurements) == (again.traces, again.measurements)
    assert len(baseline.traces) == 32
    assert len({row.item_id for row in baseline.measurements}) == 440


@pytest.mark.parametrize(("candidate", "verdict"), [("launch-12", Verdict.PASS), ("fp8_e5m2", Verdict.FAIL)])
def test_a_run_played_back_stops_before_its_end_once_it_is_decided(
    plan: Plan, recordings: dict[str, Recording], candidate: str, verdict: Verdict
) -> None:
    baseline, new = arms(plan, recordings, candidate)
    with patch.object(token_samples, "compare_traces", compared):
        run = played(plan, {"baseline": baseline, "candidate": new}, recordings[candidate])
    assert run.report.verdict is verdict
    assert run.items < 440
