"""What KV methods cost by the length of the context, on the reference engine: the curve of the fidelity suite.

`python benchmarks/context_curve.py MODEL --lengths 128 1536 --documents 4 --decoded 32 "FP8 e4m3" …` scores bundled
texts after contexts of these lengths, the same forced tokens at each, with the full cache and with each method of
`methods.METHODS`, and prints decode KL by length, and its drift, as the judge estimates them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import torch
from methods import FULL, METHODS, forced, trace_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.delta import Basis, deltas_between
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model
from gatekeeper.domain.verdict import Delta
from workers.engines.base import Server
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.runner import Runner
from workers.suites.documents import Document, load_at_lengths


def documents(tokenizer: Any, given: argparse.Namespace) -> list[Document]:
    """What the fidelity probe would score, cut by the model's own tokenizer."""

    def tokenize(_path: str, body: Mapping[str, Any]) -> dict[str, list[int]]:
        return {"tokens": tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]}

    server = SimpleNamespace(post=tokenize, plan=SimpleNamespace(model=SimpleNamespace(name="")))
    texts = load_at_lengths(
        cast("Server", server),
        documents=given.documents,
        context_lengths=given.lengths,
        decode_tokens=given.decoded,
    )
    return [document for of_one_text in texts for document in of_one_text]


def scored(runner: Runner, found: Sequence[Document]) -> list[TokenTrace]:
    """The traces of a method, one document at a time."""
    traces = []
    for document in found:
        rows = forced(runner, [runner.read_prompt(document.prompt)], [document.reference])
        trace = trace_of(document.item_id, document.reference, torch.cat(list(rows)))
        traces.append(replace(trace, cluster=document.cluster, context_tokens=len(document.prompt)))
    return traces


def arm(role: Role, traces: Sequence[TokenTrace], longest: int) -> ArmRecord:
    """An arm that measured nothing else."""
    plan = ArmPlan(
        engine="reference", device="cpu", model=Model(name="m", source="m"), config=KVConfig(),
        max_model_len=longest, max_num_seqs=1,
    )  # fmt: skip
    return ArmRecord(role=role, plan=plan, traces=tuple(traces), complete=True)


def row(name: str, deltas: Sequence[Delta]) -> str:
    """A line of the table: KL after each length, and the drift over them."""
    whole = {delta.metric: delta for delta in deltas}
    drift = whole["kl_context_drift"]
    cells = [_cell(point.estimate, point.lower, point.upper) for point in whole["decode_kl"].context_curve]
    return f"| {' | '.join((name, *cells, _cell(drift.estimate, drift.lower, drift.upper)))} |"


def _cell(estimate: float, lower: float | None, upper: float | None) -> str:
    return f"{estimate:.4f} ({lower:.4f} to {upper:.4f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("methods", nargs="+", choices=[name for name in METHODS if name != FULL])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 1536])
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--decoded", type=int, default=64)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(
        given.model, dtype=torch.float32, attn_implementation=ATTENTION
    ).eval()
    found, longest = documents(tokenizer, given), max(given.lengths) + given.decoded
    print(f"| method | {' | '.join(f'{n:,} tokens' for n in sorted(given.lengths))} | drift |")
    print(f"|{' --- |' * (len(given.lengths) + 2)}")
    baseline = None
    for name in (FULL, *given.methods):
        runner = Runner(model=model, config=KVConfig.model_validate(METHODS[name]), piece=None, rows=1)
        measured = arm("baseline" if name == FULL else "candidate", scored(runner, found), longest)
        baseline = baseline or measured
        if name != FULL:
            print(row(name, deltas_between(baseline, measured, Basis(confidence=0.95))), flush=True)


if __name__ == "__main__":
    main()
