"""What one launch of the engine really produced, kept in a file: every result with the second at which it came.

    python benchmarks/recordings.py RAW benchmarks/recordings      # what record_arms.py wrote, made small

A raw recording holds token traces, a megabyte of them. A small one holds what judging makes of them: each document's
KL, NLL change and top-1 agreement, token by token, against the first launch of the baseline.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import TypeAdapter

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.fidelity import TokenDeltas, compare_traces
from gatekeeper.domain.measurement import EffectiveConfig, Measurement, Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo

REFERENCE: Final = "launch-01"
"""The launch that every other arm is held against."""

DIGITS: Final = 4
"""Decimals that are kept of nats and probabilities; what that does to a mean is far below its fourth decimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A document against the reference launch, per decoded token."""

    item_id: str
    batch: int
    kl: tuple[float, ...]
    nll: tuple[float, ...]
    agreement: tuple[int, ...]
    rank_shift: tuple[int, ...]

    @classmethod
    def between(cls, baseline: TokenTrace, candidate: TokenTrace) -> Document:
        """Computed as a gate does, then rounded."""
        deltas = compare_traces(baseline, candidate)
        return cls(
            item_id=candidate.item_id, batch=candidate.batch, kl=_rounded(deltas.kl), nll=_rounded(deltas.nll),
            agreement=tuple(int(value) for value in deltas.agreement),
            rank_shift=tuple(int(value) for value in deltas.rank_shift),
        )  # fmt: skip


def _rounded(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in values)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedTrace(TokenTrace):
    """Stands for a trace whose comparison is known already; `compared` in place of `compare_traces` reads it."""

    deltas: TokenDeltas

    @classmethod
    def of(cls, document: Document) -> ComparedTrace:
        """No token is left, only what they came to."""
        deltas = TokenDeltas(
            kl=np.array(document.kl), nll=np.array(document.nll), agreement=np.array(document.agreement, dtype=float),
            rank_shift=np.array(document.rank_shift, dtype=float),
        )  # fmt: skip
        return cls(
            suite="fidelity", mode="cold", item_id=document.item_id, cluster=document.item_id, batch=document.batch,
            token_ids=(), token_logprobs=(), top_ids=(), top_logprobs=(), deltas=deltas,
        )  # fmt: skip


def compared(_baseline: TokenTrace, candidate: TokenTrace) -> TokenDeltas:
    """What `compare_traces` gave when the candidate was recorded; the baseline has to be the reference launch."""
    assert isinstance(candidate, ComparedTrace)
    return candidate.deltas


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What a probe stored in one call, and when: `seconds` since the engine was ready."""

    seconds: float
    measurements: tuple[Measurement, ...] = ()
    traces: tuple[TokenTrace, ...] = ()
    documents: tuple[Document, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """One launch from start to end. `start_seconds`: until ready; `suite_seconds`: from there to the suite's end."""

    name: str
    engine: EngineInfo
    effective: EffectiveConfig
    start_seconds: float
    suite_seconds: float
    stored: tuple[Stored, ...] = field(repr=False)

    @property
    def documents(self) -> int:
        """How many documents were scored."""
        return sum(len(part.documents) for part in self.stored)

    def arm(self, role: Role, plan: ArmPlan) -> ArmRecord:
        """As the judge sees it, with nothing said of settings: `plan` is not what was emulated."""
        return ArmRecord(
            role=role, plan=plan, engine=self.engine,
            measurements=tuple(row for part in self.stored for row in part.measurements),
            traces=tuple(ComparedTrace.of(document) for part in self.stored for document in part.documents),
            complete=True,
        )  # fmt: skip

    def small(self, reference: Recording) -> Recording:
        """Documents in place of traces."""
        known = {trace.item_id: trace for part in reference.stored for trace in part.traces}
        parts = [
            Stored(
                seconds=part.seconds,
                measurements=tuple(
                    replace(row, value=round(row.value or 0.0, DIGITS)) for row in part.measurements
                ),
                documents=tuple(Document.between(known[trace.item_id], trace) for trace in part.traces),
            )
            for part in self.stored
        ]
        return replace(self, stored=tuple(parts))


_FORMAT: Final = TypeAdapter(Recording)


def write_recording(path: Path, recording: Recording) -> None:
    """Gzipped JSON, complete or not there at all; the same recording gives the same bytes."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(gzip.compress(_FORMAT.dump_json(recording, exclude_defaults=True), mtime=0))
    draft.rename(path)


def read_recording(path: Path) -> Recording:
    """Raises pydantic's ValidationError if it is not a recording."""
    return _FORMAT.validate_json(gzip.decompress(path.read_bytes()))


def path_of(folder: Path, name: str) -> Path:
    """The file of a launch."""
    return folder / f"{name}.json.gz"


def read_recordings(folder: Path, names: Sequence[str]) -> dict[str, Recording]:
    """Those of the names that are there, in this order."""
    paths = {name: path_of(folder, name) for name in names}
    return {name: read_recording(path) for name, path in paths.items() if path.exists()}


def main() -> None:
    """Make every raw recording of a folder small."""
    raw, small = (Path(argument) for argument in sys.argv[1:])
    small.mkdir(parents=True, exist_ok=True)
    reference = read_recording(path_of(raw, REFERENCE))
    for path in sorted(raw.glob("*.json.gz")):
        write_recording(small / path.name, read_recording(path).small(reference))


if __name__ == "__main__":
    main()
