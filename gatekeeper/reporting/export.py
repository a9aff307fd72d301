"""Deltas as tables for other programs: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gatekeeper.domain.errors import FieldProblem, InvalidInput

COLUMNS: Final[Mapping[str, str]] = {
    "id": "int64", "run_id": "string", "created_at": "string", "model": "string", "scheme": "string",
    "eviction": "string", "label": "string", "metric": "string", "suite": "string", "mode": "string", "group": "string",
    "unit": "string", "n": "int64", "clusters": "int64", "baseline": "float64", "candidate": "float64",
    "estimate": "float64", "lower": "float64", "upper": "float64", "confidence": "float64", "harm_p": "float64",
    "lost": "int64", "gained": "int64", "kept": "float64", "kept_lower": "float64", "missing": "int64",
    "planned": "int64", "method": "string", "finding": "string", "severity": "string", "detail": "string",
}  # fmt: skip
"""Column -> Arrow type. Curves and single launches are left to the JSON."""

Row = Mapping[str, Any]


def csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    """CSV as RFC 4180 has it, a header and a line per delta; null is empty."""
    yield _line(COLUMNS)
    for row in rows:
        yield _line("" if row.get(name) is None else row[name] for name in COLUMNS)


def parquet_bytes(rows: Iterable[Row]) -> bytes:
    """The same as a Parquet file. Raises InvalidInput where pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        problem = "Parquet needs the package pyarrow, which is not installed here"
        raise InvalidInput([FieldProblem(field="format", problem=problem, allowed="csv")]) from error
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in COLUMNS.items()])
    plain = [{name: row.get(name) for name in COLUMNS} for row in rows]
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(plain, schema=schema), sink)
    return sink.getvalue()


def _line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
