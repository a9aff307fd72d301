"""Where calibrations are kept: one safetensors file each, `calibrations/<id>.safetensors` in the data directory.

What identifies a calibration is in the file's own metadata; its header is JSON behind eight bytes of length, so reading
that needs no library and none of the figures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from gatekeeper.domain.calibration import Calibration
from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.files import open_file

METADATA: Final = "calibration"
HEADER_LIMIT_BYTES: Final = 1_000_000


def directory(root: Path) -> Path:
    """The folder in a data directory."""
    return root / "calibrations"


def path_of(root: Path, calibration_id: str) -> Path:
    """Where a calibration is, or will be."""
    return directory(root) / f"{calibration_id}.safetensors"


def list_calibrations(root: Path) -> tuple[Calibration, ...]:
    """All of this version's, the one that was made or asked for last first."""
    dated = []
    for path in directory(root).glob("*.safetensors"):
        found = read_calibration(path)
        if found is not None and path.stem == found.id:
            dated.append((path.stat().st_mtime_ns, path.name, found))
    return tuple(found for *_, found in sorted(dated, key=lambda entry: entry[:2], reverse=True))


def read_calibration(path: Path) -> Calibration | None:
    """What identifies the calibration in a file; None for a file that is none, or of another version."""
    try:
        with open_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= HEADER_LIMIT_BYTES else {}
        return Calibration.model_validate_json(header["__metadata__"][METADATA])
    except (UnreadableInput, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
