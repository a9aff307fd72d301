"""The one shape in which every estimate leaves this package."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate with a lower and an upper confidence bound, in the units of the estimate.

    `confidence` is the ONE-SIDED confidence of each bound. With 0.95, `lower` is a 95 % lower bound and `upper` a
    95 % upper bound; read together they are a two-sided 90 % interval. A gate asks one-sided questions ("is it worse?",
    "is it at most this much worse?"), so the one-sided level is the error rate of each answer.

    A bound is infinite where the data do not bound the estimate on that side.
    """

    estimate: float
    lower: float
    upper: float
    confidence: float

    @property
    def mirrored(self) -> "Interval":
        """The interval of the negated quantity: what swapping the two arms gives."""
        return Interval(
            estimate=-self.estimate, lower=-self.upper, upper=-self.lower, confidence=self.confidence
        )


def check_confidence(confidence: float) -> None:
    """Raises ValueError unless 0.5 <= confidence < 1 (below one half a bound would cross its estimate)."""
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence must lie in [0.5, 1), got {confidence}")
