"""One planted fault through the product: arms measured by `workers.execute`, judged by `gatekeeper.domain.judge`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from gatekeeper.catalog import get_policy
from gatekeeper.domain.change import Change
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.policy import Policy, Rule
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Report
from tests.fakes.engine import MemoryArm, MemoryRun
from tests.faults.engine import FaultyVllm, Running
from tests.faults.table import BLOCK_TOKENS, CHUNK_TOKENS
from workers import engines
from workers.engines.base import Engine, launch
from workers.engines.vllm import Vllm
from workers.execute import Bounds, Job, execute, measure_arm

SHORT_TASKS: Final = ("gk_agreement", "gk_plausible", "gk_facts")
"""At most 20 tokens of prompt and choice."""
FORCED: Final[Mapping[str, object]] = {"documents": 16, "decode_tokens": 32}
"""As many documents as show damage that only some of them meet, as at one length of three, or when preempted."""
MODES: Final = {"probe": "modes", "context_tokens": 130, "chunked_context_tokens": 192, **FORCED}
PROBES: Final[Mapping[str, Mapping[str, object]]] = {
    "capacity": {"probe": "capacity"},
    "fidelity": {"probe": "fidelity", "context_tokens": 96, **FORCED, "documents": 8},
    "modes": {**MODES, "modes": ("first_batch", "boundary", "chunked")},
    "first_batch": {**MODES, "modes": ("first_batch",)},
    "boundary": {**MODES, "modes": ("boundary",)},
    "chunked": {**MODES, "modes": ("chunked",)},
    "saturated": {"probe": "saturated", "context_tokens": 96, **FORCED},
    "free_decode": {"probe": "free_decode", "prompts": 8, "decode_tokens": 256, "seed": 1},
    "retrieval": {
        "probe": "retrieval", "families": ("needle",), "context_tokens": (320,), "items_per_cell": 16, "seed": 1,
    },
    "accuracy": {"probe": "accuracy", "tasks": SHORT_TASKS, "items_per_task": 10, "seed": 1},
    "performance": {
        "probe": "performance", "prompts": 8, "input_tokens": 64, "output_tokens": 32, "rounds": 2, "seed": 1,
    },
}  # fmt: skip
ALL_PROBES: Final = (
    "capacity", "modes", "fidelity", "free_decode", "retrieval", "accuracy", "performance", "saturated",
)  # fmt: skip
PARTS: Final[Mapping[str, str]] = dict.fromkeys(("first_batch", "boundary", "chunked"), "modes")
"""Probe of a row -> the one of `ALL_PROBES` that holds it."""
MEASURED_AS_FIDELITY: Final = frozenset({"fidelity", "modes", "saturated"})
CONCURRENCY: Final = 8
BOUNDS: Final = Bounds(start_seconds=300, stall_seconds=600, tasks_dir=None, gpu=None, check=lambda: None)
BASELINE: Final[Mapping[str, object]] = {
    "reuse": {"prefix_caching": True},
    "scheduling": {"block_size": BLOCK_TOKENS, "max_model_len": 768, "max_num_seqs": CONCURRENCY},
}
SCHEDULING: Final[Mapping[str, object]] = {"scheduling": {"max_num_batched_tokens": CHUNK_TOKENS}}
"""The change that most faults come with: harmless by itself, with prefixes reused before and after."""


def plan_for(
    model: Model,
    probes: tuple[str, ...],
    *,
    candidate: Mapping[str, object] = SCHEDULING,
    deployment: Mapping[str, object] | None = None,
) -> Plan:
    """A plan over these probes, judged by what the bundled policies say of them."""
    suite = Suite.model_validate(
        {"name": "faults", "description": "for planted faults", "probes": [PROBES[name] for name in probes]}
    )
    measured = {"fidelity" if name in MEASURED_AS_FIDELITY else name for name in probes}
    rules = tuple(rule for rule in all_rules() if METRICS[rule.metric].suite in measured)
    change = Change.model_validate(
        {
            "model": model.name, "baseline": BASELINE, "candidate": candidate, "suite": suite.name,
            "policy": "faults", "deployment": {"concurrency": CONCURRENCY, **(deployment or {})},
        }
    )  # fmt: skip
    return make_plan(
        change, model=model, suite=suite, policy=Policy(name="faults", rules=rules), device="cpu",
        allowed_arguments=frozenset(),
    )  # fmt: skip


def all_rules() -> tuple[Rule, ...]:
    """Those of the policy `fast`, whose margins so few items can decide, and `deep`'s on what `fast` leaves out."""
    fast, deep = get_policy("fast").rules, get_policy("deep").rules
    known = {rule.metric for rule in fast}
    return (*fast, *(rule for rule in deep if rule.metric not in known))


@dataclass(kw_only=True)
class WithBaseline(MemoryRun):
    """A run whose baseline was measured before."""

    def reuse_baseline(self, fingerprint: str) -> bool:  # noqa: ARG002
        return True


def judged(
    engine: Engine,
    plan: Plan,
    baseline: MemoryArm,
    *,
    repeated: bool = False,
    bounds: Bounds = BOUNDS,
    run_id: str | None = None,
) -> tuple[Report, MemoryRun]:
    """Measure the candidate on `engine` and judge it. `repeated`: its engine failed once before."""
    run = WithBaseline(plan=plan, arms={"baseline": baseline})
    dead: frozenset[Role] = frozenset({"candidate"} if repeated else ())
    with engine_in_use(engine):
        execute(Job(run_id=run_id or uuid.uuid4().hex, plan=plan, dead_roles=dead), run, bounds)
    return judge(plan, run.records), run


@dataclass(frozen=True, kw_only=True)
class Bed:
    """A real engine that is up, and the baseline that was measured on it."""

    model: Model
    running: Running
    baseline: MemoryArm = field(repr=False)


def baseline_probes(rows: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """What the baseline has to measure so that all these rows can be judged; fidelity in any case."""
    needed = {PARTS.get(name, name) for probes in (("capacity", "fidelity"), *rows) for name in probes}
    return tuple(name for name in ALL_PROBES if name in needed)


@contextmanager
def engine_in_use(engine: Engine) -> Iterator[None]:
    """Have the worker launch `engine` wherever a plan says vLLM."""
    with patch.dict(engines.ENGINES, {"vllm": engine}):
        yield


@contextmanager
def bed(model: Model, folder: Path, probes: tuple[str, ...]) -> Iterator[Bed]:
    """Start a real engine and measure the baseline of all these probes on it, through the proxy without a fault."""
    plan, log = plan_for(model, probes), folder / "engine.log"
    with launch(
        Vllm(), plan.candidate, run_id=uuid.uuid4().hex, log=log, gpu=None, start_seconds=300, stall_seconds=300,
        check=lambda: None,
    ) as server:  # fmt: skip
        running, run = Running(base_url=server.base_url, log=log), MemoryRun(plan=plan)
        job = Job(run_id=uuid.uuid4().hex, plan=plan, dead_roles=frozenset())
        with engine_in_use(FaultyVllm(fault="none", running=running)):
            assert measure_arm(job, "baseline", run, BOUNDS, None), run.arms["baseline"].failure
        yield Bed(model=model, running=running, baseline=run.arms["baseline"])
