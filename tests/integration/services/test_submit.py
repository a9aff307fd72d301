"""Accepting changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.errors import Conflict, InvalidInput
from gatekeeper.domain.plan import Model
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Noise
from gatekeeper.services import history, models
from gatekeeper.services.history import RunFilters
from gatekeeper.services.judge import judge
from gatekeeper.services.submit import preview, submit
from tests.integration.services.seeds import World, a_change, a_delta, a_report


def test_a_change_is_queued_and_its_workers_are_told(world: World) -> None:
    run_id = world.submit()
    run = history.get_run(world.sessions, run_id)
    assert (run.state, run.attempt, run.verdict) == (RunState.QUEUED, 1, None)
    assert world.bell.rung == [run_id]


def test_a_broker_that_is_down_does_not_lose_the_run(world: World) -> None:
    world.bell.is_down = True
    run_id = world.submit()
    assert history.get_run(world.sessions, run_id).state is RunState.QUEUED


def test_the_same_key_gets_the_same_run_and_rings_once(world: World) -> None:
    assert world.submit(key="deploy-7") == world.submit(key="deploy-7")
    assert len(world.bell.rung) == 1


def test_the_same_key_with_another_change_is_a_conflict(world: World) -> None:
    world.submit(key="deploy-7")
    with pytest.raises(Conflict, match="deploy-7"):
        world.submit(key="deploy-7", candidate={"quantization": {"scheme": "fp8_e5m2"}})


def test_the_same_key_sent_at_the_same_time_makes_one_run(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = set(pool.map(lambda _: world.submit(key="deploy-7"), range(8)))
    assert len(runs) == 1
    assert len(history.list_runs(world.sessions, RunFilters()).items) == 1


def test_a_retired_model_does_not_keep_an_old_key_from_its_run(world: World) -> None:
    run_id = world.submit(key="deploy-7")
    models.forget_model(world.sessions, "tiny")
    assert world.submit(key="deploy-7") == run_id


def test_an_unknown_model_is_refused_with_the_names_of_the_known_ones(world: World) -> None:
    with pytest.raises(InvalidInput) as refusal:
        world.submit(model="other")
    problem = refusal.value.problems[0]
    assert (problem.field, problem.allowed) == ("model", "tiny")


def test_a_sliding_window_needs_the_shape_of_the_model(world: World) -> None:
    models.register_model(world.sessions, Model(name="shapeless", source="/models/shapeless"))
    with pytest.raises(InvalidInput, match="shape"):
        world.submit(model="shapeless", candidate={"eviction": {"policy": "sliding_window", "window": 64}})


@pytest.mark.parametrize(
    "changed",
    [
        {"candidate": {"reuse": {"prefix_caching": True}}},
        {"candidate": {"scheduling": {"max_num_seqs": 4}}, "baseline": {"scheduling": {"block_size": 32}}},
        {"candidate": {"quantization": {"scheme": "fp8_e5m2"}}, "baseline": {}},
    ],
)
def test_a_claimed_plan_is_the_plan_that_was_accepted(world: World, changed: dict[str, Any]) -> None:
    accepted = preview(world.sessions, a_change(**changed), settings=world.settings).plan
    stored = world.claim(world.submit(**changed)).plan
    assert stored == accepted
    assert stored.change.resolved_candidate == accepted.candidate.config
    assert stored.change.candidate.model_fields_set == accepted.change.candidate.model_fields_set


def test_a_command_line_makes_the_plan_of_the_typed_change(world: World) -> None:
    command = {"command": "vllm serve tiny --kv-cache-dtype fp8", "suite": "smoke", "policy": "fast"}
    seen = preview(world.sessions, command, settings=world.settings)
    assert seen.plan.candidate.config.quantization.scheme == "fp8_e4m3"
    lengths = ("--max-num-seqs", "16", "--max-model-len", "768")
    assert seen.arms["candidate"].flags == ("--kv-cache-dtype", "fp8_e4m3", *lengths)
    assert seen.arms["candidate"].kv_bytes_per_token == 11_520


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"command": "vllm serve 'tiny"}, "command"),
        ({"command": 7}, "command"),
        ({"command": ["vllm", "serve", 7]}, "command"),
        ({"command": []}, "command"),
        ({"command": "rm -rf /"}, "command"),
        ({"command": "vllm serve tiny --kv-cache-dtype fp8", "candidate": {}}, "candidate"),
        ({"command": "vllm serve tiny --trust-remote-code"}, "command --trust-remote-code"),
        ({"command": "vllm serve tiny --kv-offloading-size much"}, "command --kv-offloading-size"),
        ({"command": "vllm serve tiny"}, "document"),
    ],
)
def test_a_wrong_command_is_refused_by_field(world: World, document: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        preview(world.sessions, document, settings=world.settings)
    assert refusal.value.problems[0].field == field


def test_a_preview_stores_nothing(world: World) -> None:
    seen = preview(world.sessions, a_change(deployment={"max_context": 4096}), settings=world.settings)
    assert seen.coverage_gaps == ("max_context 4096 > 640 tokens reached",)
    assert history.list_runs(world.sessions, RunFilters()).items == ()
    assert world.bell.rung == []


def test_a_preview_counts_what_the_candidate_keeps_of_a_sequence(world: World) -> None:
    window = {"eviction": {"policy": "sliding_window", "window": 64}, "scheduling": {"block_size": 16}}
    change = a_change(candidate=window, deployment={"concurrency": 4})
    arms = preview(world.sessions, change, settings=world.settings).arms
    per_token = arms["candidate"].kv_bytes_per_token or 0
    assert arms["candidate"].kv_pool_bytes == 64 * per_token * 4 > 0
    assert (arms["baseline"].kv_pool_bytes or 0) > 640 * per_token * 4


def test_the_noise_of_an_earlier_run_of_the_same_baseline_tells_what_can_be_decided(world: World) -> None:
    def flips(**changed: Any) -> str:
        seen = preview(world.sessions, a_change(**changed), settings=world.settings)
        return next(one.sentence for one in seen.foresight if one.metric == "accuracy")

    assert "9% flips (a planning value)" in flips()
    held = world.claim(world.submit())
    for role in ("baseline", "control", "candidate"):
        world.arm(held, role)
    noise = Noise(accuracy_flip_rate=0.25, deltas=(a_delta(),))
    judge(
        world.sessions,
        held.run_id,
        owner="worker-1",
        decide=lambda _plan, _arms: a_report().model_copy(update={"noise": noise}),
    )
    assert "25% flips, a drop" in flips()
    assert "25% flips, a drop" in flips(candidate={"quantization": {"scheme": "fp8_e5m2"}})
    assert "planning value" in flips(deployment={"concurrency": 3})
    assert "planning value" in flips(suite="standard")
    submitted = submit(world.sessions, a_change(), settings=world.settings, ring=world.bell.ring)
    assert [one.metric for one in submitted.foresight][:1] == ["decode_kl"]


def test_a_typed_change_is_as_good_as_its_document(world: World) -> None:
    change = parse_change(a_change())
    submitted = submit(world.sessions, change, settings=world.settings, ring=world.bell.ring)
    assert history.get_run(world.sessions, submitted.run_id).name == "fp8_e4m3"


def test_a_command_over_several_lines_is_one_command(world: World) -> None:
    command = {"command": "vllm serve tiny \\\n  --kv-cache-dtype fp8", "suite": "smoke", "policy": "fast"}
    seen = preview(world.sessions, command, settings=world.settings)
    assert seen.plan.candidate.config.quantization.scheme == "fp8_e4m3"
