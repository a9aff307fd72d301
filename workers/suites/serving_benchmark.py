"""vLLM's own serving benchmark, round after round in one process: importing vLLM takes longer than a round does.

A program: `python -m workers.suites.serving_benchmark --orders DIR -- <vLLM's own arguments>`. It waits for
DIR/order-<n>.json, n = 0, 1, ..., a list of further arguments of vLLM's benchmark, and writes DIR/result-<n>.json, in
place at once, with the figures of every request. It goes on until it is ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02


def main() -> None:
    """Parse our argument, hand the rest to vLLM's parser, and run the rounds as they are ordered."""
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as benchmark
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    own = argparse.ArgumentParser()
    own.add_argument("--orders", type=Path, required=True)
    split = sys.argv.index("--")
    folder: Path = own.parse_args(sys.argv[1:split]).orders
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    for number in itertools.count():
        order = folder / f"order-{number}.json"
        while not order.exists():
            time.sleep(POLL_SECONDS)
        arguments = [*sys.argv[split + 1 :], *json.loads(order.read_text(encoding="utf-8"))]
        draft = folder / f"draft-{number}.json"
        saved = [
            "--save-result",
            "--save-detailed",
            "--result-dir",
            str(folder),
            "--result-filename",
            draft.name,
        ]
        benchmark(parser.parse_args([*arguments, *saved]))
        draft.rename(folder / f"result-{number}.json")


if __name__ == "__main__":
    main()
