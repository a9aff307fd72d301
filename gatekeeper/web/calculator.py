"""The KV calculator: what a cache takes under every scheme, for a registered model or a shape typed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.kv_config import Quantization
from gatekeeper.domain.kv_memory import GIB, ModelShape, kv_bytes_per_token, kv_pool_bytes
from gatekeeper.domain.plan import Model
from gatekeeper.web import figures, filters
from gatekeeper.web.filters import Choice

SHAPE: Final = {"layers": "32", "attention_heads": "32", "kv_heads": "8", "head_dim": "128"}
"""What a shape is typed in as, with a usual 7B-class model."""
LOAD: Final = {"context": "32768", "concurrency": "1", "pool_gib": "16"}
MOST: Final = 10**9
BITS: Final = (2, 3, 4)
_read: Final[TypeAdapter[Quantization]] = TypeAdapter(Quantization)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLine:
    """One scheme. `fit`: sequences of the full context that the pool holds."""

    scheme: str
    per_token: str
    of_16_bit: str
    sequence: str
    all_sequences: str
    fit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Calculator:
    """The form and, unless something in it is wrong, the table."""

    choice: Choice
    fields: tuple[tuple[str, str], ...]
    load: tuple[tuple[str, str], ...]
    lines: tuple[MemoryLine, ...]
    problem: str


def calculator(query: Mapping[str, str], models: list[Model]) -> Calculator:
    """The page for an address."""
    shapes = {model.name: model.shape for model in models if model.shape is not None}
    name = query.get("model", "").strip()
    given = {key: query.get(key, "").strip() or usual for key, usual in (SHAPE | LOAD).items()}
    lines: tuple[MemoryLine, ...] = ()
    problem = ""
    try:
        lines = tuple(_lines(_shape(name, shapes, given), given))
    except InvalidInput as error:
        problem = error.detail or str(error)
    return Calculator(
        choice=filters.choice("model", sorted(shapes), name),
        fields=tuple((key, given[key]) for key in SHAPE),
        load=tuple((key, given[key]) for key in LOAD),
        lines=lines,
        problem=problem,
    )


def _shape(name: str, known: Mapping[str, ModelShape], given: Mapping[str, str]) -> ModelShape:
    """Of the model, or as typed in."""
    if name in known:
        return known[name]
    if name:
        problem = FieldProblem(field="model", problem=f"unknown {name!r}", allowed=", ".join(known))
        raise InvalidInput([problem])
    typed = {key: _whole(key, given[key]) for key in SHAPE} | {
        "max_context": _whole("context", given["context"])
    }
    try:
        return ModelShape.model_validate(typed)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, ModelShape)) from error


def _lines(shape: ModelShape, given: Mapping[str, str]) -> Iterator[MemoryLine]:
    context, concurrency, pool = (_whole(key, given[key]) for key in LOAD)
    full = kv_bytes_per_token(shape, _read.validate_python({"scheme": "none"}))
    for label, quantization in _schemes():
        per_token = kv_bytes_per_token(shape, quantization)
        one = kv_pool_bytes(shape, quantization, context=context, concurrency=1)
        yield MemoryLine(
            scheme=label,
            per_token=f"{per_token:,.0f} bytes",
            of_16_bit=f"{100 * per_token / full:.0f}%",
            sequence=figures.size(one),
            all_sequences=figures.size(
                kv_pool_bytes(shape, quantization, context=context, concurrency=concurrency)
            ),
            fit=f"{int(pool * GIB // one):,}",
        )


def _schemes() -> Iterator[tuple[str, Quantization]]:
    """Every scheme with its usual parameters; one that has to be told its bits, with each number of bits."""
    for scheme in filters.SCHEMES:
        documents: list[dict[str, Any]] = [{"scheme": scheme}, *({"scheme": scheme, "bits": b} for b in BITS)]
        found = [(document, quantization) for document in documents if (quantization := _valid(document))]
        plain = [entry for entry in found if "bits" not in entry[0]]
        for document, quantization in plain or found:
            bits = document.get("bits")
            yield (f"{scheme}, {bits} bits" if bits else scheme), quantization


def _valid(document: dict[str, Any]) -> Quantization | None:
    try:
        return _read.validate_python(document)
    except ValidationError:
        return None


def _whole(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= MOST):
        raise InvalidInput([FieldProblem(field=field, problem=f"got {text!r:.40}", allowed=f"1 to {MOST:,}")])
    return int(text)
