"""One class per failure; its docstring is the start of its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class GatekeeperError(Exception):
    """Something went wrong."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        summary = (type(self).__doc__ or "").splitlines()[0].rstrip(".")
        super().__init__(f"{summary}: {detail}" if detail else summary)


EXCERPT_LENGTH: Final = 300
"""Characters of a caller's own words that an answer repeats at most."""


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT_LENGTH else f"{text[: EXCERPT_LENGTH - 1]}…"


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldProblem:
    """What is wrong with one field: `field` is a dotted path, `allowed` says what would be accepted."""

    field: str
    problem: str
    allowed: str = ""

    def __post_init__(self) -> None:
        """Cut what a caller sent, which may be of any length."""
        object.__setattr__(self, "field", _excerpt(self.field))
        object.__setattr__(self, "problem", _excerpt(self.problem))

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" + (f" (allowed: {self.allowed})" if self.allowed else "")


class InvalidInput(GatekeeperError):
    """The input was refused."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


class UnreadableInput(GatekeeperError):
    """The document could not be read."""


class BodyTooLarge(GatekeeperError):
    """The body is too large."""


class NotFound(GatekeeperError):
    """There is no such thing here."""


class Conflict(GatekeeperError):
    """The request contradicts the present state."""


class LeaseLost(GatekeeperError):
    """The lease of this run belongs to another worker now."""


class ServiceUnavailable(GatekeeperError):
    """A service that this needs does not answer."""
