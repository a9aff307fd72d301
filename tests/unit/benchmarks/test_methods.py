"""What the benchmark of methods measures on a small random model, and the verdict that is made of it."""

import json
from collections.abc import Mapping
from typing import Any

import methods
import pytest
from method_verdicts import Items, answerable, judged, plan_of, suite_of, unanswered
from pydantic import TypeAdapter

from gatekeeper.catalog import get_policy
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.verdict import Report, Verdict
from tests.unit.reference.tiny import VOCABULARY, model, runner

CONTEXT, DECODED = 128, 16
SHAPE = ModelShape.from_hf_config(model().config.to_dict())
SUITE = suite_of(
    texts=methods.TEXTS, context=CONTEXT, decoded=DECODED, passkeys=methods.PASSKEYS, longest=256
)


def tokenizer(text: str) -> dict[str, list[int]]:
    return {"input_ids": [byte % VOCABULARY for byte in text.encode()]}


@pytest.fixture(scope="module", autouse=True)
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "CONTEXT", CONTEXT)
        patch.setattr(methods, "DECODED", DECODED)
        yield


@pytest.fixture(scope="module")
def full() -> tuple[dict[str, Any], Any]:
    return methods.measure(runner(rows=methods.PASSKEYS), tokenizer, None)


def report(full: tuple[dict[str, Any], Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], Report]:
    figures, _ = methods.measure(runner(dict(config), rows=methods.PASSKEYS), tokenizer, full[1])
    stored = [json.loads(json.dumps(one["items"])) for one in (full[0], figures)]
    baseline, candidate = (TypeAdapter(Items).validate_python(one) for one in stored)
    return figures, judged(plan_of(config, SHAPE, SUITE), baseline, candidate)


def test_items_give_the_figures_of_the_table(full: tuple[dict[str, Any], Any]) -> None:
    figures, found = report(full, {"quantization": {"scheme": "int4"}})
    deltas = {delta.metric: delta.estimate for delta in found.deltas if delta.group == "all"}
    assert deltas["decode_nll"] == pytest.approx(figures["nll_change"], abs=1e-4)
    assert deltas["top1_agreement"] == pytest.approx(figures["top1"], abs=1e-6)
    assert 0 < deltas["decode_kl"] <= figures["kl"] + 1e-4  # of the most probable tokens alone


def test_a_method_that_loses_the_context_fails_and_a_lossless_one_does_not(
    full: tuple[dict[str, Any], Any],
) -> None:
    window = {"eviction": {"policy": "sliding_window", "window": 4}}
    assert report(full, window)[1].verdict is Verdict.FAIL
    everything = {"eviction": {"policy": "topk", "k": 140}}
    found = report(full, everything)[1]
    assert {f.metric: f.outcome.value for f in found.findings if f.metric != "retrieval_probability"} == {
        "decode_kl": "Passed", "decode_nll": "Passed", "top1_agreement": "Passed",
    }  # fmt: skip


def test_the_rules_that_were_asked_and_those_that_were_not_are_the_whole_policy() -> None:
    asked = {rule.metric for rule in answerable(get_policy("default"), SUITE).rules}
    silent = {rule.metric for rule in unanswered(SUITE)}
    assert asked | silent == {rule.metric for rule in get_policy("default").rules}
    assert {"accuracy", "choice_probability", "consistency_kl", "throughput_ratio"} == silent
