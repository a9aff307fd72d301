"""vLLM's own serving benchmark, several rounds in one process: importing vLLM takes longer than a round does.

A program: `python -m workers.suites.serving_benchmark --rounds N --seed S --results DIR -- <vLLM's own arguments>`.
Round i writes DIR/round-<i>.json and uses seed S + i, so that no round repeats a prompt of an earlier one.
"""

from __future__ import annotations

import argparse
import sys


def main() -> None:
    """Parse our arguments, hand the rest to vLLM's parser, and run the rounds."""
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as benchmark
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    own = argparse.ArgumentParser()
    own.add_argument("--rounds", type=int, required=True)
    own.add_argument("--seed", type=int, required=True)
    own.add_argument("--results", required=True)
    split = sys.argv.index("--")
    ours = own.parse_args(sys.argv[1:split])
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    for number in range(ours.rounds):
        round_arguments = [
            *sys.argv[split + 1 :], "--seed", str(ours.seed + number), "--save-result",
            "--result-dir", ours.results, "--result-filename", f"round-{number}.json",
        ]  # fmt: skip
        benchmark(parser.parse_args(round_arguments))


if __name__ == "__main__":
    main()
