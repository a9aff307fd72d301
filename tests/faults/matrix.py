"""Which verdict every planted fault has to get, who finds it, and what lm-eval alone says of it.

Every suite has fidelity and what else the finder needs. The tests are made from this table, and
`python -m tests.faults.matrix` prints it for docs/suites.md.
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


def _with(*probes: str) -> Probes:
    """Fidelity is in all suites: it is what meets a warm cache."""
    return (*FIDELITY, *probes)


def _fp8(**parameters: str) -> Mapping[str, object]:
    return {"quantization": {"scheme": "fp8_e4m3", **parameters}, **SCHEDULING}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault and its verdict. `finder` is for readers, `says` a pattern that the verdict's sentence has to hold.

    `missing`: what the product still lacks to find it; the row is then expected not to hold. `repeated`: the same
    engine has failed in an earlier attempt of the run.
    """

    fault: str
    verdict: Verdict
    finder: str
    says: str
    probes: Probes = FIDELITY
    candidate: Mapping[str, object] = field(default_factory=lambda: SCHEDULING)
    deployment: Mapping[str, object] = field(default_factory=dict)
    repeated: bool = False
    stall_seconds: float = 300
    missing: str = ""

    @property
    def name(self) -> str:
        """For a test's id."""
        return "-".join(
            [self.fault, *self.probes[2:], self.verdict.value, *(["repeated"] if self.repeated else [])]
        )

    @property
    def found_by(self) -> str:
        """The finder, or what is needed to have one."""
        return f"not found yet: needs {self.missing}" if self.missing else self.finder

    def is_said_by(self, sentence: str) -> bool:
        """Whether the sentence names what has to be found."""
        return re.search(self.says, sentence) is not None


def _regressed(mode: str = "cold") -> str:
    """The pattern of a sentence that says that KL or NLL exceeds its limit in a mode; which of them is chance."""
    place = "" if mode == "cold" else rf" \({mode}\)"
    return rf"decode (?:KL|NLL change){place} [\d.]+ nats/token \([^)]*\) exceeds"


ROWS: Final = (
    Row(
        fault="none", verdict=Verdict.PASS, says="decode KL 0.000 nats/token", finder="nothing",
        probes=("capacity", "modes", "fidelity", "free_decode", "accuracy"),
    ),
    Row(
        fault="past_context", verdict=Verdict.FAIL, says=_regressed(),
        finder="fidelity: KL of the later context",
    ),
    Row(
        fault="past_declared_context", verdict=Verdict.INVALID, says="coverage: max_context 300 > 128 tokens reached",
        finder="coverage: the deployment declares more than the suite reaches",
        deployment={"max_context": 300},
    ),
    Row(
        fault="past_declared_context", verdict=Verdict.FAIL, says="retrieved-answer probability .* proven loss",
        finder="retrieval at the declared context", probes=_with("retrieval"),
        deployment={"max_context": 320},
    ),
    Row(
        fault="after_decoded", verdict=Verdict.FAIL, says=_regressed(),
        finder="fidelity: KL of the later decode",
    ),
    Row(
        fault="prefix_hit", verdict=Verdict.FAIL, says=_regressed("warm"), finder="fidelity, warm",
    ),
    Row(
        fault="preempting", verdict=Verdict.FAIL, says=_regressed("saturated"), finder="saturated",
        probes=_with("saturated"),
    ),
    Row(
        fault="concurrent", verdict=Verdict.FAIL, says=f"{_regressed()}|{_regressed('warm')}",
        finder="fidelity, at the deployed concurrency",
    ),
    Row(
        fault="one_at_a_time", verdict=Verdict.INVALID, says="requests at once beyond 7 did not move in cold mode",
        finder="not exercised: the engine never had as many requests as the deployment declares",
    ),
    Row(
        fault="first_batch", verdict=Verdict.FAIL, says=_regressed("first_batch"),
        finder="modes, first batch", probes=("capacity", "first_batch", "fidelity"),
    ),
    Row(
        fault="block_boundary", verdict=Verdict.FAIL, says=_regressed("boundary"),
        finder="modes, block boundary", probes=_with("boundary"),
    ),
    Row(
        fault="chunked", verdict=Verdict.FAIL, says=_regressed("chunked"),
        finder="modes, chunked prefill", probes=_with("chunked"),
    ),
    Row(
        fault="doubled_tokens", verdict=Verdict.FAIL, says="sound free text .* proven loss",
        finder="free decode: a stammer, and records that are no JSON any more", probes=_with("free_decode"),
    ),
    Row(
        fault="nan_logprobs", verdict=Verdict.FAIL, says="no finite value",
        finder="fidelity: no finite value",
    ),
    Row(
        fault="nan_everywhere", verdict=Verdict.FAIL, says="no finite value",
        finder="fidelity: no finite value", probes=_with("accuracy"),
    ),
    Row(
        fault="setting_ignored", verdict=Verdict.INVALID, says="requested fp8_e4m3, effective auto",
        finder="effective configuration: the metrics", candidate=_fp8(),
    ),
    Row(
        fault="setting_ignored_silently", verdict=Verdict.INVALID, says="stored_type: requested quantized",
        finder="effective configuration: the worker's account of its tensors", candidate=_fp8(),
    ),
    Row(
        fault="metrics_missing", verdict=Verdict.PASS, says="decode KL 0.000 nats/token",
        finder="nothing: the log and the worker's account of its tensors say it",
    ),
    Row(
        fault="account_missing", verdict=Verdict.INVALID, says="cache_dtype: requested 16-bit, effective not reported",
        finder="effective configuration",
    ),
    Row(
        fault="unit_scales", verdict=Verdict.INVALID, says="quantization.scales: requested checkpoint",
        finder="effective configuration: the scales in the worker's account", candidate=_fp8(scales="checkpoint"),
    ),
    Row(
        fault="hits_missing", verdict=Verdict.INVALID, says="prefix_cache_hits_total .* in warm mode",
        finder="not exercised: the engine does not count",
    ),
    Row(
        fault="frozen_counters", verdict=Verdict.INVALID, says="prefix_cache_hits_total did not move in warm mode",
        finder="not exercised: the counter does not move",
    ),
    Row(
        fault="failing_requests", verdict=Verdict.FAIL, says="no finite value",
        finder="fidelity: documents without a value",
    ),
    Row(
        fault="failing_requests", verdict=Verdict.FAIL, says="no finite value",
        finder="fidelity: documents without a value", probes=_with("accuracy"),
    ),
    Row(
        fault="stalled", verdict=Verdict.ERROR, says="candidate engine stalled .*retry",
        finder="no answer within the deadline", stall_seconds=20,
    ),
    Row(
        fault="stalled", verdict=Verdict.FAIL, says="candidate stalled again",
        finder="no answer within the deadline, and not in a retry either", stall_seconds=20, repeated=True,
    ),
    Row(
        fault="empty_answers", verdict=Verdict.INVALID, says="did not force the reference tokens",
        finder="fidelity: the given tokens were not decoded",
    ),
    Row(
        fault="blank_free_text", verdict=Verdict.FAIL, says="sound free text .* proven loss",
        finder="free decode", probes=_with("free_decode"),
    ),
    Row(
        fault="empty_free_text", verdict=Verdict.INVALID, says="sound free text: .* stood still while it worked",
        finder="not exercised: no token was generated", probes=_with("free_decode"),
    ),
    Row(
        fault="empty_free_text", verdict=Verdict.FAIL, says="requests failed under load",
        finder="performance: requests that came to nothing", probes=_with("performance"),
    ),
)  # fmt: skip


NOT_PASSED: Final[Mapping[str, Plain]] = {
    "concurrent": "fails",
    "nan_everywhere": "no answer",
    "stalled": "no answer",
    "empty_answers": "fails",
}
PLAIN: Final[Mapping[str, Plain]] = {fault: NOT_PASSED.get(fault, "passes") for fault in FAULTS}
"""Fault -> what lm-eval on short prompts says of it."""


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
    lines = [_line([FAULTS[row.fault].about, row.verdict, row.found_by, PLAIN[row.fault]]) for row in ROWS]
    return "\n".join(dict.fromkeys([_line(head), _line(["---"] * len(head)), *lines]))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown())
