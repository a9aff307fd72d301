"""A stored calibration, and the model that it was made for."""

from pathlib import Path

import pytest
import torch

from gatekeeper.calibrations import list_calibrations, read_calibration
from gatekeeper.domain.calibration import Calibration
from tests.unit.reference.nuq_tiny import fitted, layers, scheme
from tests.unit.reference.tiny import model
from workers.engines.reference.calibrated import keep, load_layers, weights_fingerprint


def made(**fields: str) -> Calibration:
    weights = fields.get("weights") or weights_fingerprint(model())
    return Calibration(
        bits=3,
        outlier_fraction=0.05,
        source="/m",
        weights=weights,
        texts="t",
        tokens=1024,
        context_tokens=256,
    )


def test_what_was_kept_is_loaded_for_the_same_weights(tmp_path: Path) -> None:
    path = keep(tmp_path, made(), fitted(3))
    assert read_calibration(path) == made() == list_calibrations(tmp_path)[0]
    asked = scheme(3).model_copy(update={"calibration": made().id})
    found = load_layers(tmp_path, asked, model(), name="m")
    for one, other in zip(found, layers(3), strict=True):
        assert torch.equal(one.keys.levels, other.keys.levels)
        assert torch.equal(one.keys.reach, other.keys.reach)
        assert one.values.outliers == other.values.outliers == 4


def test_a_calibration_that_is_missing_or_of_other_weights_is_refused_with_the_command(
    tmp_path: Path,
) -> None:
    other = made(weights="of another model")
    asked = scheme(3).model_copy(update={"calibration": other.id})
    command = "`gatekeeper calibrate m --scheme kvquant --bits 3 --outlier-fraction 0.05`"
    for reason in (
        f"there is no calibration {other.id} in ",
        f"calibration {other.id} was made for other weights",
    ):
        with pytest.raises(ValueError, match=reason) as refusal:
            load_layers(tmp_path, asked, model(), name="m")
        assert command in str(refusal.value)
        keep(tmp_path, other, fitted(3))


def test_weights_are_told_apart_by_any_of_them() -> None:
    before = weights_fingerprint(model())
    weight = model().model.layers[1].mlp.up_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight += 0.01
        assert weights_fingerprint(model()) != before
        weight.copy_(kept)
    assert weights_fingerprint(model()) == before
