"""vLLM with a fault planted, as an engine that the product launches like any other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.plan import ArmPlan
from workers.engines.base import free_port
from workers.engines.vllm import Vllm


@dataclass(frozen=True, kw_only=True)
class Running:
    """An engine that is up, shared by several proxies. `log`: its start-up log."""

    base_url: str
    log: Path


@dataclass(kw_only=True)
class FaultyVllm(Vllm):
    """vLLM behind the proxy with `fault`: one that runs already, or one of its own, as a pool of another size needs."""

    fault: str
    running: Running | None = None

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """The proxy's command; at its end the real engine's, where it is to be started."""
        proxy = (sys.executable, "-m", "tests.faults.program", "--fault", self.fault, "--port", str(port))
        if self.running is not None and plan.pool_blocks is None:
            return (*proxy, "--upstream", self.running.base_url, "--log", str(self.running.log))
        inner = free_port()
        return (*proxy, "--upstream", f"http://127.0.0.1:{inner}", "--", *super().argv(plan, port=inner))
