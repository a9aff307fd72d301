"""What the reference engine says of its cache, and how each of it is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gatekeeper.domain.kv_config import KVConfig
from workers.engines.reference.engine import Reference
from workers.engines.reference.meter import trial_lengths
from workers.engines.vllm_effective import SELF_REPORT

ACCOUNT = {
    "engine": "reference", "cache_dtype": "fp8_e4m3", "eviction": {"policy": "h2o", "budget_tokens": 50},
    "max_model_len": 4096, "model_dtype": "float32", "max_num_batched_tokens": None, "seen": 100,
    "held_by_layer": [50, 50], "nbytes": 6400, "bytes_of_one_more": 128.0, "stored_types": {"float8_e4m3fn": 2},
    "sixteen_bit_layers": [],
}  # fmt: skip
METRICS = (
    'vllm:cache_config_info{cache_dtype="fp8_e4m3",block_size="1",kv_cache_memory_bytes="1024",'
    'kv_cache_size_tokens="16",enable_prefix_caching="True"} 1\n'
)


def test_what_repeats_the_configuration_is_no_measurement() -> None:
    log = SELF_REPORT + json.dumps(ACCOUNT)
    models = {"data": [{"max_model_len": 4096}]}
    effective = Reference().effective(METRICS, models, log)
    measured = {name for name, kind in effective.evidence.items() if kind == "measured"}
    assert measured == {
        "seen_tokens", "kept_tokens", "kept_by_layer", "stored_types", "sixteen_bit_layers", "kv_tensor_bytes",
        "kv_cache_tokens",
    }  # fmt: skip
    assert effective.prefix_caching is True
    assert effective.evidence["cache_dtype"] == effective.evidence["eviction"] == "reported"


@pytest.mark.parametrize(
    ("eviction", "longest", "tokens"),
    [
        ({"policy": "none"}, 512, 512),
        ({"policy": "none"}, 8192, 1024),
        ({"policy": "topk", "k": 8}, 8192, 1024),
        ({"policy": "h2o", "budget_tokens": 100}, 8192, 1024),
        ({"policy": "h2o", "evicted_fraction": 0.1}, 8192, 1024),
        ({"policy": "sliding_window", "window": 2048}, 8192, 3072),
        ({"policy": "tova", "budget_tokens": 2048}, 2100, 2100),
        ({"policy": "tova", "budget_tokens": 4096}, 4096, 1024),
    ],
)
def test_the_cache_is_tried_on_a_sequence_that_something_is_evicted_from(
    eviction: dict[str, Any], longest: int, tokens: int
) -> None:
    config = KVConfig.model_validate({"eviction": eviction})
    assert trial_lengths(config.eviction, longest=longest, layers=2) == (tokens, 0)
