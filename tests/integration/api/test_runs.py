"""Runs over HTTP."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient

from gatekeeper.domain.verdict import Verdict
from gatekeeper.services import record
from gatekeeper.services.judge import judge
from tests.integration.services.seeds import World, a_change, a_report

YAML = "model: tiny\ncandidate:\n  quantization: {scheme: fp8_e4m3}\nsuite: smoke\n"


def finished(world: World, verdict: Verdict = Verdict.PASS) -> UUID:
    """A run with a verdict and a log."""
    run_id = world.submit()
    held = world.claim(run_id)
    world.arm(held)
    world.arm(held, "candidate")
    record.add_artifact(
        world.sessions, run_id, owner="worker-1", role="candidate", name="engine.log", content="<b>ready</b>"
    )
    judge(world.sessions, run_id, owner="worker-1", decide=lambda _plan, _arms: a_report(verdict))
    return run_id


def test_a_json_change_is_accepted_and_can_be_found_where_location_says(client: TestClient) -> None:
    answer = client.post("/api/v1/runs", json=a_change(name="chat-fp8"))
    assert answer.status_code == 202
    run = client.get(answer.headers["Location"]).json()
    beforehand = {name: answer.json()[name] for name in ("coverage_gaps", "foresight")}
    assert run | beforehand == answer.json()
    assert beforehand["coverage_gaps"] == []
    assert (run["name"], run["state"], run["verdict"], run["sentence"]) == ("chat-fp8", "queued", None, None)
    assert (run["findings"], run["deltas"], run["requested"], run["effective"]) == ([], [], {}, {})
    assert run["links"]["self"] == answer.headers["Location"]


@pytest.mark.parametrize("media_type", ["application/yaml", "text/yaml; charset=utf-8"])
def test_a_yaml_change_is_accepted(client: TestClient, media_type: str) -> None:
    answer = client.post("/api/v1/runs", content=YAML, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["scheme"]) == (202, "fp8_e4m3")


def test_json_with_tabs_and_exponents_is_json(client: TestClient) -> None:
    text = '{\n\t"model": "tiny", "suite": "smoke",\n\t"candidate": {"reuse": {"offload_gib": 5e-1}}}'
    answer = client.post("/api/v1/runs", content=text, headers={"Content-Type": "application/json"})
    assert answer.json()["change"]["candidate"]["reuse"]["offload_gib"] == 0.5


@pytest.mark.parametrize(
    "command",
    ["vllm serve tiny --kv-cache-dtype fp8_e5m2", ["vllm", "serve", "tiny", "--kv-cache-dtype", "fp8_e5m2"]],
)
def test_a_serving_command_line_is_accepted(client: TestClient, command: object) -> None:
    answer = client.post("/api/v1/runs", json={"command": command, "suite": "smoke", "name": "as deployed"})
    assert answer.status_code == 202
    assert (answer.json()["scheme"], answer.json()["name"]) == ("fp8_e5m2", "as deployed")


def test_the_same_idempotency_key_returns_the_same_run(client: TestClient) -> None:
    headers = {"Idempotency-Key": "deploy-7"}
    first, second = (client.post("/api/v1/runs", json=a_change(), headers=headers) for _ in range(2))
    assert second.status_code == 202
    assert first.headers["Location"] == second.headers["Location"]
    other = client.post("/api/v1/runs", json=a_change(suite="standard"), headers=headers)
    assert (other.status_code, other.json()["status"]) == (409, 409)


def test_a_finished_run_has_the_keys_of_the_report_at_its_top(world: World, client: TestClient) -> None:
    run = client.get(f"/api/v1/runs/{finished(world)}").json()
    keys = (
        "run_id",
        "verdict",
        "sentence",
        "findings",
        "deltas",
        "noise",
        "requested",
        "effective",
        "engine",
    )
    assert list(run)[:3] == ["run_id", "verdict", "sentence"]
    assert set(keys) <= set(run)
    assert (run["verdict"], run["findings"][0]["outcome"]) == ("PASS", "Passed")
    assert {arm["role"]: arm["argv"] for arm in run["arms"]} == {"baseline": ["vllm"], "candidate": ["vllm"]}
    assert (run["suite"], run["policy"]) == ("smoke", "fast")


def test_runs_are_listed_filtered_and_paged(world: World, client: TestClient) -> None:
    passed, failed = finished(world), finished(world, Verdict.FAIL)
    first = client.get("/api/v1/runs", params={"limit": 1}).json()
    second = client.get("/api/v1/runs", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [first["items"][0]["run_id"], second["items"][0]["run_id"]] == [str(failed), str(passed)]
    assert second["next_cursor"] is None
    only = client.get(
        "/api/v1/runs", params={"verdict": "FAIL", "model": "tiny", "since": "2026-01-01"}
    ).json()
    assert [run["run_id"] for run in only["items"]] == [str(failed)]


def test_deltas_are_listed_of_one_run_and_across_runs(world: World, client: TestClient) -> None:
    failed, passed = finished(world, Verdict.FAIL), finished(world)
    own = client.get(f"/api/v1/runs/{failed}/deltas").json()["items"]
    assert {delta["run_id"] for delta in own} == {str(failed)}
    everywhere = client.get("/api/v1/deltas", params={"metric": "decode_kl", "finding": "Passed"}).json()[
        "items"
    ]
    assert [delta["run_id"] for delta in everywhere] == [str(passed)]


def test_a_run_is_cancelled_and_tried_again(client: TestClient) -> None:
    own = client.post("/api/v1/runs", json=a_change()).headers["Location"]
    cancelled = client.post(f"{own}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    again = client.post(f"{own}/retry")
    assert (again.status_code, again.json()["state"], again.json()["attempt"]) == (202, "queued", 2)
    assert client.post(f"{own}/retry").status_code == 409


def test_a_log_is_plain_text_whatever_it_contains(world: World, client: TestClient) -> None:
    run_id = finished(world)
    (listed,) = client.get(f"/api/v1/runs/{run_id}/artifacts").json()["items"]
    log = client.get(listed["href"])
    assert log.text == "<b>ready</b>"
    assert log.headers["Content-Type"].startswith("text/plain")
    assert log.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get(f"/api/v1/runs/{run_id}/artifacts/1/candidate/other.log").status_code == 404


def test_a_change_that_its_suite_does_not_cover_is_accepted_and_told_so_at_once(client: TestClient) -> None:
    answer = client.post("/api/v1/runs", json=a_change(deployment={"decode_tokens": 500}))
    assert answer.json()["coverage_gaps"] == ["decode_tokens 500 > 128 tokens decoded"]


def test_a_long_name_comes_back_cut(client: TestClient) -> None:
    answer = client.post("/api/v1/plan", json=a_change(suite="x" * 100_000))
    assert answer.status_code == 422
    assert len(answer.content) < 2_000


def test_a_plan_shows_flags_bytes_and_gaps_and_stores_nothing(client: TestClient) -> None:
    change = a_change(deployment={"max_context": 2048})
    plan = client.post("/api/v1/plan", json=change).json()
    assert plan["flags"]["candidate"][:3] == ["--kv-cache-dtype", "fp8_e4m3", "--no-enable-prefix-caching"]
    assert plan["kv_bytes_per_token"] == {"baseline": 23_040.0, "candidate": 11_520.0}
    assert plan["coverage_gaps"] == ["max_context 2048 > 640 tokens reached"]
    assert plan["undeclared"].startswith("The deployment declares no decode_tokens")
    assert len(plan["foresight"]) == len(plan["plan"]["policy"]["rules"])
    assert {"metric", "outlook", "sentence"} <= plan["foresight"][0].keys()
    assert plan["plan"]["suite"]["name"] == "smoke"
    assert client.get("/api/v1/runs").json()["items"] == []


@pytest.mark.parametrize(
    "path", ["", "/deltas", "/events", "/artifacts", "/artifacts/1/candidate/engine.log"]
)
@pytest.mark.parametrize("run_id", [str(UUID(int=7)), "latest", "%00", "9" * 400])
def test_an_unknown_run_is_404_everywhere(client: TestClient, run_id: str, path: str) -> None:
    answer = client.get(f"/api/v1/runs/{run_id}{path}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_an_unknown_run_cannot_be_cancelled_or_retried(client: TestClient) -> None:
    for verb in ("cancel", "retry"):
        assert client.post(f"/api/v1/runs/{uuid4()}/{verb}").status_code == 404
