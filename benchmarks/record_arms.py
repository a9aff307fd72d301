"""Launch vLLM once per arm and keep all that the quality probes of the standard suite produce, and when.

    python benchmarks/record_arms.py --into recordings launch-01 launch-02 fp8_e4m3
    python benchmarks/record_arms.py --list

Arms whose file is there are left out, so an interrupted recording goes on where it was. An arm takes some minutes on
two cores. Needs the worker's requirements and the bundled model (`python -m workers.models build`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from arms import ARMS, Damage, quality_suite
from damaged_models import noisy_copy
from emulated_cache import EmulatedCache
from recordings import Recording, Stored, path_of, write_recording

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.change import Deployment
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import Exercise, Measurement, Mode, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model
from gatekeeper.domain.suite import Suite
from gatekeeper.embedded.bundled_model import bundled_model
from workers.engines.base import Server, launch
from workers.suites import run_probe
from workers.suites.base import Bench

SHORT_BLOCKS: Final = 32
"""Tokens. The choices of one item share its prompt, which is computed once; blocks of the CPU's default 128 tokens are
longer than most prompts. A gate's own baseline reuses nothing, so that the cache is cold; the values are the same."""


def plan_of(damage: Damage, model: Model, suite: Suite) -> ArmPlan:
    """The launch, as the product would plan it."""
    config = KVConfig.model_validate(
        {
            "reuse": {"prefix_caching": True},
            "scheduling": {"block_size": SHORT_BLOCKS},
            "eviction": {"policy": "sliding_window", "window": damage.window}
            if damage.window
            else {"policy": "none"},
        }
    )
    return ArmPlan(
        engine="vllm", device="cpu", model=model, config=config, max_model_len=suite.longest_request + 128,
        max_num_seqs=Deployment().requests_in_flight,
    )  # fmt: skip


@dataclass(kw_only=True)
class Clocked:
    """Keeps what the probes store, and when."""

    began: float = field(default_factory=time.monotonic)
    stored: list[Stored] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since this began."""
        return round(time.monotonic() - self.began, 2)

    def measurements(self, rows: Sequence[Measurement]) -> None:
        """One batch of items."""
        self.stored.append(Stored(seconds=self.seconds, measurements=tuple(rows)))

    def traces(self, rows: Sequence[TokenTrace]) -> None:
        """One document."""
        self.stored.append(Stored(seconds=self.seconds, traces=tuple(rows)))

    def answers(self, rows: Sequence[Answer]) -> None:
        """Not kept: nothing is read here."""

    def exercises(self, rows: Sequence[Exercise]) -> None:
        """Not kept: here prompts are reused, which the probes take for a fault."""

    def skipped(self, probe: str, reason: str) -> None:
        """Nothing is left out."""
        raise RuntimeError(f"{probe}: {reason}")

    def stopped(self, stop: Stop) -> None:
        """Nothing is stopped early: looks are taken afterwards."""
        raise RuntimeError(stop.reason)


@contextmanager
def damaged(model: Model, damage: Damage) -> Iterator[Model]:
    """The model, or a copy with noise that lives as long as the block."""
    if damage.part is None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="damaged-model-") as folder:
        noisy_copy(Path(model.source), Path(folder), part=damage.part, strength=damage.noise, seed=1)
        yield model.model_copy(update={"source": folder})


def record(names: Sequence[str], model: Model, suite: Suite) -> Iterator[Recording]:
    """Measure arms that one launch can serve, one after the other: the product's launch, probes and readers."""
    damage, begun = ARMS[names[0]], time.monotonic()
    with damaged(model, damage) as source, tempfile.TemporaryDirectory(prefix="recording-") as folder:
        plan, workdir, run_id = plan_of(damage, source, suite), Path(folder), uuid.uuid4().hex
        engine = EmulatedCache(workdir / "cache")
        engine.chosen.write_text(damage.cache)
        with launch(
            engine, plan, run_id=run_id, log=workdir / "engine.log", gpu=None, start_seconds=900,
            stall_seconds=900, check=lambda: None,
        ) as server:  # fmt: skip
            start_seconds = round(time.monotonic() - begun, 2)
            for name in names:
                engine.take(ARMS[name].cache, server)
                clocked, within = Clocked(), workdir / name
                within.mkdir()
                for probe in suite.probes:
                    run_probe(probe, _bench(server, clocked, run_id, within))
                yield Recording(
                    name=name, engine=engine.info(plan, gpu=None), start_seconds=start_seconds,
                    effective=replace(server.effective, cache_dtype=ARMS[name].cache),
                    suite_seconds=clocked.seconds, stored=tuple(clocked.stored),
                )  # fmt: skip


def launches(names: Sequence[str]) -> Iterator[list[str]]:
    """The arms of each launch. Roundings share one; every baseline, window and noisy copy has its own."""
    rounded = [name for name in names if ARMS[name] == Damage(cache=name)]
    yield from ([name] for name in names if name not in rounded)
    if rounded:
        yield rounded


def _bench(server: Server, clocked: Clocked, run_id: str, workdir: Path) -> Bench:
    return Bench(
        server=server, sink=clocked, run_id=run_id, workdir=workdir, deployment=Deployment(), modes=("cold",),
        tasks_dir=None, advance=_nobody_watches, settled=_never_settled, references=_as_baseline,
    )  # fmt: skip


def _nobody_watches(_done: int, _total: int) -> None:
    pass


def _never_settled(_suite: str, _mode: Mode, _batches: int) -> None:
    pass


def _as_baseline(_mode: Mode) -> Mapping[str, Sequence[int]]:
    return {}


def main() -> None:
    """Record the arms that are asked for and not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arms", nargs="*", metavar="ARM", help="default: all of them")
    parser.add_argument("--list", action="store_true", help="print the arms and stop")
    parser.add_argument(
        "--home", type=Path, default=Path(".gatekeeper"), help="where the bundled model was built"
    )
    parser.add_argument("--into", type=Path, default=Path("recordings"))
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--items-per-task", type=int)
    options = parser.parse_args()
    if options.list:
        print(*ARMS, sep="\n")
        return
    unknown = set(options.arms) - set(ARMS)
    if unknown:
        parser.error(f"unknown arms {', '.join(sorted(unknown))}; --list shows what is allowed")
    options.into.mkdir(parents=True, exist_ok=True)
    model = bundled_model(options.home.absolute())
    suite = quality_suite(documents=options.documents, items_per_task=options.items_per_task)
    wanted = [name for name in options.arms or ARMS if not path_of(options.into, name).exists()]
    for together in launches(wanted):
        for done in record(together, model, suite):
            write_recording(path_of(options.into, done.name), done)
            print(f"{done.name}: {done.start_seconds:.0f} s to start, {done.suite_seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
