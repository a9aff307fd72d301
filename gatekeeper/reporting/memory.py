"""Memory accounts for people at a terminal: one line per configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gatekeeper.domain.kv_account import MemoryAccount, MemoryQuestion
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.reporting.plan import shape_phrase, size
from gatekeeper.reporting.text import WIDTH, columns, wrapped


def render_memory(
    shape: ModelShape, question: MemoryQuestion, accounts: Mapping[str, MemoryAccount], *, shape_source: str
) -> str:
    """All accounts of one model and load, by the configuration's label. `shape_source`: where the shape comes from."""
    parts: list[Iterable[str]] = [_head(shape, question, accounts, shape_source), _table(question, accounts)]
    notes = dict.fromkeys(note for account in accounts.values() for note in account.notes)
    if notes:
        parts.append([line for note in notes for line in wrapped(f"- {note}")])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _head(
    shape: ModelShape, question: MemoryQuestion, accounts: Mapping[str, MemoryAccount], shape_source: str
) -> Iterator[str]:
    yield f"KV cache of {shape_phrase(shape)} ({shape_source})"
    yield f"{question.context:,} tokens x {question.concurrency}"
    account = next(iter(accounts.values()))
    if account.device_bytes is None:
        return
    weights = f", weights {size(account.weights_bytes)}" if account.weights_bytes else ""
    name = question.device or f"{question.memory_gib:g} GiB"
    count = f"{question.devices} x " if question.devices > 1 else ""
    yield f"on {count}{name}: memory {size(account.device_bytes)}{weights}, pool {size(account.pool_bytes or 0)}"


def _table(question: MemoryQuestion, accounts: Mapping[str, MemoryAccount]) -> list[str]:
    header = ["", "bytes/token", "tokens kept", "per sequence", f"x {question.concurrency}", "against 16 bit"]
    on_device = question.device_bytes is not None
    rows = [
        [label, *_figures(account), *(_fitting(account) if on_device else ())]
        for label, account in accounts.items()
    ]
    leave_room = all(len(label) <= WIDTH // 2 for label in accounts)
    whole = ("",) if leave_room else ()
    return columns([*header, *(("fit at once",) if on_device else ())], rows, whole=whole)


def _figures(account: MemoryAccount) -> Iterator[str]:
    yield f"{account.bytes_per_token:,.0f}"
    yield f"{account.tokens_kept:,}"
    yield size(account.bytes_per_sequence)
    yield size(account.total_bytes)
    yield f"{account.ratio:.2f}x"


def _fitting(account: MemoryAccount) -> Iterator[str]:
    yield f"{account.max_concurrency:,}{'' if account.fits else ' (too few)'}"
