"""Engines that are started by one command and read by their log: llama.cpp, SGLang, LMDeploy, TensorRT-LLM.

Only what tells them apart is in their own modules: the command, and how they word their configuration.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gatekeeper.domain.measurement import EffectiveConfig, Evidence
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo

Found = Mapping[str, Any]
"""Field of EffectiveConfig -> value; None: the engine did not say."""

EXCEPTION: Final = re.compile(r"[\w.]*(?:Error|Exception)\b: .+|\berror: .+|\bfailed to .+", re.IGNORECASE)


@dataclass(kw_only=True, slots=True)
class ServedEngine:
    """One kind of engine. `command(plan, port)`: its argv up to the flags that the arm decides.

    `measured(log)` and `reported(models, log)` read its configuration; `given_up`: what its log says when it
    will not start although it lives.
    """

    name: str
    distribution: str
    command: Callable[[ArmPlan, int], tuple[str, ...]]
    measured: Callable[[str], Found]
    reported: Callable[[Mapping[str, Any], str], Found]
    variables: Mapping[str, str]
    given_up: str = ""

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """The command that serves `plan` on loopback at `port`."""
        return (*self.command(plan, port), *plan.serve_flags)

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        """No hub for local models, one device on GPU."""
        variables = {"PYTHONUNBUFFERED": "1", "DO_NOT_TRACK": "1", **self.variables}
        if Path(plan.model.source).is_absolute():
            variables["HF_HUB_OFFLINE"] = "1"
        if gpu is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        return variables

    def info(self, plan: ArmPlan, *, gpu: str | None) -> EngineInfo:
        """The installed build and the processor or the reserved GPU's model."""
        try:
            version = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        hardware = _processor() if plan.device == "cpu" else _gpu(gpu)
        return EngineInfo(
            name=self.name, version=f"{self.distribution} {version}", device=plan.device, hardware=hardware
        )

    def effective(
        self,
        metrics_text: str,  # noqa: ARG002 - their metrics count requests and say nothing of the configuration
        models: Mapping[str, object],
        log: str,
        *,
        arguments: Collection[str] = (),  # noqa: ARG002 - none of these engines repeats what was passed through
    ) -> EffectiveConfig:
        """What the allocation in the log shows counts more than what the engine says of its settings."""
        sources: list[tuple[Evidence, Found]] = [
            ("measured", self.measured(log)),
            ("reported", self.reported(models, log)),
        ]
        fields: dict[str, Any] = {}
        evidence: dict[str, Evidence] = {}
        for kind, found in sources:
            for name, value in found.items():
                if value is not None and name not in fields:
                    fields[name], evidence[name] = value, kind
        return EffectiveConfig(**fields, evidence=evidence)

    def has_given_up(self, log: str) -> bool:
        """Whether the log says that the engine will not start, even while its process lives."""
        return bool(self.given_up) and self.given_up in log

    def root_cause(self, log: str) -> str:
        """The first line that names an error, or the last line."""
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        causes = [match.group(0) for line in lines if (match := EXCEPTION.search(line))] or lines[-1:]
        return causes[0][:500] if causes else "the engine said nothing"


def integer(pattern: str, log: str) -> int | None:
    """The first group of the first match as a whole number."""
    match = re.search(pattern, log)
    return int(match.group(1).replace(",", "")) if match else None


def served_length(models: Mapping[str, Any]) -> int | None:
    """What `/v1/models` says of the longest sequence, if it does."""
    served = (models.get("data") or [{}])[0]
    length = served.get("max_model_len") or (served.get("meta") or {}).get("n_ctx")
    return length if isinstance(length, int) else None


@lru_cache
def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    words = flags.group(1).split() if flags else []
    known = ("avx2", "avx512f", "avx512_vnni", "amx_tile")
    vectors = " ".join(sorted(name for name in known if name in words))
    return f"{model.group(1) if model else platform.machine()} ({vectors})"


@lru_cache
def _gpu(gpu: str | None) -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    chosen = ["-i", gpu] if gpu else []
    done = subprocess.run([*query, *chosen], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].strip()
