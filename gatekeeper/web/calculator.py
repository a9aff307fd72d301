"""The KV calculator: the memory account of every scheme, for a registered model or a shape typed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gatekeeper.domain.accelerators import MEMORY_MIB
from gatekeeper.domain.base import LARGEST
from gatekeeper.domain.documents import parse_document
from gatekeeper.domain.errors import FieldProblem, GatekeeperError, InvalidInput
from gatekeeper.domain.kv_account import MemoryAccount, MemoryQuestion, memory_account
from gatekeeper.domain.kv_config import Quantization, scheme_name
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model
from gatekeeper.services.memory import known_shape, read_request
from gatekeeper.web import figures, filters
from gatekeeper.web.filters import Choice

SHAPE: Final = {"layers": "32", "attention_heads": "32", "kv_heads": "8", "head_dim": "128"}
"""What a shape is typed in as, with a usual 7B-class model."""
LOAD: Final = {
    "context": "32768",
    "decode_tokens": "",
    "concurrency": "1",
    "block_size": "",
    "eviction": "{policy: none}",
}
DEVICE: Final = {
    "memory_gib": "",
    "devices": "",
    "gpu_memory_utilization": "",
    "weights_gib": "",
    "overhead_gib": "",
}
BITS: Final = (2, 3, 4)
_read: Final[TypeAdapter[Quantization]] = TypeAdapter(Quantization)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLine:
    """One scheme. `fit`: whole sequences that the device holds at once; empty if none is named."""

    scheme: str
    per_token: str
    kept: str
    sequence: str
    all_sequences: str
    against_16_bit: str
    fit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTable:
    """The answer. `pool`: what the device leaves for the cache; empty if none is named."""

    lines: tuple[MemoryLine, ...]
    pool: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calculator:
    """The form and, unless something in it is wrong, the table."""

    model: Choice
    device: Choice
    shape: tuple[tuple[str, str], ...]
    load: tuple[tuple[str, str], ...]
    pool: tuple[tuple[str, str], ...]
    table: MemoryTable | None
    problem: str


def calculator(query: Mapping[str, str], models: list[Model]) -> Calculator:
    """The page for an address."""
    known = {model.name: model for model in models if model.shape is not None}
    given = {key: query.get(key, "").strip() or usual for key, usual in (SHAPE | LOAD | DEVICE).items()}
    chosen = {key: query.get(key, "").strip() for key in ("model", "device")}
    table, problem = None, ""
    try:
        table = _table(*_question(given | chosen, known))
    except GatekeeperError as error:
        problem = error.detail or str(error)
    return Calculator(
        model=filters.choice("model", sorted(known), chosen["model"]),
        device=filters.choice("device", list(MEMORY_MIB), chosen["device"]),
        shape=tuple((key, given[key]) for key in SHAPE),
        load=tuple((key, given[key]) for key in LOAD),
        pool=tuple((key, given[key]) for key in DEVICE),
        table=table,
        problem=problem,
    )


def _question(given: Mapping[str, str], known: Mapping[str, Model]) -> tuple[ModelShape, MemoryQuestion]:
    """The shape, and the question in 16 bits. Raises InvalidInput and UnreadableInput."""
    name, eviction = given["model"], given["eviction"]
    if name and name not in known:
        raise InvalidInput(
            [FieldProblem(field="model", problem=f"unknown {name!r}", allowed=", ".join(known))]
        )
    typed = {key: _value(given[key]) for key in SHAPE}
    subject = (
        {"model": name} if name else {"shape": typed | {"max_context": LARGEST}}
    )  # no figure depends on it
    numbers = {
        key: _value(given[key])
        for key in (*LOAD, *DEVICE, "device")
        if given[key] and key != "eviction"
    }  # fmt: skip
    policy = parse_document(eviction) if eviction.startswith("{") else {"policy": eviction}
    request = read_request({**subject, **numbers, "eviction": policy})
    return request.shape or known_shape(known[name]), request


def _table(shape: ModelShape, question: MemoryQuestion) -> MemoryTable:
    accounts = {
        scheme_name(scheme): memory_account(shape, question.model_copy(update={"quantization": scheme}))
        for scheme in _schemes()
    }
    pool = next(iter(accounts.values())).pool_bytes
    return MemoryTable(
        lines=tuple(_line(label, account) for label, account in accounts.items()),
        pool="" if pool is None else figures.size(pool),
        notes=tuple(dict.fromkeys(note for account in accounts.values() for note in account.notes)),
    )


def _line(label: str, account: MemoryAccount) -> MemoryLine:
    too_few = "" if account.fits else " (too few)"
    return MemoryLine(
        scheme=label,
        per_token=f"{account.bytes_per_token:,.0f} bytes",
        kept=f"{account.tokens_kept:,}",
        sequence=figures.size(account.bytes_per_sequence),
        all_sequences=figures.size(account.total_bytes),
        against_16_bit=f"{account.ratio:.2f}{figures.TIMES}",
        fit="" if account.max_concurrency is None else f"{account.max_concurrency:,}{too_few}",
    )


def _schemes() -> Iterator[Quantization]:
    """Every scheme with its usual parameters; one that has to be told its bits, with each number of bits."""
    for scheme in filters.SCHEMES:
        plain = _valid({"scheme": scheme})
        yield from (
            [plain] if plain else filter(None, (_valid({"scheme": scheme, "bits": bits}) for bits in BITS))
        )


def _valid(document: dict[str, Any]) -> Quantization | None:
    try:
        return _read.validate_python(document)
    except ValidationError:
        return None


def _value(text: str) -> int | float | str:
    """A number if it is one; else the text, to be refused by its field or to be a device's name."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
