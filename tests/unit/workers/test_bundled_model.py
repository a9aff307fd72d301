"""Building the bundled model, with the conversion itself faked."""

from pathlib import Path

import pytest

from gatekeeper.embedded import bundled_model
from workers import models


def fake_conversion(target: Path) -> None:
    (target / "config.json").write_text("{}")


def failing_conversion(target: Path) -> None:
    fake_conversion(target)
    raise KeyboardInterrupt


def test_a_build_puts_a_finished_directory_in_place(tmp_path: Path) -> None:
    directory = models.build(tmp_path, fake_conversion)
    assert directory == bundled_model.directory(tmp_path)
    assert bundled_model.is_built(tmp_path)
    assert (directory / "config.json").exists()


def test_a_second_build_converts_nothing(tmp_path: Path) -> None:
    models.build(tmp_path, fake_conversion)
    assert models.build(tmp_path, failing_conversion) == bundled_model.directory(tmp_path)


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        models.build(tmp_path, failing_conversion)
    assert not bundled_model.is_built(tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_unfinished_directory_is_replaced(tmp_path: Path) -> None:
    bundled_model.directory(tmp_path).mkdir(parents=True)
    (bundled_model.directory(tmp_path) / "half.safetensors").touch()
    directory = models.build(tmp_path, fake_conversion)
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", bundled_model.FINISHED]


def test_a_build_that_finishes_second_keeps_the_first(tmp_path: Path) -> None:
    def overtaken(target: Path) -> None:
        fake_conversion(target)
        (models.build(tmp_path, fake_conversion) / "of-the-first").touch()

    directory = models.build(tmp_path, overtaken)
    assert (directory / "of-the-first").exists()
    assert list((tmp_path / "models").iterdir()) == [directory]
