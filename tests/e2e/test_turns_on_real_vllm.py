"""Real engines that take turns: prefix caching against the baseline, under prompts that share a prefix and others."""

import os
import uuid
from functools import partial
from pathlib import Path

import pytest

from gatekeeper.domain.change import Deployment, Slo, reference_config
from gatekeeper.domain.kv_config import Reuse
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import ArmPlan, Model
from gatekeeper.domain.sample import TurnsSample, round_samples
from gatekeeper.domain.speed import COMPANION, SUITE
from gatekeeper.domain.speed_probe import PerformanceProbe, Turns
from gatekeeper.embedded.bundled_model import directory, is_built
from gatekeeper.marked import marked_processes
from tests.fakes.engine import MemoryArm
from workers.engines.base import launch
from workers.engines.vllm import Vllm
from workers.suites.base import PREFIX_HITS
from workers.suites.turns import Table, take_turns
from workers.supervisor import MARKER

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1500)]

HOME = Path(os.environ.get("GATEKEEPER_HOME", ".gatekeeper")).absolute()
PROBE = PerformanceProbe(
    probe="performance", prompts=4, input_tokens=16, output_tokens=4, shared_prefix_tokens=256, rounds=2,
    turns=Turns(launches=1),
)  # fmt: skip


@pytest.mark.skipif(not is_built(HOME), reason="the bundled model is not built")
def test_prefix_caching_shows_in_the_time_to_the_first_token_of_prompts_that_share_a_prefix(
    tmp_path: Path,
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    engine, run_id, model = Vllm(), uuid.uuid4().hex, Model(name="m", source=str(directory(HOME)))
    baseline, caching = (
        ArmPlan(
            engine="vllm", device="cpu", model=model, max_model_len=512, max_num_seqs=4,
            config=reference_config().model_copy(update={"reuse": Reuse(prefix_caching=reused)}),
        )
        for reused in (False, True)
    )  # fmt: skip
    arm = MemoryArm(role="candidate", plan=caching)
    started = partial(
        launch, engine, run_id=run_id, gpu=None, start_seconds=600, stall_seconds=300, check=lambda: None
    )
    table = Table(
        plans={"arm": caching, "companion": baseline}, modes=("cold", "warm"), together=True,
        run_id=run_id, workdir=tmp_path, sink=arm,
        deployment=Deployment(concurrency=2, slo=Slo(ttft_ms=60_000)), is_decided=lambda: True,
        environment=engine.environment(caching, gpu=None), advance=lambda _done, _total: None,
        launch=lambda plan, name: started(plan, log=tmp_path / f"{name}.log"),
    )  # fmt: skip
    take_turns(PROBE, Turns(launches=1), table)

    assert [proof.counter for proof in arm.proofs if not proof.happened] == []
    hits = {proof.mode: proof.moved for proof in arm.proofs if proof.counter == PREFIX_HITS}
    assert hits["cold"] == 0
    blocks = 128  # tokens of a cache block on CPU; two requests of a round meet an empty cache
    assert (hits["warm"] or 0) >= PROBE.rounds * (PROBE.prompts - 2) * blocks
    samples = {sample.place.key: sample for sample in round_samples([], arm.rows)}
    speed = [metric.name for metric in METRICS.values() if metric.kind == "speed"]
    assert set(samples) == {(metric, mode, "all") for metric in speed for mode in ("cold", "warm")}
    shared = samples["ttft_p50_ratio", "warm", "all"]
    assert isinstance(shared, TurnsSample)
    assert all(with_cache < without for without, with_cache in shared.pairs[1]), shared.pairs
    assert {row.suite for row in arm.rows} == {SUITE, COMPANION}
    assert marked_processes(MARKER, run_id) == {}
