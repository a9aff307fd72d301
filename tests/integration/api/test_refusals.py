"""Bad input, and how the answer names it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from gatekeeper.app import create_app
from tests.integration.services.seeds import World, a_change, make_settings

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nmodel: *c\n"


def candidate(**axes: object) -> dict[str, Any]:
    """A change with this candidate."""
    return a_change(candidate=axes)


@pytest.mark.parametrize(
    ("change", "field", "allowed"),
    [
        (a_change(colour="red"), "colour", "model, engine, baseline, candidate"),
        (
            candidate(quantization={"scheme": "fp8_e4m3", "bits": 8}),
            "candidate.quantization.bits",
            "scheme, scales",
        ),
        (candidate(reuse={"prefix": True}), "candidate.reuse.prefix", "prefix_caching, offload_gib"),
        (candidate(evict={}), "candidate.evict", "eviction"),
        (candidate(quantization={"scheme": "fp9"}), "candidate.quantization.scheme", "fp8_e4m3"),
        (
            candidate(quantization={"scheme": "fp8_e4m3", "scales": "x"}),
            "candidate.quantization.scales",
            "unit",
        ),
        (
            candidate(eviction={"policy": "sliding_window", "window": -1}),
            "candidate.eviction.window",
            "greater",
        ),
        (candidate(eviction={"policy": "lru"}), "candidate.eviction.policy", "h2o"),
        (candidate(quantization={"scheme": "nvfp4"}), "candidate.quantization.scheme", "fp8_e5m2"),
        (
            candidate(engine_args={"trust-remote-code": True}),
            "candidate.engine_args.trust-remote-code",
            "dtype",
        ),
        (candidate(scheduling={"max_num_seqs": "4"}), "candidate.scheduling.max_num_seqs", "integer"),
        (candidate(scheduling={"max_model_len": 128}), "candidate.scheduling.max_model_len", "640"),
        (candidate(), "document", ""),
        (a_change(model="gpt-5"), "model", "tiny"),
        (a_change(model="../../etc"), "model", "pattern"),
        (a_change(suite="huge"), "suite", "smoke"),
        (a_change(policy="lax"), "policy", "default"),
        (a_change(policy={"rules": []}), "policy", "string"),
        (a_change(deployment={"max_context": 10**9}), "deployment.max_context", "8192"),
        (a_change(baseline={"quantization": {"scheme": "fp8_e5m2"}}), "baseline", "none"),
        ({"model": "tiny"}, "candidate", ""),
        ({}, "model", ""),
    ],
)
def test_a_wrong_change_is_422_and_names_the_field_and_what_is_allowed(
    client: TestClient, change: dict[str, Any], field: str, allowed: str
) -> None:
    for path in ("/api/v1/runs", "/api/v1/plan"):
        answer = client.post(path, json=change)
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
        found = {error["field"]: error["allowed"] for error in answer.json()["errors"]}
        assert allowed in next(text for name, text in found.items() if name.startswith(field))
    assert client.get("/api/v1/runs").json()["items"] == []


def test_a_number_that_is_not_finite_is_422(client: TestClient) -> None:
    text = "model: tiny\ncandidate: {engine_args: {dtype: .inf}}\n"
    answer = client.post("/api/v1/runs", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith("candidate.engine_args.dtype")


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "[]", "7", "null", "model: [", "model: tiny\nmodel: tiny", '{"model": "a", "model": "b"}', "1: 2",
        '{"model": NaN}', '{"model": "a\\u0000b"}', '{"model": "\\ud800"}', "model: \x01",
        BOMB, "[" * 5_000, '{"a":' * 5_000, '{"a": ' + "[" * 50 + "]" * 50 + "}", "- x\n" * 20_000,
        "!!python/object/apply:os.system ['true']", "model: !!python/name:os.system", "a: " + "9" * 5_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
def test_what_cannot_be_read_is_400_and_quickly(client: TestClient, body: str, media_type: str) -> None:
    answer = client.post("/api/v1/runs", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert "Traceback" not in answer.text


def test_bytes_that_are_no_text_are_400(client: TestClient) -> None:
    answer = client.post("/api/v1/runs", content=b"\xff\xfe{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_ten_megabytes_are_413(client: TestClient) -> None:
    answer = client.post(
        "/api/v1/runs", content=b" " * 10_000_000, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/problem+json")


def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 1_000

    pieces = islice(endless(), 10_000)
    answer = client.post("/api/v1/runs", content=pieces, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_415(client: TestClient, media_type: str) -> None:
    answer = client.post("/api/v1/runs", content="model: tiny", headers={"Content-Type": media_type})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=many", "limit"), ("limit=100000", "limit"), ("verdict=MAYBE", "verdict"),
        ("state=lost", "state"), ("since=yesterday", "since"), ("verdikt=PASS", "verdikt"), ("cursor=zz", "cursor"),
        ("q=", "q"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_422_in_the_same_form(client: TestClient, query: str, field: str) -> None:
    answer = client.get(f"/api/v1/runs?{query}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_an_unknown_key_of_a_query_is_answered_with_the_known_ones(client: TestClient) -> None:
    for path, known in (
        ("runs", "model, verdict"),
        ("deltas", "metric"),
        (f"runs/{uuid4()}/partings", "mode"),
    ):
        answer = client.get(f"/api/v1/{path}?verdikt=PASS")
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert (error["field"], error["problem"]) == ("verdikt", "unknown key")
        assert known in error["allowed"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("context_from=-1", "context_from"),
        ("context_from=512&context_to=512", "context_to"),
        ("context=1", "context"),
    ],
)
def test_a_wrong_context_of_items_is_422_at_its_field(client: TestClient, query: str, field: str) -> None:
    answer = client.get(f"/api/v1/runs/{uuid4()}/items?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_characters_that_the_database_cannot_hold_find_nothing(client: TestClient) -> None:
    assert client.get("/api/v1/runs?q=%00&model=%00&scheme=%25").json()["items"] == []
    assert client.get("/api/v1/deltas?model=%00&metric=%00").json()["items"] == []


@pytest.mark.parametrize("key", ["", "x" * 201, "two words"])
def test_a_wrong_idempotency_key_is_422(client: TestClient, key: str) -> None:
    answer = client.post("/api/v1/runs", json=a_change(), headers={"Idempotency-Key": key})
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


def test_unknown_paths_and_methods_are_problems_too(client: TestClient) -> None:
    for method, path, status in (("GET", "/api/v1/nothing", 404), ("PUT", "/api/v1/runs", 405)):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["status"], answer.json()["instance"]) == (
            status,
            status,
            path,
        )


def test_an_operators_invalid_policy_is_refused_and_listed_with_its_mistake(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "catalog" / "policies"
    folder.mkdir(parents=True)
    (folder / "broken.yaml").write_text("name: broken\nrules: [{metric: vibes, at_most: 1, reason: none}]\n")
    settings = make_settings(world.settings.database_url, tmp_path, catalog_dir=tmp_path / "catalog")
    with TestClient(create_app(settings)) as client:
        refused = client.post("/api/v1/runs", json=a_change(policy="broken"))
        listed = {entry["name"]: entry for entry in client.get("/api/v1/policies").json()["items"]}
    assert refused.status_code == 422
    assert "vibes" in refused.text
    assert "vibes" in listed["broken"]["error"]
    assert listed["default"]["content"]["rules"]


def test_a_bug_is_500_without_its_trace(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("gatekeeper.services.history.list_runs", explode)
    answer = client.get("/api/v1/runs")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
