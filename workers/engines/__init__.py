"""Engines: subprocesses that serve the OpenAI-compatible API with one KV configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gatekeeper.domain.change import EngineName
from gatekeeper.domain.plan import ArmPlan
from workers.engines.base import Engine
from workers.engines.llama_cpp import LLAMA_CPP
from workers.engines.lmdeploy import LMDEPLOY
from workers.engines.reference.engine import Reference
from workers.engines.sglang import SGLANG
from workers.engines.tensorrt_llm import TENSORRT_LLM
from workers.engines.vllm import Vllm

ENGINES: Final[Mapping[EngineName, Engine]] = {
    "vllm": Vllm(),
    "reference": Reference(),
    "llama_cpp": LLAMA_CPP,
    "sglang": SGLANG,
    "lmdeploy": LMDEPLOY,
    "tensorrt_llm": TENSORRT_LLM,
}


def choose(plan: ArmPlan) -> Engine:
    """The engine that a plan names."""
    return ENGINES[plan.engine]
