"""The base of every value that crosses a boundary: closed, frozen, finite."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A share strictly between 0 and 1."""


class Closed(BaseModel):
    """A frozen value that refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)
