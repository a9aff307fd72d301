"""What a verdict means for the rollout, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """`gate`: whether the change may go on. Code in `advice` stands between backticks."""

    gate: str
    advice: str


MEANINGS: Final[Mapping[Verdict, Meaning]] = {
    Verdict.PASS: Meaning(
        gate="Gate open",
        advice="Every blocking rule was shown to hold. Roll it out; "
        "`gatekeeper promote` makes it the model's reference.",
    ),
    Verdict.FAIL: Meaning(
        gate="Gate closed",
        advice="At least one rule proved a regression. Keep the baseline, or propose a gentler change.",
    ),
    Verdict.INCONCLUSIVE: Meaning(
        gate="Gate closed",
        advice="The evidence is sound but too small to decide. The findings say how many items would.",
    ),
    Verdict.INVALID: Meaning(
        gate="Gate closed",
        advice="The evidence does not speak about this change. Mend what the sentence names and submit it again.",
    ),
    Verdict.ERROR: Meaning(
        gate="Gate closed",
        advice="Something around the engine failed. This does not count against the candidate; retry the run.",
    ),
}
