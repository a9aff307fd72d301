"""The memory account over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from tests.integration.services.seeds import World

SHAPE = {"layers": 80, "attention_heads": 64, "kv_heads": 8, "head_dim": 128, "max_context": 131_072}


def test_a_registered_model_a_shape_and_a_config_are_answered(client: TestClient, world: World) -> None:  # noqa: ARG001
    known = client.get("/api/v1/models").json()["items"][0]["name"]
    load = {"context": 4096, "concurrency": 8, "device": "h100-80gb"}
    by_name = client.post("/api/v1/kv-memory", json={"model": known, **load}).json()
    assert (by_name["bytes_per_token"], by_name["fits"]) == (23_040, True)
    by_shape = client.post("/api/v1/kv-memory", json={"shape": SHAPE, "context": 32_768}).json()
    assert (by_shape["total_bytes"], by_shape["pool_bytes"]) == (10 * 2**30, None)
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "max_position_embeddings": 128,
    }
    by_config = client.post("/api/v1/kv-memory", json={"hf_config": config, "context": 10}).json()
    assert by_config["bytes_per_token"] == 2 * 4 * 16 * 2 * 2


def test_what_is_wrong_is_refused_by_field(client: TestClient) -> None:
    answer = client.post("/api/v1/kv-memory", json={"model": "nowhere", "context": 10})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "model")
    answer = client.post("/api/v1/kv-memory", json={"shape": SHAPE, "context": 0, "device": "abacus"})
    assert {error["field"] for error in answer.json()["errors"]} == {"context", "device"}
