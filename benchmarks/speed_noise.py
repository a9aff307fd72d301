"""How much two launches of one configuration differ in speed, and how often rules on speed are right, wrong or silent.

`record` launches vLLM on CPU and lets equal engines take turns, as a control launch does: minutes. `tables` reads what
was recorded (`benchmarks/data/speed_rounds.jsonl`) and simulates gates: seconds, no engine.
"""

import argparse
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from interval_coverage import percent, table
from scipy.stats import f as fisher
from scipy.stats import t as student

from gatekeeper.domain import speed
from gatekeeper.domain.answer import Answer
from gatekeeper.domain.change import Deployment, reference_config
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import Exercise, Measurement, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model, cache_modes
from gatekeeper.domain.speed_probe import PerformanceProbe, Turns
from gatekeeper.stats.sequential import wang_tsiatis
from workers.engines.base import launch
from workers.engines.vllm import Vllm
from workers.suites.turns import Table, take_turns

Floats = npt.NDArray[np.float64]
RECORDED = Path(__file__).parent / "data" / "speed_rounds.jsonl"
FIGURES = {
    "output_throughput_tok_s": "throughput",
    "ttft_p50_ms": "TTFT p50",
    "ttft_p99_ms": "TTFT p99",
    "itl_p50_ms": "inter-token p50",
    "itl_p99_ms": "inter-token p99",
    "e2e_p50_ms": "end-to-end p50",
}
ALPHA = 0.05


# --- recording -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class File:
    """Takes what a session measures and writes it down as it comes."""

    path: Path
    label: str
    session: int
    proofs: list[Exercise] = field(default_factory=list)

    def measurements(self, rows: Sequence[Measurement]) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            for row in rows:
                side = "companion" if row.suite == speed.COMPANION else "arm"
                entry = {"label": self.label, "session": self.session, "side": side, "item": row.item_id}
                figure = {"metric": row.metric, "mode": row.mode, "value": row.value}
                out.write(json.dumps(entry | figure) + "\n")

    def traces(self, rows: Sequence[TokenTrace]) -> None:
        raise NotImplementedError

    def answers(self, rows: Sequence[Answer]) -> None:
        raise NotImplementedError

    def exercises(self, rows: Sequence[Exercise]) -> None:
        self.proofs += rows

    def skipped(self, probe: str, reason: str) -> None:
        """Nothing is left out."""
        raise AssertionError(f"{probe} was left out: {reason}")

    def stopped(self, stop: Stop) -> None:
        raise NotImplementedError


def record(arguments: argparse.Namespace) -> None:
    """Let equal engines, or a candidate and the baseline, take turns."""
    probe = PerformanceProbe(
        probe="performance", prompts=arguments.prompts, input_tokens=arguments.input_tokens,
        output_tokens=arguments.output_tokens, rounds=arguments.rounds, turns=Turns(launches=arguments.launches),
        shared_prefix_tokens=arguments.shared_prefix_tokens, seed=arguments.seed,
    )  # fmt: skip
    longest = max(load.input_tokens for load in probe.loads) + probe.output_tokens + 128
    reference = reference_config()
    changed = KVConfig.model_validate(json.loads(arguments.candidate))
    candidate = reference.model_copy(
        update={name: getattr(changed, name) for name in changed.model_fields_set}
    )
    baseline, arm = (
        ArmPlan(
            engine="vllm", device="cpu", model=Model(name="m", source=str(arguments.model.resolve())), config=config,
            max_model_len=longest, max_num_seqs=arguments.concurrency,
        )
        for config in (reference, candidate)
    )  # fmt: skip
    engine, sink = Vllm(), File(path=arguments.into, label=arguments.label, session=arguments.session)
    with tempfile.TemporaryDirectory() as name:
        workdir = Path(name)
        started = partial(
            launch,
            engine,
            run_id="recording",
            gpu=None,
            start_seconds=900,
            stall_seconds=600,
            check=lambda: None,
        )
        table = Table(
            plans={"arm": arm, "companion": baseline}, modes=cache_modes(candidate, None),
            deployment=Deployment(concurrency=arguments.concurrency),
            together=True, run_id="recording", workdir=workdir, sink=sink,
            environment=engine.environment(baseline, gpu=None),
            launch=lambda plan, log: started(plan, log=workdir / f"{log}.log"),
            advance=lambda done, total: print(f"{done}/{total}", end=" ", flush=True), is_decided=lambda: False,
        )  # fmt: skip
        take_turns(probe, probe.turns or Turns(launches=1), table)
    print(*(f"\n{proof.counter} ({proof.mode}): {proof.moved:g}" for proof in sink.proofs))


# --- what was recorded -----------------------------------------------------------------------------------------------


def recorded(label: str) -> dict[str, list[list[tuple[float, float]]]]:
    """By figure, for each pair of launches, (companion's, arm's) figure of each round."""
    rows: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    for entry in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines()):
        if entry["label"] == label and entry["mode"] == "cold":
            suite = speed.COMPANION if entry["side"] == "companion" else speed.SUITE
            row = Measurement(
                suite=suite, mode="cold", item_id=entry["item"], cluster="", metric=entry["metric"],
                value=entry["value"],
            )  # fmt: skip
            rows[row.metric, entry["session"]].append(row)
    found: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    for (metric, _session), session in rows.items():
        if metric in FIGURES:
            both = [
                speed.rounds_of(session, metric, suite=s)["cold", "all"]
                for s in (speed.COMPANION, speed.SUITE)
            ]
            found[metric] += list(speed.paired(*both).values())
    return found


def components(pairs: Sequence[Floats]) -> tuple[float, float, float, float]:
    """Standard deviations of log ratios between pairs of launches (0 if negative) and between rounds, and F with its p.

    One-way analysis of variance, random effects; the true mean of equal engines is 0, so every pair is a degree of
    freedom between.
    """
    rounds = len(pairs[0])
    between = rounds * sum(float(pair.mean()) ** 2 for pair in pairs) / len(pairs)
    df_within = sum(pair.size - 1 for pair in pairs)
    within = sum(float(((pair - pair.mean()) ** 2).sum()) for pair in pairs) / df_within
    ratio = between / within
    launches = math.sqrt(max(between - within, 0.0) / rounds)
    return launches, math.sqrt(within), ratio, float(fisher.sf(ratio, len(pairs), df_within))


def noise_of_equal_engines(label: str) -> None:
    rows = []
    for metric, title in FIGURES.items():
        pairs = [np.array(pair) for pair in recorded(label)[metric]]
        logs = [np.log(pair[:, 1] / pair[:, 0]) for pair in pairs]
        launches, rounds, ratio, p = components(logs)
        alone = np.concatenate([np.log(pair) - np.log(pair).mean(axis=0) for pair in pairs])
        by_launch = np.array([np.log(pair).mean(axis=0) for pair in pairs])
        rows.append(
            [
                title,
                " ".join(f"{100 * log.mean():+.1f}" for log in logs),
                percent(launches),
                percent(rounds),
                f"{ratio:.1f} ({p:.2f})",
                percent(float(np.sqrt((alone**2).mean()))),
                percent(float(by_launch.ravel().std(ddof=1))),
            ]
        )
    header = [
        "figure", "log ratio by pair of launches, %", "sd between pairs", "sd between rounds", "F (p)",
        "sd of a launch's rounds", "sd of launches, one after the other",
    ]  # fmt: skip
    table(f"Equal engines that take turns, {label}, %", header, rows)


# --- simulated gates -------------------------------------------------------------------------------------------------


def gates(
    rng: np.random.Generator,
    repeats: int,
    *,
    between: float,
    rounds_sd: float,
    pairs: int,
    rounds: int,
    ratio: float,
) -> str:
    """FAIL / PASS, % of rules `at_least: 0.90`, and the mean number of pairs used, for one true ratio."""
    design = wang_tsiatis(tuple(k / pairs for k in range(1, pairs + 1)), alpha=ALPHA)
    logs = math.log(ratio) + between * rng.normal(size=(repeats, pairs, 1))
    logs = logs + rounds_sd * rng.normal(size=(repeats, pairs, rounds))
    noise = rng.normal(size=(repeats, pairs)) * math.hypot(between, rounds_sd / math.sqrt(rounds))
    over, passed, failed, used = (np.zeros(repeats, dtype=bool) for _ in range(4))
    used = np.zeros(repeats)
    for look in range(1, pairs + 1):
        means = logs[:, :look].mean(axis=2)
        mean, df = means.mean(axis=1), look - 1 + pairs
        squares = ((means - mean[:, None]) ** 2).sum(axis=1) + (noise**2).sum(axis=1)
        inner = ((logs[:, :look] - means[:, :, None]) ** 2).sum(axis=(1, 2)) / (look * (rounds - 1))
        level = 1 - design.nominal_alphas[look - 1]
        reach = np.maximum(
            student.ppf(level, df) * np.sqrt(squares / df / look),
            student.ppf(level, look * (rounds - 1)) * np.sqrt(inner / rounds / look),
        )
        used[~over] = look
        passed |= ~over & (mean - reach >= math.log(0.9))
        failed |= ~over & (mean + reach < math.log(0.9))
        over |= passed | failed
    return f"{percent(failed.mean())} / {percent(passed.mean())} ({used.mean():.1f})"


def simulated_gates(rng: np.random.Generator, repeats: int) -> None:
    ratios = (1.0, 0.95, 0.9, 0.85, 0.8)
    rows = [
        [
            f"{percent(between)}, {percent(rounds_sd)}",
            f"{pairs} × {rounds}",
            *(
                gates(
                    rng,
                    repeats,
                    between=between,
                    rounds_sd=rounds_sd,
                    pairs=pairs,
                    rounds=rounds,
                    ratio=ratio,
                )
                for ratio in ratios
            ),
        ]
        for between, rounds_sd in ((0.0, 0.06), (0.02, 0.06), (0.02, 0.10), (0.05, 0.06))
        for pairs, rounds in ((1, 8), (2, 4), (3, 4))
    ]
    header = ["sd of pairs, of rounds, %", "pairs × rounds", *(f"true ratio {ratio:g}" for ratio in ratios)]
    table(
        f"`at_least: 0.90` on throughput: FAIL / PASS, % (pairs used), {repeats:,} repetitions", header, rows
    )


def tables(arguments: argparse.Namespace) -> None:
    """Print every table."""
    for label in labels():
        noise_of_equal_engines(label)
    simulated_gates(np.random.default_rng(arguments.seed), arguments.repetitions)


def labels() -> Iterable[str]:
    """The recordings of equal engines, in order."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    known = dict.fromkeys(json.loads(line)["label"] for line in lines)
    return [label for label in known if label.startswith("equal")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    shown = verbs.add_parser("tables")
    shown.add_argument("--repetitions", type=int, default=20_000)
    shown.add_argument("--seed", type=int, default=1)
    shown.set_defaults(run=tables)
    taken = verbs.add_parser("record")
    taken.add_argument("--label", required=True, help="a name; equal engines' begin with `equal`")
    taken.add_argument("--model", type=Path, required=True, help="a directory")
    taken.add_argument("--into", type=Path, default=RECORDED)
    taken.add_argument("--candidate", default="{}", help="KV settings as JSON; none: equal engines")
    for name, default in {
        "launches": 4, "rounds": 8, "prompts": 16, "input-tokens": 128, "output-tokens": 64, "concurrency": 8,
        "shared-prefix-tokens": 0, "seed": 1, "session": 1,
    }.items():  # fmt: skip
        taken.add_argument(f"--{name}", type=int, default=default)
    taken.set_defaults(run=record)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
