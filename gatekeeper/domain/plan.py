"""What a run will do, fixed when it is accepted: both arms, the suite, the policy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from pydantic import Field

from gatekeeper.domain import reference_engine
from gatekeeper.domain.base import Closed, PositiveInt
from gatekeeper.domain.calibration import Calibration, calibrated
from gatekeeper.domain.change import Change, Deployment, EngineName, Name
from gatekeeper.domain.coverage import gaps_of_deployment, gaps_of_features, undeclared
from gatekeeper.domain.engine_choice import choose_engine
from gatekeeper.domain.engine_flags import START, cache_name, engine_flags
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig, TurboQuant, skipped_layers
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from gatekeeper.domain.measurement import EffectiveConfig, Mode
from gatekeeper.domain.plan_problems import problems_of_arm, problems_of_change
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import CHUNKS, FidelityProbe, SaturatedProbe
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.vllm_flags import Device
from gatekeeper.domain.waiver import Waiver


class Model(Closed):
    """A model that the operator registered. `source`: a directory or a hub id; callers only ever name it."""

    name: Name
    source: str
    revision: str | None = None
    shape: ModelShape | None = None


class ArmPlan(Closed):
    """One engine launch: everything that decides its argv."""

    engine: EngineName
    device: Device
    model: Model
    config: KVConfig
    max_model_len: PositiveInt
    max_num_seqs: PositiveInt
    pool_blocks: PositiveInt | None = None
    """The size of the KV pool in blocks, which only vLLM can be told; None: as large as the engine makes it."""

    @property
    def predicted_kv_bytes_per_token(self) -> float | None:
        """What the pool should spend per token, or None where that is unknown.

        Unknown is a model without a shape, and where pools have pages of several kinds: hybrid layers, TurboQuant, and
        layers that vLLM skips.
        """
        shape, quantization = self.model.shape, self.config.quantization
        if shape is None or not shape.is_uniform or isinstance(quantization, TurboQuant):
            return None
        if self.engine == "vllm" and skipped_layers(quantization):
            return None
        return kv_bytes_per_token(shape, quantization)

    @property
    def cache_dtype(self) -> str:
        """What the engine calls the cache; `auto`: 16 bits."""
        return cache_name(self.engine, self.config.quantization)

    @property
    def command(self) -> tuple[str, ...]:
        """The words with which a person would start the engine by hand."""
        return (*START[self.engine], self.model.source, *self.serve_flags)

    @property
    def serve_flags(self) -> tuple[str, ...]:
        """The engine's flags that put this arm into effect."""
        if self.engine == "reference":
            return reference_engine.serve_flags(self.config, max_model_len=self.max_model_len)
        lengths = {"max_model_len": self.max_model_len, "max_num_seqs": self.max_num_seqs}
        scheduling = self.config.scheduling.model_copy(update=lengths)
        pool = () if self.pool_blocks is None else ("--num-gpu-blocks-override", str(self.pool_blocks))
        return (
            *engine_flags(
                self.engine,
                self.config.model_copy(update={"scheduling": scheduling}),
                shape=self.model.shape,
            ),
            *pool,
        )

    def saturated_by(self, probe: SaturatedProbe, *, block_size: int) -> ArmPlan:
        """The same engine with a pool for `probe.pool_share` of the probe's requests, and for one of them at least."""
        longest = probe.context_tokens + probe.decode_tokens
        of_one = math.ceil(longest / block_size) + 1
        wanted = math.ceil(probe.pool_share * probe.documents * longest / block_size)
        return self.model_copy(
            update={
                "max_model_len": longest,
                "max_num_seqs": probe.documents,
                "pool_blocks": max(wanted, of_one),
            }
        )

    def fingerprint(
        self, *, suite: Suite, deployment: Deployment, engine_build: str, hardware: str, worker: str
    ) -> str:
        """Identify a reusable baseline: equal fingerprints mean the same arm measured the same way on the same items.

        Of the deployment, the load counts. `worker` identifies what lives with the worker: the model's files, texts and
        tasks, and the measuring code.
        """
        identity = {
            "arm": self.model_dump(mode="json"),
            "suite": suite.fingerprint,
            "load": deployment.model_dump(mode="json", include={"concurrency", "request_rate", "slo"}),
            "engine_build": engine_build,
            "hardware": hardware,
            "worker": worker,
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def cache_modes(config: KVConfig, effective: EffectiveConfig | None) -> tuple[Mode, ...]:
    """Cold always; warm wherever prefixes are reused, whether that was asked for or is the engine's own default."""
    reused = config.reuse.prefix_caching or (effective is not None and effective.prefix_caching)
    return ("cold", "warm") if reused else ("cold",)


def measured_modes(suite: Suite, config: KVConfig, effective: EffectiveConfig | None) -> tuple[Mode, ...]:
    """Every state in which an arm has to be measured: the cache's own, and those that the suite puts it into."""
    chunk = config.scheduling.max_num_batched_tokens
    is_chunked = chunk is not None and CHUNKS * chunk <= suite.chunked_context_tokens
    probed = (mode for mode in suite.modes if mode != "chunked" or is_chunked)
    return (*cache_modes(config, effective), *probed)


class Plan(Closed):
    """An accepted change with everything it referred to, resolved."""

    change: Change
    suite: Suite
    policy: Policy
    baseline: ArmPlan
    candidate: ArmPlan
    waivers: tuple[Waiver, ...] = Field(default=(), exclude=True)
    """Those in force when it is judged. Not stored with the plan, since they come and go."""
    engine_reason: str = ""
    """Why the engine of both arms is that one; a plan from before this was stored does not say."""

    @property
    def concurrency(self) -> int:
        """Requests in flight, the same in every arm."""
        return self.change.deployment.requests_in_flight

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The states in which the candidate asks to be measured."""
        return measured_modes(self.suite, self.candidate.config, None)

    @property
    def coverage_gaps(self) -> tuple[str, ...]:
        """What the change declares and the suite does not reach, one phrase each.

        Every suite runs on the whole candidate, all its features together.
        """
        baseline, candidate, shape = self.baseline.config, self.candidate.config, self.candidate.model.shape
        layers = shape.layers if shape else None
        # Fidelity has as many requests in flight as are declared; where none are, no more than it has documents.
        documents = [probe.documents for probe in self.suite.probes if isinstance(probe, FidelityProbe)]
        in_flight = self.change.deployment.concurrency or min([self.concurrency, *documents])
        return (
            *gaps_of_deployment(self.change.deployment, self.suite, self.policy),
            *gaps_of_features(baseline, candidate, self.suite, concurrency=in_flight, layers=layers),
        )

    @property
    def undeclared(self) -> str | None:
        """What the verdict will speak of where the deployment leaves its lengths open."""
        return undeclared(self.change.deployment, self.candidate.config, self.suite)


CONTEXT_HEADROOM = 128
"""Tokens of context beyond the suite's longest item, for prompts whose length only the tokenizer decides."""


def make_plan(
    change: Change,
    *,
    model: Model,
    suite: Suite,
    policy: Policy,
    device: Device,
    allowed_arguments: frozenset[str],
    calibrations: Sequence[Calibration] = (),
) -> Plan:
    """Resolve a change into a plan, or raise InvalidInput naming every field that cannot work.

    `calibrations`: those that there are, the preferred first.
    """
    configs = {"baseline": change.resolved_baseline, "candidate": change.resolved_candidate}
    limit = model.shape.max_context if model.shape else None
    problems = problems_of_change(change, suite=suite, device=device, model_limit=limit)
    choice = choose_engine(change.engine, configs, device=device, shape=model.shape)
    problems += choice.problems
    for arm, config in configs.items():
        problems += problems_of_arm(config, arm, suite=suite, allowed_arguments=allowed_arguments)
        configs[arm], lacking = calibrated(
            config, arm=arm, name=model.name, source=model.source, revision=model.revision, known=calibrations
        )
        problems += lacking
    if problems:
        raise InvalidInput(problems)
    length, seqs = _default_length(change, model, suite), change.deployment.requests_in_flight
    arms = {
        arm: ArmPlan(
            engine=choice.engine, device=device, model=model, config=config,
            max_model_len=config.scheduling.max_model_len or length,
            max_num_seqs=config.scheduling.max_num_seqs or seqs,
        )
        for arm, config in configs.items()
    }  # fmt: skip
    return Plan(
        change=change, suite=suite, policy=policy, baseline=arms["baseline"], candidate=arms["candidate"],
        engine_reason=choice.reason,
    )  # fmt: skip


def _default_length(change: Change, model: Model, suite: Suite) -> int:
    """What suite and deployment need, with headroom, up to what the model has."""
    needed = max(suite.longest_request, change.deployment.max_context or 0) + CONTEXT_HEADROOM
    return min(needed, model.shape.max_context) if model.shape else needed
