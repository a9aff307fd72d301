"""The answer of a run: verdict, findings, deltas, noise. Every type here is stored and served as JSON as it stands."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gatekeeper.domain.base import Closed
from gatekeeper.domain.measurement import Evidence, Mode
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.waiver import Waiver


class Verdict(StrEnum):
    """Only PASS opens the gate."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    ERROR = "ERROR"


class Outcome(StrEnum):
    """What one rule came to."""

    PASSED = "Passed"
    REGRESSED = "Regressed"
    INCONCLUSIVE = "Inconclusive"
    NOT_EXERCISED = "NotExercised"
    MISSING = "Missing"
    ERRORED = "Errored"
    WAIVED = "Waived"


class CurvePoint(Closed):
    """The mean of a metric over scored tokens start to end-1 of every item.

    `lower` and `upper` are one-sided bounds at the delta's confidence, of this stretch alone; None: a report from
    before they were stored.
    """

    start: int
    end: int
    estimate: float
    lower: float | None = None
    upper: float | None = None


class ContextPoint(Closed):
    """The mean of a metric over what was scored after `context_tokens` tokens, the same documents at each length.

    `lower` and `upper` as of a CurvePoint.
    """

    context_tokens: int
    documents: int
    estimate: float
    lower: float | None
    upper: float | None


class Delta(Closed):
    """One metric of one mode and group, candidate against baseline, in the metric's unit.

    `estimate` is what rules bound: candidate - baseline for accuracy, choice probability and NLL, the mean for KL and
    agreement, candidate / baseline for speed and capacity. `lower` and `upper` are one-sided bounds at `confidence`, of
    all looks together where a run may stop early; None where unbounded. `group`: `all`, one task, a stretch of the
    decode such as `tokens 64-128`, or some lengths of context such as `context 1024-2049`.
    """

    metric: str
    suite: str
    mode: Mode
    group: str = "all"
    unit: str
    n: int
    clusters: int
    baseline: float | None
    candidate: float | None
    estimate: float
    lower: float | None
    upper: float | None
    confidence: float
    harm_p: float | None = None
    """One-sided p-value of the hypothesis that the candidate is not worse than the rule allows."""
    lost: int | None = None
    gained: int | None = None
    kept: float | None = None
    """Accuracy: candidate / baseline, the share of the baseline's right answers that is kept."""
    kept_lower: float | None = None
    """The one-sided lower bound of `kept` at `confidence`."""
    missing: int = 0
    planned: int | None = None
    """Items if nothing had stopped the run; None: no items, or a report from before this was stored."""
    more_items: int | None = None
    """How many more items would decide the rule at the present estimate; None: no rule, or none would."""
    detectable: float | None = None
    """The value that this many items would show to be harm in four runs of five."""
    chance_to_decide: float | None = None
    """While looks are still to come: the predictive chance that the last one decides the rule."""
    method: str
    curve: tuple[CurvePoint, ...] = ()
    context_curve: tuple[ContextPoint, ...] = ()
    """Token metrics of `all`, where documents were scored after contexts of several lengths; shortest first."""
    launches: tuple[float, ...] = ()
    """Speed: the log of candidate / baseline by pair of launches."""


class Finding(Closed):
    """A rule applied to a delta. `detail` is one phrase a person can act on.

    `bound`: the metric's value at which the rule was just broken in this run, also where the rule states it relative
    to the noise or to the baseline; None: unknown, or a report from before this was stored.
    """

    outcome: Outcome
    metric: str
    mode: Mode
    group: str = "all"
    rule: Rule
    bound: float | None = None
    delta: Delta | None = None
    detail: str

    @property
    def limit(self) -> float | None:
        """The value at which the rule is just broken, as far as it is known."""
        return self.bound if self.bound is not None else self.rule.bound


class Noise(Closed):
    """How far two launches of the same baseline differ, the floor under every delta. None: not measured."""

    decode_kl: float | None = None
    top1_agreement: float | None = None
    accuracy_flip_rate: float | None = None
    throughput_ratio: float | None = None
    deltas: tuple[Delta, ...] = ()


class SettingRow(Closed):
    """A setting of one arm: requested, effective, whether they agree, and how that is known.

    `agrees` is None where it cannot be told, for the `reason` given. A report from before `evidence` and `reason` were
    stored has neither.
    """

    arm: str
    setting: str
    requested: str
    effective: str | None
    agrees: bool | None
    evidence: Evidence | None = None
    reason: str = ""


class EngineInfo(Closed):
    """What a verdict speaks of: one engine build on one kind of hardware."""

    name: str
    version: str
    device: str
    hardware: str


class Report(Closed):
    """The whole answer. `requested` and `effective` are keyed by arm."""

    verdict: Verdict
    sentence: str
    findings: tuple[Finding, ...] = ()
    deltas: tuple[Delta, ...] = ()
    noise: Noise = Noise()
    settings: tuple[SettingRow, ...] = ()
    requested: dict[str, dict[str, object]] = Field(default_factory=dict)
    effective: dict[str, dict[str, object]] = Field(default_factory=dict)
    engine: EngineInfo | None = None
    notes: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    """Those that excused a rule."""
