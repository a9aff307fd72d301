"""The KV calculator."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gatekeeper.cli import main
from gatekeeper.web import figures
from gatekeeper.web.calculator import MemoryLine, MemoryTable, calculator
from gatekeeper.web.rendering import render
from tests.unit.web import samples

LLAMA_70B = {"layers": "80", "attention_heads": "64", "kv_heads": "8", "head_dim": "128"}


def line(scheme: str, **query: str) -> MemoryLine:
    return next(line for line in table(**query).lines if line.scheme == scheme)


def table(**query: str) -> MemoryTable:
    page = calculator(query, [samples.MODEL])
    assert page.table is not None, page.problem
    return page.table


@pytest.mark.parametrize(
    ("scheme", "shape", "context", "per_token", "size"),
    [
        ("none", {}, "32768", "131,072 bytes", "4.00 GiB"),
        ("none", {}, "131072", "131,072 bytes", "16.00 GiB"),
        ("none", LLAMA_70B | {"kv_heads": "64"}, "32768", "2,621,440 bytes", "80.00 GiB"),
        ("none", LLAMA_70B, "131072", "327,680 bytes", "40.00 GiB"),
        ("fp8_e4m3", LLAMA_70B, "32768", "163,840 bytes", "5.00 GiB"),
    ],
)
def test_it_reproduces_the_reference_table(
    scheme: str, shape: dict[str, str], context: str, per_token: str, size: str
) -> None:
    found = line(scheme, context=context, **shape)
    assert (found.per_token, found.sequence) == (per_token, size)


def test_a_registered_model_brings_its_shape() -> None:
    lines = table(model=samples.MODEL.name, context="1024").lines
    assert lines[0].per_token == "23,040 bytes"
    assert {"kivi-2", "kvquant-3", "fp8_e5m2"} <= {found.scheme for found in lines}


def test_the_page_says_what_the_command_says() -> None:
    load = {
        "context": "1000", "decode_tokens": "100", "concurrency": "64", "block_size": "16", "devices": "2",
        "device": "l4-24gb", "weights_gib": "15", "eviction": "{policy: snapkv, evicted_fraction: 0.5}",
    }  # fmt: skip
    options = [word for key, value in load.items() for word in (f"--{key.replace('_', '-')}", value)]
    shape = "{layers: 32, attention_heads: 32, kv_heads: 8, head_dim: 128, max_context: 2048}"
    scheme = "{scheme: kivi, bits: 2}"
    words = ["memory", "--shape", shape, "--scheme", scheme, "--format", "json", *options]
    [said] = json.loads(CliRunner().invoke(main, words, catch_exceptions=False).output).values()
    found = line("kivi-2", **load)
    assert found == MemoryLine(
        scheme="kivi-2",
        per_token=f"{said['bytes_per_token']:,.0f} bytes",
        kept="550",
        sequence=figures.size(said["bytes_per_sequence"]),
        all_sequences=figures.size(said["total_bytes"]),
        against_16_bit=f"{said['ratio']:.2f}\N{MULTIPLICATION SIGN}",
        fit=f"{said['max_concurrency']:,}",
    )
    assert table(**load).pool == figures.size(said["pool_bytes"])
    assert set(said["notes"]) <= set(table(**load).notes)


def test_a_window_of_the_policy_and_recent_tokens_in_full_precision_count() -> None:
    assert line("none", eviction="{policy: sliding_window, window: 1024}").sequence == "128.0 MiB"
    assert line("kivi-2", context="127", eviction="none").sequence == "15.9 MiB"  # as in 16 bits


def test_a_device_holds_whole_sequences_and_says_if_they_are_too_few() -> None:
    load = {"memory_gib": "15", "gpu_memory_utilization": "1"}
    assert line("none", **load).fit == "3"
    assert line("none", concurrency="4", **load).fit == "3 (too few)"
    assert line("none").fit == ""


def test_the_page_shows_the_device_only_where_one_is_named() -> None:
    for query, is_shown in (({}, False), ({"device": "l4-24gb"}, True)):
        html = bytes(render("memory.html", page=calculator(query, [samples.MODEL])).body).decode()
        assert ("Fit at once" in html) is is_shown


@pytest.mark.parametrize(
    "query",
    [
        {"context": "0"},
        {"layers": "many"},
        {"concurrency": "9" * 12},
        {"model": "gone"},
        {"device": "abacus"},
        {"memory_gib": "nan"},
        {"eviction": "{policy: gone}"},
        {"decode_tokens": "32768"},
    ],
)
def test_what_cannot_be_is_named(query: dict[str, str]) -> None:
    page = calculator(query, [samples.MODEL])
    assert next(iter(query)) in page.problem
    assert page.table is None


def test_an_eviction_that_cannot_be_read_is_refused() -> None:
    page = calculator({"eviction": "{policy: ["}, [])
    assert page.problem
    assert page.table is None
