"""Tables, the schema of reports, and a description that client generators can use."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from pyarrow import parquet
from sqlalchemy import select

from gatekeeper.services import history
from gatekeeper.storage.database import transaction
from gatekeeper.storage.tables import RunRow
from tests.e2e.stored_runs import StoredRuns, store_runs
from tests.integration.services.seeds import World

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "schema" / "report-1.json"
EXPORT = "/api/v1/export/deltas"


@pytest.fixture
def stored(world: World) -> StoredRuns:
    return store_runs(world.sessions, world.settings)


def test_all_pages_are_exported_and_every_report_meets_the_documented_schema(
    world: World, client: TestClient, stored: StoredRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_PAGE", 7)
    total = len(list(csv.DictReader(io.StringIO(client.get(EXPORT).text))))
    assert total > 7
    passed = client.get(
        EXPORT, params={"run_id": str(stored.passed), "format": "parquet", "metric": "decode_kl"}
    )
    assert passed.headers["Content-Type"] == "application/vnd.apache.parquet"
    table = parquet.read_table(io.BytesIO(passed.content))
    assert set(table.column("run_id").to_pylist()) == {str(stored.passed)}
    assert client.get(EXPORT, params={"format": "xlsx"}).status_code == 422
    assert client.get(EXPORT, params={"run_id": "0b9d7a0e-1111-4111-8111-111111111111"}).status_code == 404
    validator = Draft202012Validator(client.get("/api/v1/schema/report").json())
    with transaction(world.sessions) as session:
        reports = list(session.scalars(select(RunRow.report).where(RunRow.report.is_not(None))))
    assert len(reports) == 8
    for report in reports:
        validator.validate(report)
    validator.validate(client.get(f"/api/v1/runs/{stored.failed}").json())
    assert not validator.is_valid({"verdict": "SPLENDID", "sentence": ""})


def test_the_schema_is_the_documented_one(client: TestClient) -> None:
    """A key that is gone or means something else needs a new version; for new ones `gatekeeper schema report` again."""
    schema = client.get("/api/v1/schema/report").json()
    assert schema == json.loads(DOCUMENTED.read_text())
    Draft202012Validator.check_schema(schema)


def test_the_description_of_the_api_names_every_operation_once_with_its_answer(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    operations = [
        (method, operation)
        for methods in described["paths"].values()
        for method, operation in methods.items()
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
    for method, operation in operations:
        assert operation["tags"], operation
        assert any("content" in answer for code, answer in operation["responses"].items() if code < "3"), (
            operation
        )
        assert ("security" in operation) == (method != "get")
    references = set(json.dumps(described).split('"#/components/schemas/')[1:])
    missing = {entry.partition('"')[0] for entry in references} - described["components"]["schemas"].keys()
    assert missing == set()
