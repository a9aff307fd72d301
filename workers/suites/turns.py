"""Two engines take turns: an arm, and a companion with the baseline's configuration, both launched for it.

What differs between two launches (placement in memory, page cache, clock) and what drifts with the machine are the
noise of speed. Rounds in turns share the drift; pairs of launches, each with a companion of its own, show the rest.
Both engines of a pair are in the same state: fresh, warmed up by one round, nothing else having run on them.

Where both fit into the device's memory, both live, and every round changes sides: A B, B A, A B, ... Where they do not,
one is launched after the other, and every launch has all its rounds: A, B, then B, A, then A, B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.plan import ArmPlan, cache_modes
from gatekeeper.domain.speed import COMPANION, SUITE, Round
from gatekeeper.domain.speed_probe import Load, PerformanceProbe, Turns
from workers.engines.base import Server
from workers.engines.errors import EngineFailure, ProbeFailed
from workers.suites.base import Sink
from workers.suites.load_generator import LoadGenerator, load_generator
from workers.suites.performance import Player, common_arguments, take

Side = Literal["arm", "companion"]
Launcher: TypeAlias = Callable[[ArmPlan, str], AbstractContextManager[Server]]
"""Launches an engine, its log under the name given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One side's part of a round. Round number 0 warms up."""

    side: Side
    number: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """What taking turns needs. `plans`: the arm's and the baseline's configuration; `together`: both engines fit.

    `modes`: the states of the arm's cache. `is_decided()` is asked after every pair of launches: whether more would
    change nothing.
    """

    plans: Mapping[Side, ArmPlan]
    modes: Sequence[Mode]
    deployment: Deployment
    together: bool
    run_id: str
    workdir: Path
    sink: Sink
    environment: Mapping[str, str]
    launch: Launcher
    advance: Callable[[int, int], None]
    is_decided: Callable[[], bool]


def schedule(launch: int, rounds: int, *, together: bool) -> list[Turn]:
    """The turns of one pair of launches, counted from 1: each round once for each side, and who begins alternates.

    Neither side is first more often than the other, over the rounds of a pair or over the pairs, so a drift of the
    machine that is steady cancels.
    """
    if together:
        return [
            Turn(side=side, number=number) for number in range(rounds + 1) for side in _order(launch + number)
        ]
    return [Turn(side=side, number=number) for side in _order(launch) for number in range(rounds + 1)]


def _order(position: int) -> tuple[Side, Side]:
    return ("arm", "companion") if position % 2 else ("companion", "arm")


def take_turns(probe: PerformanceProbe, turns: Turns, table: Table) -> None:
    """Measure pair after pair of launches until the rules on speed are decided or all are used.

    Raises ProbeFailed if the companion fails: that is no fault of the arm. The arm's own failures are raised as such.
    """
    players: Mapping[Side, Player] = {"arm": Player(suite=SUITE), "companion": Player(suite=COMPANION)}
    arguments = common_arguments(probe, table.deployment, table.plans["companion"])
    with load_generator(
        table.run_id, table.workdir, arguments=arguments, environment=table.environment
    ) as generator:
        for launch in range(1, turns.launches + 1):
            _play_pair(probe, turns, launch, players, generator, table)
            if launch < turns.launches and table.is_decided():
                break
    table.sink.exercises([proof for player in players.values() for proof in player.exercises()])
    table.advance(1, 1)


def _play_pair(
    probe: PerformanceProbe,
    turns: Turns,
    launch: int,
    players: Mapping[Side, Player],
    generator: LoadGenerator,
    table: Table,
) -> None:
    plan = schedule(launch, probe.rounds, together=table.together)
    with ExitStack() as living:
        servers: dict[Side, Server] = {}
        for done, turn in enumerate(plan):
            table.advance((launch - 1) * len(plan) + done, turns.launches * len(plan))
            with _blaming(turn.side):
                if turn.side not in servers:
                    if not table.together:
                        living.close()
                    servers[turn.side] = living.enter_context(_launched(turn.side, launch, players, table))
                for load in _loads(probe, table):
                    which = Round(launch=launch, number=turn.number)
                    taken = take(probe, load, which, generator, servers[turn.side])
                    if turn.number:
                        players[turn.side].taken.append(taken)
                        table.sink.measurements(players[turn.side].rows(taken))


def _loads(probe: PerformanceProbe, table: Table) -> Sequence[Load]:
    """Prompts that share a prefix are for an arm that reuses it, and for equal arms, whose noise they show."""
    shared = "warm" in table.modes or table.plans["arm"] == table.plans["companion"]
    return [load for load in probe.loads if load.mode == "cold" or shared]


@contextmanager
def _launched(side: Side, launch: int, players: Mapping[Side, Player], table: Table) -> Iterator[Server]:
    """A fresh launch that runs with what was asked for. Raises ProbeFailed if it does not."""
    plan = table.plans[side]
    with table.launch(plan, f"{side}-launch-{launch}") as server:
        wrong = mismatches(compare(plan, server.effective))
        if wrong:
            raise ProbeFailed(f"launched again, {'; '.join(one.sentence for one in wrong)}")
        players[side].reuses = "warm" in cache_modes(plan.config, server.effective)
        yield server


@contextmanager
def _blaming(side: Side) -> Iterator[None]:
    """Failures of the companion are told apart from the arm's: they say nothing about the change."""
    try:
        yield
    except EngineFailure as error:
        if side == "arm":
            raise
        cause = f"the companion, a launch of the baseline's configuration, {error.kind}: {error.detail}"
        raise ProbeFailed(cause) from error
