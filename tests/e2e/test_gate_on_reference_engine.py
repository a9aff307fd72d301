"""Methods that vLLM lacks, gated through the CLI on the bundled model: the embedded stack and the reference engine."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_gate_on_real_vllm import Stack, stack

__all__ = ["stack"]
pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1500)]


def gate(service: Stack, folder: Path, candidate: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a gate on the tiny suite."""
    change = {"model": "smollm2-135m", "candidate": candidate, "suite": "tiny", "policy": "tiny"}
    path = folder / "change.json"
    path.write_text(json.dumps(change), encoding="utf-8")
    command = [sys.executable, "-m", "gatekeeper.cli", "gate", str(path), "--format", "json"]
    done = subprocess.run(
        command, check=False, env=service.environment, capture_output=True, text=True, timeout=1400
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


@pytest.mark.parametrize(
    ("candidate", "verdict", "code"),
    [
        ({"quantization": {"scheme": "int8"}}, "PASS", 0),
        ({"quantization": {"scheme": "kivi", "bits": 2}}, "FAIL", 1),
        ({"eviction": {"policy": "h2o", "evicted_fraction": 0.9}}, "FAIL", 1),
    ],
    ids=["int8", "kivi-2", "h2o 0.9"],
)
def test_a_method_that_vllm_lacks_gets_its_verdict_on_the_reference_engine(
    stack: Stack,
    tmp_path: Path,
    candidate: dict[str, Any],
    verdict: str,
    code: int,
) -> None:
    returned, report = gate(stack, tmp_path, candidate)
    assert (report["verdict"], returned) == (verdict, code), report["sentence"]
    assert report["engine"]["name"] == "reference"
    assert report["noise"]["decode_kl"] == 0.0
    assert any("Both arms ran on the reference engine" in note for note in report["notes"])
