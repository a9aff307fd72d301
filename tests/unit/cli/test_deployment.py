"""docker-compose.yml and the Dockerfiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return found


def compose() -> list[str] | None:
    """Whichever Compose this machine has."""
    if shutil.which("docker"):
        command = ["docker", "compose"]
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return ["docker-compose"] if shutil.which("docker-compose") else None


def test_compose_accepts_it() -> None:
    command = compose()
    if command is None:
        pytest.skip("neither `docker compose` nor docker-compose is installed")
    done = subprocess.run(
        [*command, "--file", str(FILE), "config"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == {
        "postgres",
        "redis",
        "migrate",
        "api",
        "gpu-worker",
    }


def test_everything_that_stays_up_has_a_healthcheck(services: dict[str, Any]) -> None:
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"migrate"}


def test_api_and_worker_wait_for_the_migration(services: dict[str, Any]) -> None:
    for name in ("api", "gpu-worker"):
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_the_worker_reserves_an_nvidia_gpu(services: dict[str, Any]) -> None:
    [device] = services["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_only_the_api_can_be_reached_and_only_from_this_host(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:${GATEKEEPER_PORT:-8800}:8800"]}


def test_no_secret_is_committed(services: dict[str, Any]) -> None:
    secret = re.compile("PASSWORD|TOKEN|SECRET")
    given = [
        str(value)
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if secret.search(name)
    ]
    assert set(given) == {"${POSTGRES_PASSWORD:-}", "None"}


def test_the_images_engine_is_the_one_that_the_requirements_name() -> None:
    dockerfile = (ROOT / "docker" / "worker-gpu.Dockerfile").read_text(encoding="utf-8")
    requirements = (ROOT / "requirements" / "worker-gpu.in").read_text(encoding="utf-8")
    tag = re.search(r"^FROM vllm/vllm-openai:v(\S+)$", dockerfile, re.MULTILINE)
    pin = re.search(r"^vllm==(\S+)$", requirements, re.MULTILINE)
    assert tag is not None
    assert pin is not None
    assert tag[1] == pin[1]


@pytest.mark.parametrize("name", ["api", "worker-gpu"])
def test_all_that_an_image_copies_exists_and_reaches_the_build(name: str) -> None:
    dockerfile = ROOT / "docker" / f"{name}.Dockerfile"
    copied = re.findall(r"^COPY (\S+?)/? ", dockerfile.read_text(encoding="utf-8"), re.MULTILINE)
    sent = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied
    assert [path for path in copied if not (ROOT / path).exists() or f"!{path}" not in sent] == []
