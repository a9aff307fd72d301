"""Files that pages load. Their addresses carry a hash of the content, so browsers may keep them for good."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "static"
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    """One file."""

    url: str
    content: bytes
    media_type: str


def _load(path: Path) -> Asset:
    content = path.read_bytes()
    version = hashlib.sha256(content).hexdigest()[:12]
    return Asset(url=f"/static/{path.name}?v={version}", content=content, media_type=MEDIA_TYPES[path.suffix])


ASSETS: Final[Mapping[str, Asset]] = {
    path.name: _load(path) for path in sorted(FOLDER.iterdir()) if path.suffix in MEDIA_TYPES
}
"""Name -> file."""


def asset_url(name: str) -> str:
    """The address of a file, for templates."""
    return ASSETS[name].url
