"""The KV calculator."""

from __future__ import annotations

import pytest

from gatekeeper.web.calculator import MemoryLine, calculator
from tests.unit.web import samples

LLAMA_70B = {"layers": "80", "attention_heads": "64", "kv_heads": "8", "head_dim": "128"}


def line(scheme: str, **query: str) -> MemoryLine:
    return next(line for line in calculator(query, []).lines if line.scheme == scheme)


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
    page = calculator({"model": samples.MODEL.name, "context": "1024"}, [samples.MODEL])
    assert page.lines[0].per_token == "23,040 bytes"
    assert {"kivi, 2 bits", "kvquant, 3 bits", "fp8_e5m2"} <= {found.scheme for found in page.lines}


def test_the_pool_holds_whole_sequences() -> None:
    assert line("none", context="32768", pool_gib="15").fit == "3"


@pytest.mark.parametrize(
    "query", [{"context": "0"}, {"layers": "many"}, {"concurrency": "9" * 12}, {"model": "gone"}]
)
def test_what_cannot_be_is_named(query: dict[str, str]) -> None:
    page = calculator(query, [samples.MODEL])
    assert next(iter(query)) in page.problem
    assert page.lines == ()
