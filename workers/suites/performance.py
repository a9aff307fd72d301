"""Serving speed by vLLM's own benchmark: rounds of random prompts at the deployed load, the first discarded.

A round counts if all its requests came back whole, and if prefixes were reused where that is claimed and nowhere else:
a benchmark that meets its own prompts in the cache looks faster than it is. A round that does not count has no figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.measurement import Exercise, Measurement, Mode
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.speed import COMPANION, FAILED, SUITE, Round
from gatekeeper.domain.speed_probe import Load, PerformanceProbe
from workers.engines.base import Metrics, Server
from workers.suites.base import PREEMPTIONS, PREFIX_HITS, Bench, counted_between
from workers.suites.load_generator import LoadGenerator, load_generator

POOL_USAGE: Final = "vllm:kv_cache_usage_perc"
FIGURES: Final[Mapping[str, str]] = {
    "output_throughput_tok_s": "output_throughput",
    **{
        f"{ours}_p{percentile}_ms": f"p{percentile}_{theirs}_ms"
        for ours, theirs in (("ttft", "ttft"), ("itl", "itl"), ("e2e", "e2el"))
        for percentile in (50, 90, 99)
    },
}
"""Our metric -> the key in the benchmark's result."""

SEEDS_PER_LAUNCH: Final = 1000
"""Rounds of different launches have different prompts; those of engines that take turns have the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One load of one round of one engine. `failed`: requests that did not come back whole.

    `hits` and `preemptions`: how far the engine's counters moved, None if it does not count; `pool_usage`: the fullest
    that the pool was seen.
    """

    which: Round
    load: Load
    failed: int
    hits: float | None
    preemptions: float | None
    pool_usage: float
    figures: Mapping[str, float]


@dataclass(kw_only=True)
class Player:
    """An engine configuration whose rounds are measured, stored as `suite`. `reuses`: it caches prefixes."""

    suite: str
    reuses: bool = False
    taken: list[Taken] = field(default_factory=list)

    def expected_hits(self, load: Load) -> Literal["moved", "still"]:
        """Whether the prefix cache has to be hit by a load, or must not be."""
        return "moved" if load.mode == "warm" and self.reuses else "still"

    def counts(self, taken: Taken) -> bool:
        """True if a round's figures speak of the configuration."""
        if taken.failed or taken.hits is None:
            return False
        return (taken.hits > 0) == (self.expected_hits(taken.load) == "moved")

    def rows(self, taken: Taken) -> list[Measurement]:
        """What is stored of a round: counts always, figures if it counts."""
        counters = {"prefix_hit_tokens": taken.hits, "preemptions": taken.preemptions}
        counted = {FAILED: float(taken.failed), "pool_usage": taken.pool_usage} | {
            name: moved for name, moved in counters.items() if moved is not None
        }
        place = partial(
            Measurement.of, suite=self.suite, mode=taken.load.mode,
            item_id=taken.which.item_id(taken.load.input_tokens), cluster=f"launch-{taken.which.launch}",
        )  # fmt: skip
        figures = taken.figures if self.counts(taken) else {}
        return [place(metric=metric, value=value) for metric, value in {**figures, **counted}.items()]

    def exercises(self) -> list[Exercise]:
        """The proofs of each mode, over the rounds that count, or over all where none does."""
        modes = dict.fromkeys(taken.load.mode for taken in self.taken)
        return [proof for mode in modes for proof in self._exercises(mode)]

    def _exercises(self, mode: Mode) -> list[Exercise]:
        all_rounds = [taken for taken in self.taken if taken.load.mode == mode]
        rounds = [taken for taken in all_rounds if self.counts(taken)] or all_rounds
        of = " of the companion" if self.suite == COMPANION else ""
        proof = partial(Exercise, suite=SUITE, mode=mode)
        usage = 100 * max(taken.pool_usage for taken in rounds)
        return [
            proof(
                counter=f"{PREFIX_HITS}{of}", moved=_sum(taken.hits for taken in rounds),
                expected=self.expected_hits(rounds[0].load),
            ),
            proof(
                counter=f"failed requests{of}", moved=sum(taken.failed for taken in all_rounds), expected="still"
            ),
            proof(
                counter=f"{PREEMPTIONS}{of}", moved=_sum(taken.preemptions for taken in rounds), expected="any"
            ),
            proof(counter=f"{POOL_USAGE}{of}, highest seen, %", moved=round(usage, 1), expected="any"),
        ]  # fmt: skip


def run(probe: PerformanceProbe, bench: Bench) -> None:
    """Run the rounds of one arm alone, in its own launch, and store their figures as they come."""
    player = Player(suite=SUITE, reuses="warm" in bench.modes)
    total = (probe.rounds + 1) * len(probe.loads)
    arguments = common_arguments(probe, bench.deployment, bench.server.plan)
    environment = bench.server.engine.environment(bench.server.plan, gpu=None)
    with load_generator(
        bench.run_id, bench.workdir, arguments=arguments, environment=environment
    ) as generator:
        for number in range(probe.rounds + 1):
            for position, load in enumerate(probe.loads):
                bench.advance(number * len(probe.loads) + position, total)
                taken = take(probe, load, Round(launch=0, number=number), generator, bench.server)
                if number:
                    player.taken.append(taken)
                    bench.sink.measurements(player.rows(taken))
    bench.sink.exercises(player.exercises())
    bench.advance(total, total)


def take(
    probe: PerformanceProbe, load: Load, which: Round, generator: LoadGenerator, server: Server
) -> Taken:
    """Send one load to one engine, and see what its counters did meanwhile."""
    fullest = 0.0

    def seen(counters: Metrics) -> None:
        nonlocal fullest
        fullest = max(fullest, counters.get(POOL_USAGE, 0.0))

    before = server.metrics()
    result = generator.send(server, round_arguments(probe, load, which), seen=seen)
    after = server.metrics()
    moved = partial(counted_between, before, after)
    return Taken(
        which=which, load=load, failed=failed_requests(result, probe), hits=moved(PREFIX_HITS),
        preemptions=moved(PREEMPTIONS), pool_usage=fullest, figures=figures_of(result),
    )  # fmt: skip


def _sum(moved: Iterable[float | None]) -> float | None:
    """None where one of them was not counted."""
    known = list(moved)
    return None if None in known else sum(filter(None, known))


def failed_requests(result: Mapping[str, Any], probe: PerformanceProbe) -> int:
    """Requests that did not come back with all their tokens: they end by length alone, so fewer are a loss."""
    whole = sum(1 for length in result["output_lens"] if length >= probe.output_tokens)
    return probe.prompts - whole


def figures_of(result: Mapping[str, Any]) -> dict[str, float]:
    """A round's figures; goodput only where the deployment states what a good request is.

    Half a request is added to the good ones (Haldane 1956; Anscombe 1956), so that a round without any has a logarithm.
    """
    figures = {metric: float(result[key]) for metric, key in FIGURES.items()}
    if result["request_goodput"] is not None:
        seconds = float(result["duration"])
        figures["goodput_req_s"] = (round(float(result["request_goodput"]) * seconds) + 0.5) / seconds
    return figures


def common_arguments(probe: PerformanceProbe, deployment: Deployment, plan: ArmPlan) -> list[str]:
    """The benchmark's arguments that all rounds have in common, whatever the engine."""
    rate, slo = deployment.request_rate, deployment.slo
    limits = {"ttft": slo.ttft_ms, "tpot": slo.tpot_ms, "e2el": slo.e2e_ms} if slo else {}
    good = [f"{name}:{limit:g}" for name, limit in limits.items() if limit is not None]
    return [
        "--backend", "openai", "--endpoint", "/v1/completions",
        "--model", plan.model.source, "--served-model-name", plan.model.name,
        "--dataset-name", "random", "--num-prompts", str(probe.prompts),
        "--random-output-len", str(probe.output_tokens), "--ignore-eos", "--temperature", "0",
        "--max-concurrency", str(deployment.requests_in_flight), "--request-rate", f"{rate:g}" if rate else "inf",
        "--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "50,90,99", "--disable-tqdm",
        *(["--goodput", *good] if good else []),
    ]  # fmt: skip


def round_arguments(probe: PerformanceProbe, load: Load, which: Round) -> Sequence[str]:
    """The benchmark's arguments of one load of a round, the same for both engines of a pair.

    The salt keeps rounds apart in the prefix cache: random prompts of a small vocabulary collide now and then, and the
    prompts of a shorter load are the beginnings of a longer one's.
    """
    salt = f"{load.mode}/{which.item_id(load.input_tokens)}".replace("/", ".")  # vLLM allows no slash in one
    return [
        "--seed", str(probe.seed + SEEDS_PER_LAUNCH * which.launch + which.number),
        "--random-input-len", str(load.input_tokens - load.prefix_tokens),
        "--random-prefix-len", str(load.prefix_tokens),
        "--extra-body", f'{{"cache_salt": "{salt}"}}',
    ]  # fmt: skip
