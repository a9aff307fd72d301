"""Who is measured when, what counts as a round, and whose fault a failure is."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.domain.change import Deployment, Slo
from gatekeeper.domain.measurement import EffectiveConfig, Mode
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.speed import COMPANION, SUITE, Round
from gatekeeper.domain.speed_probe import Load, PerformanceProbe, Turns
from tests.fakes.engine import MemoryArm, fake_plan
from workers.engines.errors import EngineDied, ProbeFailed
from workers.suites import performance, turns
from workers.suites.base import GENERATED, PREEMPTIONS, PREFIX_HITS
from workers.suites.performance import Player, Taken
from workers.suites.turns import Table, Turn, schedule, take_turns

PROBE = PerformanceProbe(
    probe="performance", prompts=4, input_tokens=16, output_tokens=8, rounds=3, turns=Turns(launches=3)
)
RESULT = {
    "output_lens": [8, 8, 8, 8], "duration": 2.0, "output_throughput": 16.0, "request_goodput": None,
    **{f"p{p}_{name}_ms": 10.0 for p in (50, 90, 99) for name in ("ttft", "itl", "e2el")},
}  # fmt: skip


# --- order -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(2, 9), st.booleans())
def test_every_round_is_taken_once_by_each_side(launch: int, rounds: int, together: bool) -> None:
    plan = schedule(launch, rounds, together=together)
    expected = {Turn(side=side, number=n) for side in ("arm", "companion") for n in range(rounds + 1)}
    assert Counter(plan) == Counter(dict.fromkeys(expected, 1))
    for side in ("arm", "companion"):
        assert [turn.number for turn in plan if turn.side == side] == list(range(rounds + 1))


@given(st.integers(1, 6), st.integers(1, 4))
def test_a_steady_drift_cancels_over_an_even_number_of_rounds(launch: int, pairs: int) -> None:
    plan = schedule(launch, 2 * pairs, together=True)
    places = {
        side: sum(place for place, turn in enumerate(plan) if turn.side == side and turn.number)
        for side in ("arm", "companion")
    }
    assert places["arm"] == places["companion"]


def test_both_living_engines_change_sides_in_every_round() -> None:
    letters = "".join("A" if turn.side == "arm" else "B" for turn in schedule(1, 4, together=True))
    assert letters == "AB" + "BAABBAAB"


def test_one_engine_at_a_time_is_launched_once_per_pair_and_who_begins_alternates() -> None:
    order = [turn.side for launch in (1, 2, 3) for turn in schedule(launch, 2, together=False)]
    launches = [side for place, side in enumerate(order) if place % 3 == 0]
    assert launches == ["arm", "companion", "companion", "arm", "arm", "companion"]


# --- which rounds count ----------------------------------------------------------------------------------------------

COLD, SHARED = Load(mode="cold", input_tokens=16), Load(mode="warm", input_tokens=48, prefix_tokens=32)


def taken(load: Load = COLD, *, failed: int = 0, hits: float | None = 0.0) -> Taken:
    return Taken(
        which=Round(launch=1, number=1), load=load, failed=failed, hits=hits, preemptions=2.0, pool_usage=0.5,
        figures={"ttft_p50_ms": 10.0},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reuses", "load", "hits", "failed", "counts"),
    [
        (False, COLD, 0, 0, True),
        (False, COLD, 0, 1, False),
        (True, COLD, 64, 0, False),
        (True, SHARED, 64, 0, True),
        (True, SHARED, 0, 0, False),
        (False, SHARED, 0, 0, True),
        (False, SHARED, 64, 0, False),
    ],
)  # fmt: skip
def test_a_round_counts_if_all_came_back_and_prefixes_were_reused_where_claimed_and_only_there(
    reuses: bool, load: Load, hits: float, failed: int, counts: bool
) -> None:
    player, one = Player(suite=SUITE, reuses=reuses), taken(load, failed=failed, hits=hits)
    assert player.counts(one) is counts
    rows = {row.metric: row.value for row in player.rows(one)}
    assert ("ttft_p50_ms" in rows) is counts
    assert (rows["failed_requests"], rows["prefix_hit_tokens"]) == (failed, hits)


def test_one_round_that_does_not_count_leaves_the_others_their_proof() -> None:
    player = Player(suite=SUITE, reuses=True, taken=[taken(), taken(hits=16), taken()])
    assert all(proof.happened for proof in player.exercises())
    player.taken = [taken(hits=16)]
    assert [proof.counter for proof in player.exercises() if not proof.happened] == [PREFIX_HITS]


def test_a_round_of_an_engine_that_does_not_count_proves_nothing() -> None:
    player = Player(suite=SUITE, reuses=False, taken=[taken(hits=None)])
    assert not player.counts(player.taken[0])
    assert "prefix_hit_tokens" not in {row.metric for row in player.rows(player.taken[0])}
    (silent,) = [proof for proof in player.exercises() if not proof.happened]
    assert (silent.counter, silent.moved) == (PREFIX_HITS, None)


def test_a_companions_proofs_are_told_apart() -> None:
    player = Player(suite=COMPANION, reuses=False, taken=[taken(failed=1)])
    (broken,) = [proof for proof in player.exercises() if not proof.happened]
    assert (broken.suite, broken.counter) == (SUITE, "failed requests of the companion")


@pytest.mark.parametrize(
    ("lengths", "failed"), [([8] * 4, 0), ([8, 8, 0, 8], 1), ([8, 8, 7, 8], 1), ([0] * 4, 4), ([8, 8], 2)]
)
def test_a_request_that_failed_or_came_back_short_is_a_loss(lengths: list[int], failed: int) -> None:
    assert performance.failed_requests(RESULT | {"output_lens": lengths}, PROBE) == failed


def test_goodput_is_there_where_an_objective_is_and_never_without_a_logarithm() -> None:
    assert "goodput_req_s" not in performance.figures_of(RESULT)
    assert performance.figures_of(RESULT | {"request_goodput": 1.5})["goodput_req_s"] == pytest.approx(1.75)
    assert performance.figures_of(RESULT | {"request_goodput": 0.0})["goodput_req_s"] == pytest.approx(0.25)


def test_the_load_is_the_deployed_one() -> None:
    plan = fake_plan().baseline
    busy = Deployment(concurrency=3, request_rate=2.5, slo=Slo(ttft_ms=200, e2e_ms=4000))
    words = performance.common_arguments(PROBE, busy, plan)
    assert words[words.index("--max-concurrency") + 1] == "3"
    assert words[words.index("--request-rate") + 1] == "2.5"
    assert words[words.index("--goodput") + 1 :] == ["ttft:200", "e2el:4000"]
    idle = performance.common_arguments(PROBE, Deployment(), plan)
    assert idle[idle.index("--request-rate") + 1] == "inf"
    assert idle[idle.index("--max-concurrency") + 1] == str(Deployment().requests_in_flight)
    assert "--goodput" not in idle


def test_the_salt_of_a_round_is_one_that_vllm_takes() -> None:
    words = performance.round_arguments(PROBE, COLD, Round(launch=0, number=2))
    salt = json.loads(words[words.index("--extra-body") + 1])["cache_salt"]
    assert salt
    assert not set("@/\\\0") & set(salt)


def test_both_sides_of_a_round_meet_the_same_prompts_and_no_two_rounds_do() -> None:
    def seed(launch: int, number: int) -> str:
        words = performance.round_arguments(PROBE, COLD, Round(launch=launch, number=number))
        return words[words.index("--seed") + 1]

    seeds = [seed(launch, number) for launch in range(4) for number in range(PROBE.rounds + 1)]
    assert len(set(seeds)) == len(seeds)


def test_a_shared_prefix_is_one_more_load_in_front_of_the_shortest_prompt() -> None:
    probe = PROBE.model_copy(update={"input_tokens": (64, 16), "shared_prefix_tokens": 32})
    assert [(load.mode, load.input_tokens, load.prefix_tokens) for load in probe.loads] == [
        ("cold", 64, 0), ("cold", 16, 0), ("warm", 48, 32),
    ]  # fmt: skip
    words = performance.round_arguments(probe, probe.loads[2], Round(launch=1, number=1))
    assert words[words.index("--random-input-len") + 1] == "16"
    assert words[words.index("--random-prefix-len") + 1] == "32"


# --- taking turns ----------------------------------------------------------------------------------------------------


@dataclass
class FakeServer:
    """Generates between any two looks; runs with what was asked for unless told otherwise."""

    name: str
    plan: ArmPlan
    effective: EffectiveConfig
    generated: float = 0.0

    def metrics(self) -> dict[str, float]:
        self.generated += 1
        return {GENERATED: self.generated, PREFIX_HITS: 0.0, PREEMPTIONS: 0.0}


@dataclass
class Stage:
    """What happened, in order: launches, ends, and rounds by server."""

    events: list[str] = field(default_factory=list)
    broken: str = ""
    unsound: str = ""
    pairs_to_decide: int = 99
    asked: int = 0

    @contextmanager
    def launch(self, plan: ArmPlan, name: str) -> Iterator[Any]:
        dtype = plan.config.quantization.scheme if plan.config.quantization.scheme != "none" else "auto"
        if name == self.unsound:
            dtype = "fp8_e5m2"
        self.events.append(f"+{name}")
        yield FakeServer(
            name, plan, EffectiveConfig(cache_dtype=dtype, prefix_caching=False, max_model_len=256)
        )
        self.events.append(f"-{name}")

    def send(self, server: FakeServer, _arguments: Sequence[str], **_seen: Any) -> dict[str, Any]:
        self.events.append(server.name)
        if server.name == self.broken:
            raise EngineDied("exit status 3")
        return dict(RESULT)

    def is_decided(self) -> bool:
        self.asked += 1
        return self.asked >= self.pairs_to_decide


def play(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: Stage, *, together: bool = True, control: bool = False,
    probe: PerformanceProbe = PROBE, modes: Sequence[Mode] = ("cold",),
) -> MemoryArm:  # fmt: skip
    @contextmanager
    def generator(*_: Any, **__: Any) -> Iterator[Stage]:
        yield stage

    monkeypatch.setattr(turns, "load_generator", generator)
    plan = fake_plan()
    own = plan.baseline if control else plan.candidate
    arm = MemoryArm(role="control" if control else "candidate", plan=own)
    table = Table(
        plans={"arm": own, "companion": plan.baseline}, modes=modes, deployment=Deployment(), together=together,
        run_id="r",
        workdir=tmp_path, sink=arm, environment={}, launch=stage.launch, advance=lambda _done, _total: None,
        is_decided=stage.is_decided,
    )  # fmt: skip
    assert probe.turns is not None
    take_turns(probe, probe.turns, table)
    return arm


def test_measuring_ends_with_the_pair_that_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(pairs_to_decide=2)
    arm = play(monkeypatch, tmp_path, stage)
    assert [event for event in stage.events if event.startswith("+")] == [
        "+arm-launch-1", "+companion-launch-1", "+companion-launch-2", "+arm-launch-2",
    ]  # fmt: skip
    throughput = [row for row in arm.rows if row.metric == "output_throughput_tok_s"]
    assert Counter(row.suite for row in throughput) == {SUITE: 6, COMPANION: 6}
    assert {row.cluster for row in throughput} == {"launch-1", "launch-2"}


def test_the_budget_of_launches_is_never_exceeded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage()
    play(monkeypatch, tmp_path, stage)
    assert sum(event.startswith("+") for event in stage.events) == 2 * 3
    assert stage.asked == 2  # after the last pair there is nothing left to decide


@pytest.mark.parametrize("together", [True, False])
def test_engines_live_together_only_where_both_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, together: bool
) -> None:
    stage = Stage()
    play(monkeypatch, tmp_path, stage, together=together)
    alive, most = 0, 0
    for event in stage.events:
        alive += event.startswith("+") - event.startswith("-")
        most = max(most, alive)
    assert (most, alive) == (2 if together else 1, 0)


def test_a_companion_that_dies_is_not_the_arms_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="the companion, a launch of the baseline's configuration, died"):
        play(monkeypatch, tmp_path, Stage(broken="companion-launch-2"))
    with pytest.raises(EngineDied, match="exit status 3"):
        play(monkeypatch, tmp_path, Stage(broken="arm-launch-2"))


def test_a_launch_that_runs_with_something_else_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ProbeFailed, match="cache_dtype: requested 16-bit, effective fp8_e5m2"):
        play(monkeypatch, tmp_path, Stage(unsound="companion-launch-1"))


def test_shared_prefixes_are_sent_to_equal_engines_and_to_arms_that_reuse_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probe = PROBE.model_copy(update={"shared_prefix_tokens": 32})

    def sent(**case: Any) -> set[Mode]:
        return {row.mode for row in play(monkeypatch, tmp_path, Stage(), probe=probe, **case).rows}

    assert sent() == {"cold"}
    assert sent(control=True) == sent(modes=("cold", "warm")) == {"cold", "warm"}
