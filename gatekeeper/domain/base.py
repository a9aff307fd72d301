"""The base of every value that crosses a boundary: closed, frozen, finite."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

LARGEST: Final = 1_000_000_000
"""No count of tokens, requests or items is larger; databases and engines hold 32 bits."""
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]


def _no_truth_value(value: object) -> object:
    """YAML reads `yes` and `true` as a truth value, which would count as 1."""
    if isinstance(value, bool):
        raise ValueError(f"is a number, not {str(value).lower()}")  # noqa: TRY004 - pydantic wants it
    return value


Number = Annotated[float, BeforeValidator(_no_truth_value)]
"""A finite number; `true` is none."""
Fraction = Annotated[Number, Field(gt=0.0, lt=1.0)]
"""A share strictly between 0 and 1."""


def _distinct(layers: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(layers)) < len(layers):
        raise ValueError("a layer is there twice")
    return tuple(sorted(layers))


LayerIndices = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1), AfterValidator(_distinct)]
"""Layers of the model, the lowest is 0; kept in ascending order."""


def _is_absent(layers: tuple[int, ...] | None) -> bool:
    return layers is None


SkippedLayers = Annotated[LayerIndices | None, Field(exclude_if=_is_absent)]
"""Not written where it is absent, as before there was such a field: a waiver holds for a configuration as written."""


class Closed(BaseModel):
    """A frozen value that refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)
