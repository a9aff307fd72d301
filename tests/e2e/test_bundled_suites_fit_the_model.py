"""Whether the retrieval items of every bundled suite can be written with the tokens of the bundled model."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatekeeper.catalog import get_suite, list_names
from gatekeeper.domain.probes import RetrievalProbe
from gatekeeper.domain.suite import Suite
from gatekeeper.embedded.bundled_model import directory, is_built
from workers.suites.context.families import FAMILIES
from workers.suites.context.items import Tokenizer, write_items

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

HOME = Path(os.environ.get("GATEKEEPER_HOME", ".gatekeeper")).absolute()
SHORT = 400
"""Contexts of fewer tokens than this may be too short for an item; longer ones never are."""


@dataclass(frozen=True, kw_only=True)
class TokenServer:
    """An engine that only tokenizes."""

    tokenizer: Any
    plan: Any

    def post(self, _path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if "prompt" in body:
            return {"tokens": self.tokenizer(body["prompt"])["input_ids"]}
        how = {key: body[key] for key in ("add_generation_prompt", "continue_final_message") if key in body}
        return {"tokens": self.tokenizer.apply_chat_template(body["messages"], return_dict=False, **how)}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    from transformers import AutoTokenizer

    assert is_built(HOME), "`python -m workers.models build` makes the bundled model"
    plan = SimpleNamespace(model=SimpleNamespace(name="m"))
    server = TokenServer(tokenizer=AutoTokenizer.from_pretrained(directory(HOME)), plan=plan)
    return Tokenizer(server=server)  # type: ignore[arg-type]


def short_cells(suite: Suite) -> set[tuple[str, int, int, int]]:
    return {
        (family, length, probe.items_per_cell, probe.seed)
        for probe in suite.probes
        if isinstance(probe, RetrievalProbe)
        for family in probe.families
        for length in probe.context_tokens
        if length < SHORT
    }


def test_every_item_of_a_short_context_fits(tokenizer: Tokenizer) -> None:
    cells = set().union(*(short_cells(get_suite(name)) for name in list_names("suites", None)))
    assert len(cells) > 20
    for family, length, count, seed in sorted(cells):
        write = FAMILIES[family]  # type: ignore[index]
        items = list(write_items(write, family, tokenizer, length=length, count=count, seed=seed))
        assert len(items) == count
        assert all(item.context_tokens <= length for item in items)
