"""A verdict, an outcome or a state as a word with a symbol and a tone. Never a colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from gatekeeper.domain.foresight import Outlook
from gatekeeper.domain.policy import Severity
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Verdict

Tone = Literal["pass", "fail", "unsure", "invalid", "error", "live", "quiet"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Badge:
    """`symbol` names one of the drawings in `templates/symbols.html`."""

    word: str
    symbol: str
    tone: Tone


VERDICTS: Final[Mapping[Verdict, Badge]] = {
    Verdict.PASS: Badge(word="PASS", symbol="check", tone="pass"),
    Verdict.FAIL: Badge(word="FAIL", symbol="cross", tone="fail"),
    Verdict.INCONCLUSIVE: Badge(word="INCONCLUSIVE", symbol="question", tone="unsure"),
    Verdict.INVALID: Badge(word="INVALID", symbol="barred", tone="invalid"),
    Verdict.ERROR: Badge(word="ERROR", symbol="bang", tone="error"),
}

OUTCOMES: Final[Mapping[Outcome, Badge]] = {
    Outcome.PASSED: Badge(word="Passed", symbol="check", tone="pass"),
    Outcome.REGRESSED: Badge(word="Regressed", symbol="cross", tone="fail"),
    Outcome.INCONCLUSIVE: Badge(word="Inconclusive", symbol="question", tone="unsure"),
    Outcome.NOT_EXERCISED: Badge(word="Not exercised", symbol="barred", tone="invalid"),
    Outcome.MISSING: Badge(word="Missing", symbol="barred", tone="invalid"),
    Outcome.ERRORED: Badge(word="Errored", symbol="bang", tone="error"),
    Outcome.WAIVED: Badge(word="Waived", symbol="flag", tone="quiet"),
}

IDLE: Final = Badge(word="Does not apply", symbol="dash", tone="quiet")
"""A rule of the policy that speaks of nothing in the run."""

OUTLOOKS: Final[Mapping[Outlook, Badge]] = {
    "decidable": Badge(word="yes", symbol="check", tone="pass"),
    "undecidable": Badge(word="no", symbol="cross", tone="fail"),
    "unknown": Badge(word="perhaps", symbol="question", tone="unsure"),
    "idle": IDLE,
}
"""Whether a rule can be decided, as far as that is known before the run."""

STATES: Final[Mapping[RunState, Badge]] = {
    RunState.QUEUED: Badge(word="QUEUED", symbol="ring", tone="quiet"),
    RunState.RUNNING: Badge(word="RUNNING", symbol="dot", tone="live"),
    RunState.FINISHED: Badge(word="FINISHED", symbol="dot", tone="quiet"),
    RunState.CANCELLED: Badge(word="CANCELLED", symbol="dash", tone="quiet"),
}


def of_run(state: RunState, verdict: Verdict | None) -> Badge:
    """The verdict, or the state of a run that has none."""
    return VERDICTS[verdict] if verdict is not None else STATES[state]


def of_finding(outcome: Outcome, severity: Severity | None) -> Badge:
    """An outcome; a rule that only warns never looks like one that closed the gate."""
    badge = OUTCOMES[outcome]
    closes = badge.tone in ("fail", "invalid", "error")
    return replace(badge, tone="unsure") if severity == "warn" and closes else badge
