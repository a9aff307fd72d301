"""Calibrations: what a scheme has to know of a model before it can store its cache, found beforehand on texts.

A calibration is identified by all that decides it, so equal ids mean the same figures. It is a part of the plan of an
arm that uses it, as a field of its quantization.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, Literal

from gatekeeper.domain.base import Closed, PositiveInt
from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.kv_config import KVConfig, KvQuant, OutlierFraction

PROCEDURE: Final = 1
"""Counts changes to how figures are found: what an earlier procedure found is not reused."""


class Calibration(Closed):
    """What identifies a calibration.

    `source`, `revision`: the model as it was registered; `weights`: a fingerprint of what was loaded from there;
    `texts`: one of the texts; `tokens`: how many of them were used, `context_tokens` at a time.
    """

    scheme: Literal["kvquant"] = "kvquant"
    bits: Literal[2, 3, 4]
    outlier_fraction: OutlierFraction
    source: str
    revision: str | None = None
    weights: str
    texts: str
    tokens: PositiveInt
    context_tokens: PositiveInt
    procedure: int = PROCEDURE

    @property
    def id(self) -> str:
        """The first 16 digits of the SHA-256 of all fields."""
        document = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def fits(self, quantization: KvQuant, *, source: str, revision: str | None) -> bool:
        """Whether it was made for this model and these parameters, and is the one that was asked for, if one was."""
        made_for = (self.bits, self.outlier_fraction, self.source, self.revision, self.procedure)
        asked = (quantization.bits, quantization.outlier_fraction, source, revision, PROCEDURE)
        return made_for == asked and quantization.calibration in (None, self.id)


def calibrated(
    config: KVConfig, *, arm: str, name: str, source: str, revision: str | None, known: Sequence[Calibration]
) -> tuple[KVConfig, list[FieldProblem]]:
    """The configuration with the first of `known` that fits it, or what is wrong where it needs one and none fits.

    `name`, `source` and `revision` are those of the model.
    """
    quantization = config.quantization
    if not isinstance(quantization, KvQuant):
        return config, []
    fitting = (each.id for each in known if each.fits(quantization, source=source, revision=revision))
    found = next(fitting, None)
    if found is not None:
        named = quantization.model_copy(update={"calibration": found})
        return config.model_copy(update={"quantization": named}), []
    asked = "" if quantization.calibration is None else f" {quantization.calibration}"
    problem = FieldProblem(
        field=f"{arm}.quantization.calibration",
        problem=f"there is no calibration{asked} of {name} for {parameters(quantization)}",
        allowed=f"what `{command(quantization, name)}` makes on the worker",
    )
    return config, [problem]


def parameters(quantization: KvQuant) -> str:
    """What a calibration is made for, in words."""
    return f"kvquant with bits {quantization.bits} and outlier_fraction {quantization.outlier_fraction:g}"


def command(quantization: KvQuant, model: str) -> str:
    """The command that makes the calibration."""
    fraction = f" --outlier-fraction {quantization.outlier_fraction:g}"
    usual = quantization.outlier_fraction == KvQuant.model_fields["outlier_fraction"].default
    return (
        f"gatekeeper calibrate {model} --scheme kvquant --bits {quantization.bits}{'' if usual else fraction}"
    )
