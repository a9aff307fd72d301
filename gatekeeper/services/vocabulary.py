"""The texts of token ids, from a model's own `tokenizer.json`, where the service can read it.

A byte-level vocabulary writes every byte as one printable character: those of Latin-1 that print stand for themselves,
the others are counted up from U+0100 (Radford et al. 2019, GPT-2's encoder). A SentencePiece one writes a space as
U+2581 and a lone byte as `<0xNN>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

FILE: Final = "tokenizer.json"
MOST_BYTES: Final = 64 * 2**20
SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"


def token_texts(source: str) -> Mapping[int, str]:
    """Id -> text of a registered model's tokens; empty where its directory is elsewhere or says nothing of them."""
    path = Path(source) / FILE
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns) if stat.st_size <= MOST_BYTES else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@lru_cache(maxsize=4)
def _read(path: Path, _written_at: int) -> Mapping[int, str]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    pieces = (
        vocabulary.items() if isinstance(vocabulary, dict) else ((v[0], i) for i, v in enumerate(vocabulary))
    )
    write = _from_bytes if "ByteLevel" in json.dumps(document.get("decoder")) else _from_pieces
    texts = {int(token): write(piece) for piece, token in pieces}
    return texts | {int(token["id"]): str(token["content"]) for token in document.get("added_tokens") or ()}


def _from_pieces(piece: str) -> str:
    if len(piece) == 6 and piece.startswith("<0x"):
        return bytes([int(piece[3:5], 16)]).decode("utf-8", errors="replace")
    return piece.replace(SPACE, " ")


def _from_bytes(piece: str) -> str:
    """A token may end inside a character; what is left of it reads as U+FFFD."""
    return bytes(_BYTES[letter] for letter in piece if letter in _BYTES).decode("utf-8", errors="replace")


def _byte_letters() -> dict[str, int]:
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES: Final = _byte_letters()
