"""The account that vLLM's worker gives of its cache, against its own loaders and stand-ins for its layers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns
from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs_by_fqcns

from workers.engines.self_report import SelfReport
from workers.engines.vllm import SELF_REPORT_CLASS
from workers.engines.vllm_effective import SELF_REPORT, read_effective

BLOCKS, BLOCK_SIZE, HEADS, HEAD_DIM = 4, 16, 2, 8


def layer(
    *, dtype: str = "fp8_e4m3", cache: torch.Tensor | None = None, window: int | None = None,
    k: Any = 1.0, v: Any = 1.0, host: float | None = None,
) -> SimpleNamespace:  # fmt: skip
    """An attention layer as vLLM leaves it after loading: scales as tensors and as numbers, a bound cache."""
    stored = torch.uint8 if dtype.startswith("fp8") else torch.bfloat16
    keys = torch.as_tensor(k, dtype=torch.float32)
    return SimpleNamespace(
        kv_cache_dtype=dtype, sliding_window=window, _k_scale=keys, _v_scale=torch.as_tensor(v, dtype=torch.float32),
        _k_scale_float=float(keys.max()) if host is None else host, _v_scale_float=float(v) if host is None else host,
        kv_cache=torch.zeros(2, BLOCKS, BLOCK_SIZE, HEADS, HEAD_DIM, dtype=stored) if cache is None else cache,
        attn_backend=SimpleNamespace(get_name=lambda: "CPU_ATTN"),
    )  # fmt: skip


def config_of(*layers: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(
        compilation_config=SimpleNamespace(
            static_forward_context={f"layers.{i}.attn": one for i, one in enumerate(layers)}
        ),
        model_config=SimpleNamespace(dtype=torch.bfloat16, seed=0, hf_config=object()),
        scheduler_config=SimpleNamespace(max_num_seqs=12, enable_chunked_prefill=True),
        cache_config=SimpleNamespace(kv_offloading_size=None),
    )


def reported(capsys: pytest.CaptureFixture[str], *layers: SimpleNamespace) -> str:
    """What the worker's log would hold."""
    SelfReport(config_of(*layers), "device", False).update_state(None)
    return capsys.readouterr().out


def test_both_of_vllms_loaders_accept_the_class() -> None:
    assert _load_logitsprocs_by_fqcns([SELF_REPORT_CLASS]) == [SelfReport]
    assert _load_v2_logitsprocs_by_fqcns([SELF_REPORT_CLASS]) == [SelfReport]


def test_it_reports_once_when_the_cache_is_there_and_changes_no_logits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = config_of(layer(cache=torch.tensor([])))
    processor = SelfReport(config, "device", False)
    processor.update_state(None)
    assert capsys.readouterr().out == ""
    config.compilation_config.static_forward_context["layers.0.attn"] = layer()
    processor.update_state(None)
    processor.update_state(None)
    assert capsys.readouterr().out.count(SELF_REPORT) == 1
    logits = torch.zeros(1, 3)
    assert processor.apply(logits) is logits
    assert processor.is_argmax_invariant()


def test_the_newer_runner_makes_it_report_when_a_request_enters(capsys: pytest.CaptureFixture[str]) -> None:
    processor = SelfReport(config_of(layer()), SimpleNamespace())
    assert processor.add_request(0, SamplingParams()) is False
    assert SELF_REPORT in capsys.readouterr().out


def test_types_memory_windows_and_scales_come_from_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    log = reported(
        capsys, layer(k=0.05, v=0.02), layer(k=[0.25, 0.5], v=0.125), layer(dtype="auto", window=64)
    )
    seen = read_effective("", {}, log, arguments=["attention-backend", "seed", "odd"])
    elements = 2 * BLOCKS * BLOCK_SIZE * HEADS * HEAD_DIM
    assert seen.kv_tensor_bytes == elements * (1 + 1 + 2)
    assert (seen.stored_types, seen.windows) == ({"uint8": 2, "bfloat16": 1}, {"none": 2, "64": 1})
    assert (seen.smallest_scale, seen.largest_scale) == (pytest.approx(0.02), pytest.approx(0.5))
    assert (seen.unit_scale_layers, seen.scaled_layers) == (0, 2)
    assert (seen.max_num_seqs, seen.chunked_prefill, seen.offload_gib) == (12, True, None)
    assert seen.arguments == {"attention_backend": "CPU_ATTN", "seed": "0"}
    assert (seen.sixteen_bit_layers, seen.evidence["sixteen_bit_layers"]) == ([2], "measured")
    assert seen.evidence["stored_types"] == seen.evidence["attention_backend"] == "measured"
    assert seen.evidence["max_num_seqs"] == "reported"


def test_a_layer_counts_as_unscaled_if_the_device_or_the_host_has_only_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stale = layer(k=0.05, v=0.02, host=1.0)
    seen = read_effective("", {}, reported(capsys, layer(), stale, layer(k=0.05, v=0.02)))
    assert (seen.unit_scale_layers, seen.scaled_layers) == (2, 1)


def test_layers_that_share_memory_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    first = layer()
    seen = read_effective("", {}, reported(capsys, first, layer(cache=first.kv_cache)))
    assert seen.kv_tensor_bytes == first.kv_cache.numel()


def test_what_it_does_not_understand_is_said_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    SelfReport(SimpleNamespace(), "device", False).update_state(None)
    out = capsys.readouterr().out
    assert "error" in json.loads(out.removeprefix(SELF_REPORT))
    assert read_effective("", {}, out).stored_types == {}
