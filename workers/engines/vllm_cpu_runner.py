"""vLLM's model runner on CPU, which can read a seeded request's prompt in pieces. Only vLLM's own processes import it.

A piece that is not a prompt's last draws a token that is thrown away. vLLM's runner (0.32) takes that draw back by the
offset of the request's generator, which torch's generators on CPU do not have: the engine ended with "CPU Generator
does not use offset". Here the generator's state from before the draw is put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.worker.cpu_model_runner import CPUModelRunner

if TYPE_CHECKING:
    import torch


class SeededCPUModelRunner(CPUModelRunner):
    """What `workers.engines.vllm_cpu.register` has vLLM's worker on CPU use."""

    _before_draws: dict[int, torch.Tensor]
    """By place in the batch, the state of each generator whose draw of this step will be thrown away."""

    def _sample(self, *arguments: Any, **named: Any) -> Any:
        generators = self.input_batch.generators
        thrown_away = (place for place in generators if self.discard_request_mask.np[place])
        self._before_draws = {place: generators[place].get_state() for place in thrown_away}
        return super()._sample(*arguments, **named)

    def _bookkeeping_sync(self, *arguments: Any, **named: Any) -> Any:
        every = self.input_batch.generators
        for place, state in self._before_draws.items():
            every[place].set_state(state)
        kept = {place: every[place] for place in every if place not in self._before_draws}
        self.input_batch.generators = kept
        try:
            return super()._bookkeeping_sync(*arguments, **named)
        finally:
            self.input_batch.generators = every
