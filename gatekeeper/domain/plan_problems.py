"""Why a change cannot become a plan: every field of it that cannot work, with what is allowed there."""

from __future__ import annotations

from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.vllm_flags import FORBIDDEN_ARGUMENTS, TYPED_ARGUMENTS, Device, argument_problem


def problems_of_change(
    change: Change, *, suite: Suite, device: Device, model_limit: int | None
) -> list[FieldProblem]:
    """What concerns the change as a whole. `model_limit`: tokens of the model's context, None where unknown."""
    return [
        *_baseline_problems(change.resolved_baseline),
        *_length_problems(change, suite, model_limit),
        *_idle_problems(change, device),
    ]


def problems_of_arm(
    config: KVConfig, arm: str, *, suite: Suite, allowed_arguments: frozenset[str]
) -> list[FieldProblem]:
    """What concerns one arm's configuration; `arm` begins the names of its fields."""
    return _argument_problems(config, arm, allowed_arguments) + _scheduling_problems(config, arm, suite)


def _baseline_problems(baseline: KVConfig) -> list[FieldProblem]:
    if baseline.quantization.scheme == "none" and baseline.eviction.policy == "none":
        return []
    allowed = "scheme none, policy none"
    return [FieldProblem(field="baseline", problem="not a 16-bit full cache", allowed=allowed)]


def _idle_problems(change: Change, device: Device) -> list[FieldProblem]:
    """What would change nothing on this device."""
    before, after = (
        config.scheduling.gpu_memory_utilization
        for config in (change.resolved_baseline, change.resolved_candidate)
    )
    if device != "cpu" or before == after:
        return []
    problem = "without effect on CPU, where every arm has a pool of the same size"
    return [
        FieldProblem(
            field="candidate.scheduling.gpu_memory_utilization", problem=problem, allowed="the baseline's"
        )
    ]


def _length_problems(change: Change, suite: Suite, limit: int | None) -> list[FieldProblem]:
    """What is longer than the model's context."""
    if limit is None:
        return []
    lengths = {
        "suite": suite.longest_request,
        "deployment.max_context": change.deployment.max_context or 0,
        "baseline.scheduling.max_model_len": change.resolved_baseline.scheduling.max_model_len or 0,
        "candidate.scheduling.max_model_len": change.resolved_candidate.scheduling.max_model_len or 0,
    }
    return [
        FieldProblem(
            field=field, problem=f"{length} tokens are beyond the model's context", allowed=f"at most {limit}"
        )
        for field, length in lengths.items()
        if length > limit
    ]


def _argument_problems(config: KVConfig, arm: str, allowed: frozenset[str]) -> list[FieldProblem]:
    """Engine arguments that the operator does not allow, and values that look like flags themselves."""
    names = ", ".join(sorted(allowed - FORBIDDEN_ARGUMENTS)) or "none"
    problems = []
    spelled = [name.replace("_", "-") for name in config.engine_args]
    if len(set(spelled)) < len(spelled):
        problems.append(FieldProblem(field=f"{arm}.engine_args", problem="the same argument is there twice"))
    for name, value in config.engine_args.items():
        field, dashed = f"{arm}.engine_args.{name}", name.replace("_", "-")
        required = argument_problem(name, value)
        if dashed in TYPED_ARGUMENTS:
            place = f"{arm}.{TYPED_ARGUMENTS[dashed]}"
            problems.append(FieldProblem(field=field, problem="there is a field for this", allowed=place))
        elif dashed not in allowed or dashed in FORBIDDEN_ARGUMENTS:
            problems.append(FieldProblem(field=field, problem="not allowed by the operator", allowed=names))
        elif isinstance(value, str) and value.startswith("-"):
            problems.append(
                FieldProblem(field=field, problem=f"{value!r} looks like a flag", allowed="a plain value")
            )
        elif required is not None:
            problems.append(FieldProblem(field=field, problem=f"got {value!r}", allowed=required))
    return problems


def _scheduling_problems(config: KVConfig, arm: str, suite: Suite) -> list[FieldProblem]:
    scheduling, problems = config.scheduling, []
    if scheduling.max_model_len and scheduling.max_model_len < suite.longest_request:
        problems.append(
            FieldProblem(
                field=f"{arm}.scheduling.max_model_len",
                problem=f"the suite {suite.name} needs more",
                allowed=f"at least {suite.longest_request}",
            )
        )
    batched, length = scheduling.max_num_batched_tokens, scheduling.max_model_len
    if scheduling.chunked_prefill is False and batched and length and batched < length:
        problems.append(
            FieldProblem(
                field=f"{arm}.scheduling.max_num_batched_tokens",
                problem="without chunked prefill a whole prompt must fit one batch",
                allowed=f"at least max_model_len {length}",
            )
        )
    if batched and scheduling.max_num_seqs and batched < scheduling.max_num_seqs:
        problems.append(
            FieldProblem(
                field=f"{arm}.scheduling.max_num_batched_tokens",
                problem="smaller than max_num_seqs",
                allowed=f"at least {scheduling.max_num_seqs}",
            )
        )
    return problems
