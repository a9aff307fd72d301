"""The operator's own prompts: read from JSON lines, cut into tokens, and asked beside the generated tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper.domain.probes import RetrievalProbe
from tests.fakes.engine import MemoryArm, fake_plan
from tests.fakes.word_server import WordServer
from tests.unit.suites.context.test_retrieval import bench
from workers.engines.errors import ProbeFailed
from workers.suites import run_probe
from workers.suites.context.items import Tokenizer
from workers.suites.context.prompt_sets import PromptSet

LINES: list[dict[str, Any]] = [
    {"id": "capital", "prompt": "The capital of France is", "answer": " Paris"},
    {"prompt": [{"role": "user", "content": "What is red?"}], "answer": "A rose"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    write(tmp_path, *map(json.dumps, LINES))
    return tmp_path


def write(folder: Path, *lines: str) -> None:
    (folder / "prompts" / "mine.jsonl").write_text("\n".join(lines) + "\n")


def items(folder: Path | None, count: int = 2, longest: int = 256) -> list[Any]:
    tokenizer = Tokenizer(server=WordServer())  # type: ignore[arg-type]
    return list(PromptSet(name="mine", count=count, folder=folder).items(tokenizer, longest=longest))


def test_a_line_becomes_an_item_whose_answer_is_forced_and_scored(folder: Path) -> None:
    text, chat = items(folder)
    assert (text.item_id, chat.item_id, text.family) == ("mine/capital", "mine/1", "mine")
    assert (len(text.prompt), len(text.forced), text.scored) == (5, 1, (True,))
    assert all(chat.scored)
    assert [item.item_id for item in items(folder, count=1)] == ["mine/capital"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "a"}', "line 1: answer: Field required"),
        ('{"prompt": "", "answer": "b"}', "line 1: prompt"),
        ('{"prompt": "a", "answer": "b", "extra": 1}', "line 1: extra"),
        ('{"prompt": "a", "answer": "b", "id": "no spaces"}', "line 1: id"),
        ("prompt: a", "line 1 is not JSON"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(folder: Path, line: str, words: str) -> None:
    write(folder, line)
    with pytest.raises(ProbeFailed, match=words):
        items(folder, count=1)


def test_a_set_that_is_missing_short_doubled_or_too_long_is_refused(folder: Path) -> None:
    with pytest.raises(ProbeFailed, match="has 2 lines, the suite asks for 3"):
        items(folder, count=3)
    with pytest.raises(ProbeFailed, match="6 tokens, 5 are allowed"):
        items(folder, longest=5)
    with pytest.raises(ProbeFailed, match="GATEKEEPER_TASKS_DIR"):
        items(None)
    with pytest.raises(ProbeFailed, match=r"prompts/mine\.jsonl"):
        items(folder / "elsewhere")
    write(folder, json.dumps(LINES[0]), json.dumps(LINES[0]))
    with pytest.raises(ProbeFailed, match="'capital' is there twice"):
        items(folder)


def test_a_suite_names_sets_beside_families_and_knows_their_size(folder: Path) -> None:
    probe = RetrievalProbe(
        probe="retrieval",
        families=("needle",),
        context_tokens=(256,),
        items_per_cell=2,
        prompt_sets={"mine": 2},
    )
    assert probe.items == {"needle": 2, "mine": 2}
    sink = MemoryArm(role="baseline", plan=fake_plan().baseline)
    run_probe(probe, replace(bench(WordServer(), sink), tasks_dir=folder))
    right = [row for row in sink.rows if row.metric == "retrieved"]
    assert {row.cluster for row in right} == {"needle", "mine"}
    assert [row.value for row in right] == [1.0] * 4


def test_a_set_is_asked_although_no_family_can_be(folder: Path) -> None:
    probe = RetrievalProbe(
        probe="retrieval",
        families=("chat",),
        context_tokens=(256,),
        items_per_cell=2,
        prompt_sets={"mine": 1},
    )
    sink = MemoryArm(role="baseline", plan=fake_plan().baseline)
    run_probe(probe, replace(bench(WordServer(has_template=False), sink), tasks_dir=folder))
    assert {row.item_id for row in sink.rows} == {"mine/capital"}
    assert sink.left_out == [("retrieval/chat", "no chat template")]


@pytest.mark.parametrize(
    ("sets", "words"), [({"needle": 2}, "name of a family"), ({"../x": 2}, "pattern"), ({"a": 0}, "1")]
)
def test_a_set_that_cannot_be_is_refused(sets: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RetrievalProbe.model_validate(
            {"probe": "retrieval", "families": ["copy"], "context_tokens": [256], "items_per_cell": 1,
             "prompt_sets": sets}
        )  # fmt: skip
