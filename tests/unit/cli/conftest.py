"""A command line in a clean environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gatekeeper.cli import main
from tests.unit.cli.fake_service import FakeService, fake_service

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("GATEKEEPER_") or name in ("DATABASE_URL", "BROKER_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GATEKEEPER_HOME", str(tmp_path / "home"))


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as fake:
        yield fake


@pytest.fixture
def run() -> Run:
    """Run `gatekeeper` with these words."""
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def change(tmp_path: Path) -> Path:
    path = tmp_path / "fp8.yaml"
    path.write_text("name: fp8_e4m3\nmodel: smollm2-135m\ncandidate:\n  quantization: {scheme: fp8_e4m3}\n")
    return path
