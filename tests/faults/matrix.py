"""Which verdict every planted fault has to get, who finds it, and what lm-eval alone says of it.

The tests are made from this table, and `python -m tests.faults.matrix` prints it for docs/suites.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from gatekeeper.domain.verdict import Verdict
from tests.faults.table import FAULTS
from tests.faults.trial import SCHEDULING

Plain = Literal["passes", "fails", "no answer"]
"""What lm-eval's averages come to: within both tolerances, beyond one of them, or it ended with an error."""

RELATIVE_TOLERANCE: Final = 0.08
POINTS_TOLERANCE: Final = 0.05
"""A drop of a task's accuracy that today's tools let pass: relative to the baseline's, and absolute."""

Probes = tuple[str, ...]
FIDELITY: Final[Probes] = ("capacity", "fidelity")
WITH_ACCURACY: Final[Probes] = ("capacity", "fidelity", "accuracy")
PROBES_OF_ALL: Final[Probes] = ("capacity", "fidelity", "accuracy", "performance")


def _fp8(**parameters: str) -> Mapping[str, object]:
    return {"quantization": {"scheme": "fp8_e4m3", **parameters}, **SCHEDULING}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault and its verdict. `finder` is for readers, `says` a pattern that the verdict's sentence has to hold.

    `missing`: what the suites still lack to find it; the row is then expected not to hold. `repeated`: the same engine
    has failed in an earlier attempt of the run. `own_engine`: the fault shows in an engine of the plan's own only.
    """

    fault: str
    verdict: Verdict
    finder: str
    says: str
    plain: Plain
    probes: Probes = FIDELITY
    candidate: Mapping[str, object] = field(default_factory=lambda: SCHEDULING)
    deployment: Mapping[str, object] = field(default_factory=dict)
    repeated: bool = False
    own_engine: bool = False
    stall_seconds: float = 300
    missing: str = ""

    @property
    def name(self) -> str:
        """For a test's id."""
        return "-".join([self.fault, self.verdict.value, *(["repeated"] if self.repeated else [])])

    def is_said_by(self, sentence: str) -> bool:
        """Whether the sentence names what has to be found."""
        return re.search(self.says, sentence) is not None


COLD_KL: Final = r"decode KL [\d.]+ nats/token .*exceeds"
WARM_KL: Final = r"decode KL \(warm\) [\d.]+ nats/token .*exceeds"

ROWS: Final = (
    Row(fault="none", verdict=Verdict.PASS, finder="nothing", says="decode KL 0.000", plain="passes"),
    Row(
        fault="past_context", verdict=Verdict.FAIL, says=COLD_KL, plain="passes",
        finder="fidelity: KL of decoded tokens",
    ),
    Row(
        fault="past_context", verdict=Verdict.INVALID, says="coverage: max_context 256 > 128 tokens reached",
        finder="coverage: the deployment declares a context that the suite does not reach", plain="passes",
        deployment={"max_context": 256},
    ),
    Row(
        fault="after_decoded", verdict=Verdict.FAIL, says=COLD_KL, plain="passes",
        finder="fidelity: KL of decoded tokens",
    ),
    Row(
        fault="prefix_hit", verdict=Verdict.FAIL, says=rf"(?<!\) ){WARM_KL}", plain="passes",
        finder="fidelity, warm",
    ),
    Row(
        fault="preempting", verdict=Verdict.FAIL, says="saturated", plain="passes", finder="saturated mode",
        missing="a mode whose pool is so small that the scheduler preempts",
    ),
    Row(
        fault="concurrent", verdict=Verdict.FAIL, says=COLD_KL, plain="fails",
        finder="fidelity at the deployed concurrency",
    ),
    Row(
        fault="first_batch", verdict=Verdict.FAIL, says=COLD_KL, plain="passes",
        finder="fidelity, the first probe after the start",
    ),
    Row(
        fault="block_boundary", verdict=Verdict.FAIL, says="boundary", plain="passes", finder="block-boundary mode",
        missing="a mode with prompts one token around whole blocks",
    ),
    Row(
        fault="doubled_tokens", verdict=Verdict.FAIL, says="repetition", plain="passes", finder="long free decode",
        missing="a probe that reads free text",
    ),
    Row(
        fault="nan_logprobs", verdict=Verdict.FAIL, says="no finite value", plain="passes",
        finder="fidelity: a value that is no number",
    ),
    Row(
        fault="setting_ignored", verdict=Verdict.INVALID, says="requested fp8_e4m3, effective auto", plain="passes",
        finder="effective configuration", candidate=_fp8(),
    ),
    Row(
        fault="metrics_missing", verdict=Verdict.INVALID, says="cache_dtype: requested 16-bit, effective not reported",
        plain="passes", finder="effective configuration",
    ),
    Row(
        fault="hits_missing", verdict=Verdict.INVALID, says="prefix_cache_hits_total did not move in warm mode",
        plain="passes", finder="fidelity, warm: not exercised",
    ),
    Row(
        fault="unit_scales", verdict=Verdict.INVALID, says="scales", plain="passes",
        finder="effective configuration: scales in the log", candidate=_fp8(scales="checkpoint"),
        missing="scales are read from the start-up log",
    ),
    Row(
        fault="frozen_counters", verdict=Verdict.INVALID, says="prefix_cache_hits_total did not move in warm mode",
        plain="passes", finder="fidelity, warm: not exercised",
    ),
    Row(
        fault="failing_requests", verdict=Verdict.ERROR, says="HTTP|request", plain="passes",
        finder="accuracy: a request failed",  probes=WITH_ACCURACY,
    ),
    Row(
        fault="stalled", verdict=Verdict.ERROR, says="candidate engine stalled .* retry", plain="no answer",
        finder="fidelity: no answer within the deadline", stall_seconds=20,
    ),
    Row(
        fault="stalled", verdict=Verdict.FAIL, says="candidate stalled again", plain="no answer",
        finder="fidelity: no answer within the deadline, in a second attempt too", stall_seconds=20, repeated=True,
    ),
    Row(
        fault="empty_answers", verdict=Verdict.ERROR, says="did not force the reference tokens", plain="fails",
        finder="fidelity: the given tokens were not decoded",
    ),
    Row(
        fault="empty_free_text", verdict=Verdict.FAIL, says="empty|repetition|failed", plain="passes",
        finder="long free decode", probes=("capacity", "fidelity", "performance"),
        missing="a blocking rule on free text or on requests that come to nothing",
    ),
)  # fmt: skip


def plain_answer(baseline: Mapping[str, float], measured: Mapping[str, float | str]) -> Plain:
    """What lm-eval's averages say of an engine, held against the baseline's by both tolerances."""
    if "error" in measured:
        return "no answer"
    drops = {task: before - float(measured[task]) for task, before in baseline.items()}
    lost = any(
        drop > POINTS_TOLERANCE or drop > RELATIVE_TOLERANCE * baseline[task] for task, drop in drops.items()
    )
    return "fails" if lost else "passes"


def markdown() -> str:
    """The table for the documentation."""
    head = ("planted fault", "verdict", "found by", "lm-eval on short prompts")
    lines = [_line(head), _line(["---"] * len(head))]
    for row in ROWS:
        found = f"not found yet: needs {row.missing}" if row.missing else row.finder
        lines.append(_line([FAULTS[row.fault].about, row.verdict, found, row.plain]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown())
