"""What one launch of the engine really produced, kept in a file: every result with the second at which it came."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.measurement import EffectiveConfig, Measurement, Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What a probe stored in one call, and when: `seconds` since the engine was ready."""

    seconds: float
    measurements: tuple[Measurement, ...] = ()
    traces: tuple[TokenTrace, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """One launch from start to end. `start_seconds`: until ready; `suite_seconds`: from there to the suite's end."""

    name: str
    engine: EngineInfo
    effective: EffectiveConfig
    start_seconds: float
    suite_seconds: float
    stored: tuple[Stored, ...]

    def arm(self, role: Role, plan: ArmPlan) -> ArmRecord:
        """As the judge sees it."""
        return ArmRecord(
            role=role, plan=plan, engine=self.engine, effective=self.effective,
            measurements=tuple(row for part in self.stored for row in part.measurements),
            traces=tuple(trace for part in self.stored for trace in part.traces),
            complete=True,
        )  # fmt: skip


_FORMAT: Final = TypeAdapter(Recording)


def write_recording(path: Path, recording: Recording) -> None:
    """Gzipped JSON, complete or not there at all; the same recording gives the same bytes."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(gzip.compress(_FORMAT.dump_json(recording), mtime=0))
    draft.rename(path)


def read_recording(path: Path) -> Recording:
    """Raises pydantic's ValidationError if it is not a recording."""
    return _FORMAT.validate_json(gzip.decompress(path.read_bytes()))


def path_of(folder: Path, name: str) -> Path:
    """The file of a launch."""
    return folder / f"{name}.json.gz"


def read_recordings(folder: Path, names: Sequence[str]) -> list[Recording]:
    """Those of the names that are there, in this order."""
    paths = [path_of(folder, name) for name in names]
    return [read_recording(path) for path in paths if path.exists()]
