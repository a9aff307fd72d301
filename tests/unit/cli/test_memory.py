"""`gatekeeper memory`, without a database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]
SHAPE = "{layers: 80, attention_heads: 64, kv_heads: 8, head_dim: 128, max_context: 131072}"


def test_the_common_schemes_of_the_bundled_model_are_compared(run: Run) -> None:
    result = run("memory", "smollm2-135m", "--context", 8192, "--concurrency", 64, "--device", "l4-24gb")
    assert result.exit_code == 0
    assert "8,192 tokens x 64" in result.stdout
    assert "on l4-24gb: memory 22.5 GiB, weights 256.6 MiB" in result.stdout
    assert "16-bit full cache  23,040       8,192        180.0 MiB     11.2 GiB  1.00x" in result.stdout
    assert "kivi-2" in result.stdout


def test_a_shape_by_hand_gives_the_published_bytes_as_json(run: Run) -> None:
    result = run("memory", "--shape", SHAPE, "--context", 32768, "--scheme", "fp8_e4m3", "--format", "json")
    account = json.loads(result.stdout)["fp8_e4m3"]
    assert (account["bytes_per_token"], account["total_bytes"]) == (163_840, 5 * 2**30)
    assert (account["pool_bytes"], account["max_concurrency"]) == (None, None)


def test_a_config_and_a_policy_are_read(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "hidden_size": 64,
                "max_position_embeddings": 128,
            }
        )
    )
    policy = "{policy: streaming_llm, sinks: 4, window: 28}"
    result = run("memory", "--config", config, "--context", 100, "--scheme", "none", "--eviction", policy)
    assert "streaming_llm(4, 28)  512          32           16.0 KiB" in result.stdout


def test_each_wrong_field_is_named_with_what_is_allowed(run: Run) -> None:
    result = run("memory", "--shape", SHAPE, "--context", 10, "--scheme", "fp9", "--device", "abacus")
    assert result.exit_code == 4
    assert "quantization.scheme: unknown 'fp9' (allowed: none, fp8_e4m3" in result.stderr
    assert "device: unknown 'abacus' (allowed: t4-16gb" in result.stderr
    nothing = run("memory", "--context", 10)
    assert "exactly one of model, shape and hf_config is needed" in nothing.stderr
