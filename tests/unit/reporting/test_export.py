"""Deltas as tables."""

from __future__ import annotations

import csv
import io

import pytest
from pyarrow import parquet

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.reporting.export import COLUMNS, csv_lines, parquet_bytes
from gatekeeper.services.views import DeltaView
from tests.unit.reporting.samples import ACCURACY, KL

ROWS = [
    KL.model_dump(mode="json") | {"id": 2, "label": 'fp8, "harsh"\nmode', "curve": [1], "finding": "Passed"},
    ACCURACY.model_dump(mode="json") | {"id": 1, "label": "ü"},
]


def test_every_column_is_a_field_of_a_delta() -> None:
    assert COLUMNS.keys() <= DeltaView.model_fields.keys()
    assert DeltaView.model_fields.keys() - COLUMNS.keys() == {
        "curve", "context_curve", "launches", "more_items", "detectable", "chance_to_decide",
    }  # fmt: skip


def test_csv_keeps_what_the_text_holds_and_null_is_empty() -> None:
    first, second = csv.DictReader(io.StringIO("".join(csv_lines(ROWS)), newline=""))
    assert (first["label"], first["estimate"], first["baseline"]) == ('fp8, "harsh"\nmode', "0.0271", "")
    assert (second["label"], second["baseline"], second["finding"]) == ("ü", "0.675", "")


def test_parquet_has_types_and_nulls() -> None:
    table = parquet.read_table(io.BytesIO(parquet_bytes(ROWS)))
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("estimate").type) == "double"
    assert table.column("baseline").to_pylist() == [None, 0.675]
    assert parquet.read_table(io.BytesIO(parquet_bytes([]))).num_rows == 0


def test_without_pyarrow_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pyarrow.*allowed: csv"):
        parquet_bytes(ROWS)
