"""`gate --policy FILE` for the embedded service that `gate` starts itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from gatekeeper.catalog import get_policy, list_names
from gatekeeper.cli.environment import Service
from gatekeeper.client import Client, RunStatus
from gatekeeper.settings import Settings
from tests.unit.cli.fake_service import FakeService
from tests.unit.reporting.samples import document

Run = Callable[..., Result]
POLICY = "name: strict\nrules:\n  - {metric: decode_kl, at_most: 0.001, reason: because}\n"


@pytest.fixture
def seen(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that an embedded service was started with, and the limits that it then knew."""
    settings_seen: list[Settings] = []

    @contextmanager
    def embedded(settings: Settings) -> Iterator[Service]:
        assert (
            settings.catalog_dir is None
            or get_policy("strict", extra=settings.catalog_dir).rules[0].at_most == 0.001
        )
        settings_seen.append(settings)
        with Client(service.url) as client:
            yield Service(client=client, is_ours=True)

    monkeypatch.setattr("gatekeeper.cli.gate.embedded_service", embedded)
    service.plays(document())
    return settings_seen


def test_the_file_is_in_the_catalogue_of_that_service_and_nowhere_else(
    service: FakeService, seen: list[Settings], run: Run, change: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(POLICY)
    result = run("gate", change, "--policy", tmp_path / "mine.yaml")
    assert result.exit_code == 0
    assert service.bodies("POST /api/v1/runs")[0]["policy"] == "strict"
    [settings] = seen
    assert settings.catalog_dir is not None
    assert not settings.catalog_dir.exists()


def test_the_operators_own_catalogue_stays_known(
    seen: list[Settings], run: Run, change: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "catalog" / "policies"
    own.mkdir(parents=True)
    (own / "house.yaml").write_text(POLICY.replace("strict", "house"))
    names: list[str] = []
    monkeypatch.setenv("GATEKEEPER_CATALOG_DIR", str(own.parent))

    def look(service: Service, _: object) -> RunStatus:
        names.extend(list_names("policies", seen[0].catalog_dir))
        return service.client.get("r-1")

    monkeypatch.setattr("gatekeeper.cli.gate.gate_change", look)
    (tmp_path / "mine.yaml").write_text(POLICY)
    assert run("gate", change, "--policy", tmp_path / "mine.yaml").exit_code == 0
    assert {"default", "house", "strict"} <= set(names)


def test_a_report_names_no_address_of_a_service_that_stops(
    seen: list[Settings], run: Run, change: Path
) -> None:
    result = run("gate", change)
    assert seen[0].catalog_dir is None
    assert result.stdout.splitlines()[-1] == "run          r-1"
