"""The fake engine behind the worker's own interface, and an in-memory recorder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.interim import certain_failure, settled, speed_decided
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Mode, Role, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import EngineInfo
from workers.engines.vllm import Vllm

SHAPE = ModelShape(layers=2, attention_heads=4, kv_heads=4, head_dim=64, max_context=4096)
"""2 layers x 4 heads x 64 x 2 x 2 bytes = 2,048 bytes per token, as the fake server's pool shows."""

SUITE = Suite.model_validate(
    {
        "name": "tiny",
        "description": "for the fake engine",
        "probes": [
            {"probe": "capacity"},
            {"probe": "fidelity", "documents": 8, "context_tokens": 64, "decode_tokens": 16, "top_k": 2},
        ],
    }
)
POLICY = Policy.model_validate(
    {"name": "kl only", "rules": [{"metric": "decode_kl", "at_most": 0.05, "reason": "a test"}]}
)


def fake_plan(candidate: Mapping[str, object] | None = None, **extra: object) -> Plan:
    """A plan for the fake engine: max_model_len is what the fake server reports."""
    document = {
        "model": "m",
        "baseline": {"reuse": {"prefix_caching": False}, "scheduling": {"max_model_len": 256}},
        "candidate": dict(candidate or {"quantization": {"scheme": "fp8_e4m3"}}),
        "suite": "tiny",
        "policy": "kl only",
        **extra,
    }
    model = Model(name="m", source="/nowhere", shape=SHAPE)
    return make_plan(
        Change.model_validate(document), model=model, suite=SUITE, policy=POLICY, device="cpu",
        allowed_arguments=frozenset(),
    )  # fmt: skip


@dataclass(kw_only=True)
class FakeEngine(Vllm):
    """vLLM's readers over the fake server; `misbehave` adds flags per role-deciding cache dtype."""

    baseline_flags: Sequence[str] = ()
    candidate_flags: Sequence[str] = ()

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        quantized = plan.config.quantization.scheme != "none"
        dtype = plan.config.quantization.scheme if quantized else "auto"
        flags = self.candidate_flags if quantized else self.baseline_flags
        scheduling = plan.config.scheduling
        resolved = {
            "max_num_seqs": plan.max_num_seqs,
            "max_num_batched_tokens": scheduling.max_num_batched_tokens,
            "enable_chunked_prefill": scheduling.chunked_prefill,
        }
        command = (sys.executable, "-m", "tests.fakes.engine_server", "--port", str(port), "--dtype", dtype)
        prefixes = ("--prefix-caching", str(bool(plan.config.reuse.prefix_caching)))
        sizes = ("--max-model-len", str(plan.max_model_len), "--pool-blocks", str(plan.pool_blocks or 0))
        config = ("--config", json.dumps(resolved))
        return (*command, *prefixes, *sizes, *config, *flags)

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        return {}

    def info(self, plan: ArmPlan, *, gpu: str | None) -> EngineInfo:
        return EngineInfo(name="fake", version="1", device="cpu", hardware="test")


@dataclass(kw_only=True)
class MemoryArm:
    """One arm's results in memory."""

    role: Role
    plan: ArmPlan
    info: EngineInfo | None = None
    effective: EffectiveConfig | None = None
    rows: list[Measurement] = field(default_factory=list)
    scored: list[TokenTrace] = field(default_factory=list)
    said: list[Answer] = field(default_factory=list)
    proofs: list[Exercise] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    complete: bool = False
    failure: ArmFailure | None = None
    artifacts: dict[str, str] = field(default_factory=dict)

    def started(self, info: EngineInfo, effective: EffectiveConfig) -> None:
        self.info, self.effective = info, effective

    def skipped(self, probe: str, reason: str) -> None:
        self.left_out.append((probe, reason))

    def finished(self, *, complete: bool, failure: ArmFailure | None) -> None:
        self.complete, self.failure = complete, failure

    def measurements(self, rows: Sequence[Measurement]) -> None:
        self.rows += rows

    def traces(self, rows: Sequence[TokenTrace]) -> None:
        self.scored += rows

    def answers(self, rows: Sequence[Answer]) -> None:
        self.said += rows

    def exercises(self, rows: Sequence[Exercise]) -> None:
        self.proofs += rows

    def stopped(self, stop: Stop) -> None:
        self.stops.append(stop)

    def artifact(self, name: str, text: str, *, truncated: bool) -> None:
        self.artifacts[name] = text

    @property
    def record(self) -> ArmRecord:
        return ArmRecord(
            role=self.role, plan=self.plan, engine=self.info, effective=self.effective, measurements=tuple(self.rows),
            traces=tuple(self.scored), exercises=tuple(self.proofs),
            skipped=tuple(self.left_out), stops=tuple(self.stops), failure=self.failure, complete=self.complete,
        )  # fmt: skip


@dataclass(kw_only=True)
class MemoryRun:
    """A run's results in memory."""

    plan: Plan = field(default_factory=fake_plan)
    arms: dict[Role, MemoryArm] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    stages: list[tuple[str, Role, int, int]] = field(default_factory=list)

    def reuse_baseline(self, fingerprint: str) -> bool:
        return fingerprint in self.kept

    def keep_baseline(self, fingerprint: str) -> None:
        self.kept.append(fingerprint)

    def open_arm(self, role: Role, plan: ArmPlan, argv: Sequence[str], fingerprint: str | None) -> MemoryArm:
        self.arms[role] = MemoryArm(role=role, plan=plan)
        return self.arms[role]

    def certain_failure(self) -> str | None:
        return certain_failure(self.plan, self.records)

    def settled(self, suite: str, mode: Mode, batches: int) -> str | None:
        return settled(self.plan, self.records, suite, mode, batches)

    def references(self, mode: Mode) -> dict[str, Sequence[int]]:
        return {t.item_id: t.token_ids for t in self.arms["baseline"].scored if t.mode == mode}

    def speed_decided(self) -> bool:
        return speed_decided(self.plan, self.records)

    def progress(self, stage: str, role: Role, done: int, total: int) -> None:
        self.stages.append((stage, role, done, total))

    @property
    def records(self) -> dict[Role, ArmRecord]:
        return {role: arm.record for role, arm in self.arms.items()}
