"""Which engine runs a change: one for both arms, since figures of two engines are no pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain import reference_engine, vllm_flags
from gatekeeper.domain.capability import capability_problems
from gatekeeper.domain.change import EngineName
from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.layer_problems import layer_problems

NO_POOL_OF_BLOCKS: Final = (
    "{engine}: it is not told how many blocks its pool has, which only vLLM has a flag for"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineChoice:
    """An engine, why it is that one, and what it cannot do of the change."""

    engine: EngineName
    reason: str
    problems: tuple[FieldProblem, ...] = ()


def choose_engine(
    asked: EngineName | None,
    configs: Mapping[str, KVConfig],
    *,
    device: vllm_flags.Device,
    shape: ModelShape | None,
) -> EngineChoice:
    """vLLM wherever it has all of both arms on this device, else the reference engine. `configs`: by arm.

    Where neither has it, what each lacks is said, in the order in which they would be tried.
    """
    if asked is not None:
        problems = _problems(asked, configs, device=device, shape=shape)
        return EngineChoice(engine=asked, reason="the change asks for it", problems=problems)
    vllm = _problems("vllm", configs, device=device, shape=shape)
    if not vllm:
        return EngineChoice(engine="vllm", reason=f"vLLM has the whole change on {device}")
    reference = _problems("reference", configs, device=device, shape=shape)
    if reference:
        return EngineChoice(engine="vllm", reason="no engine has the whole change", problems=vllm + reference)
    return EngineChoice(engine="reference", reason=vllm[0].problem)


def _problems(
    engine: EngineName,
    configs: Mapping[str, KVConfig],
    *,
    device: vllm_flags.Device,
    shape: ModelShape | None,
) -> tuple[FieldProblem, ...]:
    found = (_of_arm(engine, arm, config, device, shape) for arm, config in configs.items())
    return tuple(problem for problems in found for problem in problems)


def _of_arm(
    engine: EngineName, arm: str, config: KVConfig, device: vllm_flags.Device, shape: ModelShape | None
) -> list[FieldProblem]:
    return [
        *layer_problems(config, arm=arm, shape=shape),
        *_of_engine(engine, arm, config, device, shape),
    ]


def _of_engine(
    engine: EngineName, arm: str, config: KVConfig, device: vllm_flags.Device, shape: ModelShape | None
) -> list[FieldProblem]:
    if engine == "vllm":
        return vllm_flags.unsupported(config, arm=arm, device=device)
    if engine == "reference":
        return reference_engine.unsupported(config, arm=arm, shape=shape)
    return capability_problems(engine, device, config, arm=arm)


def left_out(engine: EngineName, *, suite: str, mode: str) -> str | None:
    """Why a suite, or a mode of it, says nothing of a change on this engine; None where it does."""
    if engine == "vllm":
        return None
    if engine == "reference":
        return reference_engine.LEAVES_OUT.get(suite) or reference_engine.LEAVES_OUT.get(mode)
    return NO_POOL_OF_BLOCKS.format(engine=engine) if "saturated" in (suite, mode) else None
