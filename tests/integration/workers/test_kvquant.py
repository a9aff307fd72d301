"""KVQuant from the command that calibrates to the server that runs by it, with a small random model."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.calibrations import list_calibrations
from gatekeeper.domain.change import Change
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.plan import ArmPlan, Model, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from gatekeeper.embedded import bundled_model
from tests.integration.workers.test_reference_engine import POLICY, SUITE, model
from workers.engines import choose
from workers.engines.base import launch
from workers.engines.errors import EngineRefused

__all__ = ["model"]
pytestmark = pytest.mark.timeout(300)
CHANGE = {
    "model": "smollm2-135m", "candidate": {"quantization": {"scheme": "kvquant", "bits": 3}}, "suite": "tiny",
    "policy": "p",
}  # fmt: skip


@pytest.fixture(scope="module")
def home(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose bundled model is the small one."""
    root = tmp_path_factory.mktemp("home")
    (root / "models").mkdir()
    bundled_model.directory(root).symlink_to(model.source)
    (bundled_model.directory(root) / bundled_model.FINISHED).touch()
    return root


def calibrate(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gatekeeper.cli", "calibrate", "smollm2-135m", "--bits", "3", *words]
    environment = os.environ | {"GATEKEEPER_HOME": str(home)}
    environment.pop("DATABASE_URL", None)
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=250)


def planned(home: Path) -> ArmPlan:
    return make_plan(
        Change.model_validate(CHANGE), model=bundled_model.bundled_model(home), suite=Suite.model_validate(SUITE),
        policy=Policy.model_validate(POLICY), device="cpu", allowed_arguments=frozenset(),
        calibrations=list_calibrations(home),
    ).candidate  # fmt: skip


def complete(plan: ArmPlan, log: Path) -> Any:
    """Launch the engine, hold it against its plan, score two forced tokens."""
    body = {
        "model": plan.model.name, "prompt": list(range(2, 90)), "max_tokens": 2, "logprobs": 1, "temperature": 0.0,
        "vllm_xargs": {"forced_token_ids": [5, 7]}, "return_tokens_as_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    with launch(
        choose(plan), plan, run_id=uuid.uuid4().hex, log=log, gpu=None, start_seconds=120, stall_seconds=60,
        check=lambda: None,
    ) as server:  # fmt: skip
        assert mismatches(compare(plan, server.effective)) == ()
        known = {row.setting: row.effective for row in compare(plan, server.effective) if row.agrees}
        assert known["quantization.calibration"] == server.effective.calibration
        assert {"stored_type", "kv_bytes_per_token"} <= known.keys()
        answer: Any = server.post("/v1/completions", body)
        return answer["choices"][0]["logprobs"]


def test_what_one_command_calibrates_another_engine_runs_by(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calibrate(home)
    assert made.returncode == 0, made.stderr
    (known,) = list_calibrations(home)
    assert known.id in made.stdout
    plan = planned(home)
    monkeypatch.setenv("GATEKEEPER_HOME", str(home))
    scored = complete(plan, tmp_path / "engine.log")
    assert scored["tokens"] == ["token_id:5", "token_id:7"]
    assert all(-50 < logprob < 0 for logprob in scored["token_logprobs"])

    monkeypatch.setenv("GATEKEEPER_HOME", str(tmp_path))
    with pytest.raises(EngineRefused, match="gatekeeper calibrate smollm2-135m --scheme kvquant --bits 3"):
        complete(plan, tmp_path / "engine.log")


def test_the_operators_own_texts_make_another_calibration_and_too_few_are_refused(
    home: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    lines = [
        json.dumps({"text": f"Entry {n}: the level was {n * 37 % 91} at noon. " * 12}) for n in range(40)
    ]
    texts.write_text("\n".join(lines[:1]))
    refused = calibrate(home, "--texts", str(texts))
    assert (refused.returncode, "at least 1024" in refused.stderr) == (4, True)
    texts.write_text("\n".join(lines))
    before = {known.id for known in list_calibrations(home)}
    made = calibrate(home, "--texts", str(texts))
    assert made.returncode == 0, made.stderr
    newest = list_calibrations(home)[0]
    assert newest.id not in before
    assert newest.id in made.stdout
    again = calibrate(home, "--texts", str(texts))
    assert "is there already" in again.stdout
