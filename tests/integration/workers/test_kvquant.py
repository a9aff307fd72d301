"""KVQuant from the command that calibrates to the server that runs by it, with a small random model."""

import argparse
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
from tests.integration.workers.random_model import POLICY, SUITE, model
from workers import calibrate
from workers.engines import choose
from workers.engines.base import launch

__all__ = ["model"]
pytestmark = pytest.mark.timeout(300)
CHANGE = {
    "model": "smollm2-135m", "candidate": {"quantization": {"scheme": "kvquant", "bits": 3}}, "suite": "tiny",
    "policy": "p",
}  # fmt: skip
TEXTS = [f"Entry {n}: the level was {n * 37 % 91} at noon, {n % 7} below the mark. " * 6 for n in range(12)]


@pytest.fixture
def home(model: Model, tmp_path: Path) -> Path:
    """A data directory whose bundled model is the small one."""
    (tmp_path / "models").mkdir()
    bundled_model.directory(tmp_path).symlink_to(model.source)
    (bundled_model.directory(tmp_path) / bundled_model.FINISHED).touch()
    return tmp_path


def calibrated_by_command(home: Path) -> subprocess.CompletedProcess[str]:
    texts = home / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    words = ["calibrate", "smollm2-135m", "--bits", "3", "--texts", str(texts)]
    environment = os.environ | {"GATEKEEPER_HOME": str(home)}
    environment.pop("DATABASE_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "gatekeeper.cli", *words],
        check=False, env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip


def planned(home: Path) -> ArmPlan:
    return make_plan(
        Change.model_validate(CHANGE), model=bundled_model.bundled_model(home), suite=Suite.model_validate(SUITE),
        policy=Policy.model_validate(POLICY), device="cpu", allowed_arguments=frozenset(),
        calibrations=list_calibrations(home),
    ).candidate  # fmt: skip


def test_what_one_command_calibrates_an_engine_runs_by(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = calibrated_by_command(home)
    assert made.returncode == 0, made.stderr
    (known,) = list_calibrations(home)
    assert known.id in made.stdout

    plan = planned(home)
    monkeypatch.setenv("GATEKEEPER_HOME", str(home))
    body = {
        "model": plan.model.name, "prompt": list(range(2, 90)), "max_tokens": 2, "logprobs": 1, "temperature": 0.0,
        "vllm_xargs": {"forced_token_ids": [5, 7]}, "return_tokens_as_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    with launch(
        choose(plan), plan, run_id=uuid.uuid4().hex, log=home / "engine.log", gpu=None, start_seconds=120,
        stall_seconds=60, check=lambda: None,
    ) as server:  # fmt: skip
        seen = compare(plan, server.effective)
        answer: Any = server.post("/v1/completions", body)
    assert mismatches(seen) == ()
    agreeing = {row.setting: row.effective for row in seen if row.agrees}
    assert agreeing["quantization.calibration"] == known.id
    assert {"stored_type", "kv_bytes_per_token"} <= agreeing.keys()
    scored = answer["choices"][0]["logprobs"]
    assert scored["tokens"] == ["token_id:5", "token_id:7"]
    assert all(-50 < logprob < 0 for logprob in scored["token_logprobs"])

    options = argparse.Namespace(
        name="smollm2-135m", source=plan.model.source, revision=None, bits=3, outlier_fraction=0.01
    )
    calibrate.calibrate(options, TEXTS, home, "cpu")
    assert f"calibration {known.id} is there already" in capsys.readouterr().out
    calibrate.calibrate(options, TEXTS[1:], home, "cpu")
    assert [each.id for each in list_calibrations(home)][1] == known.id
    assert planned(home).config != plan.config
