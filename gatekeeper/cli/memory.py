"""`gatekeeper memory`: what a KV cache takes, and how many sequences fit. Computed; starts nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from gatekeeper.cli.environment import load_settings
from gatekeeper.cli.known_models import find_model
from gatekeeper.cli.models import read_config
from gatekeeper.domain.accelerators import MEMORY_MIB
from gatekeeper.domain.documents import parse_document
from gatekeeper.domain.kv_account import MemoryRequest, memory_account
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.reporting.memory import render_memory
from gatekeeper.services.memory import known_shape, read_request
from gatekeeper.settings import Settings

COMMON: Final = (
    "none",
    "fp8_e4m3",
    "int8",
    "int4",
    "{scheme: kivi, bits: 4}",
    "{scheme: kivi, bits: 2}",
    "{scheme: kvquant, bits: 3}",
)
"""The schemes that are compared when none is named."""


@click.command()
@click.argument("model", required=False)
@click.option(
    "--config", type=click.Path(path_type=Path), help="A Hugging Face config.json in place of MODEL."
)
@click.option("--shape", metavar="YAML", help="A shape by hand in place of MODEL, see the example.")
@click.option("--scheme", "schemes", multiple=True, metavar="NAME|YAML", help="May be given several times.")
@click.option("--eviction", metavar="YAML", default="{policy: none}", show_default=True)
@click.option("--context", type=int, required=True, help="Tokens of a whole sequence.")
@click.option("--decode-tokens", type=int, help="How many of them are decoded, for prompt compressors.")
@click.option("--concurrency", type=int, help="Sequences at once.")
@click.option("--block-size", type=int, help="Tokens of a cache block.")
@click.option("--device", help=f"One of {', '.join(MEMORY_MIB)}.")
@click.option("--memory-gib", type=float, help="The memory of a device that is not in this list.")
@click.option("--devices", type=int, help="Devices that share the model (tensor parallelism).")
@click.option("--gpu-memory-utilization", type=float)
@click.option("--weights-gib", type=float, help="In place of two bytes per parameter.")
@click.option("--overhead-gib", type=float, help="Activations, graphs and the like, per device.")
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def memory(
    *,
    model: str | None,
    config: Path | None,
    shape: str | None,
    schemes: tuple[str, ...],
    eviction: str,
    format_name: str,
    **load: Any,
) -> None:
    """Show what a KV cache takes per token and per sequence, and how many sequences fit on a device.

    MODEL is a registered model. Nothing is started.

    \b
    gatekeeper memory smollm2-135m --context 8192 --concurrency 64 --device l4-24gb
    gatekeeper memory --context 32768 --device h100-80gb --weights-gib 15 --scheme fp8_e4m3 \\
        --shape '{layers: 32, attention_heads: 32, kv_heads: 8, head_dim: 128, max_context: 131072}'
    """
    settings = load_settings()
    subject = _subject(model, config, shape)
    asked = {key: value for key, value in load.items() if value is not None}
    requests = [
        read_request(
            {**subject, **asked}
            | {"quantization": _mapping(scheme, "scheme"), "eviction": _mapping(eviction, "policy")}
        )
        for scheme in schemes or COMMON
    ]
    geometry, where = _geometry(requests[0], settings)
    accounts = {
        KVConfig(quantization=request.quantization, eviction=request.eviction).label: memory_account(
            geometry, request
        )
        for request in requests
    }
    if format_name == "json":
        click.echo(json.dumps({label: account.model_dump() for label, account in accounts.items()}, indent=2))
    else:
        click.echo(render_memory(geometry, requests[0], accounts, shape_source=where), nl=False)


def _subject(model: str | None, config: Path | None, shape: str | None) -> dict[str, Any]:
    """The fields of a request that say which model it is about."""
    given: dict[str, Any] = {}
    if model is not None:
        given["model"] = model
    if config is not None:
        given["hf_config"] = read_config(config)
    if shape is not None:
        given["shape"] = parse_document(shape)
    return given


def _mapping(text: str, key: str) -> dict[str, Any]:
    """`fp8_e4m3`, or a mapping such as `{scheme: kivi, bits: 2}`."""
    return parse_document(text) if text.lstrip().startswith("{") else {key: text}


def _geometry(request: MemoryRequest, settings: Settings) -> tuple[ModelShape, str]:
    """The shape that a request is about, and where it comes from."""
    if request.shape is not None:
        return request.shape, "shape given"
    if request.hf_config is not None:
        return ModelShape.from_hf_config(request.hf_config), "shape from config.json"
    found, where = find_model(request.model or "", settings)
    return known_shape(found), where
