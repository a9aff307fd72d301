"""The bundled accuracy items are well formed, balanced and reproducible."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from workers.suites import tasks
from workers.suites.tasks import generate_recall

TASKS_DIR = Path(tasks.__file__).parent
ITEM_COUNTS = {"gk_recall": 120, "gk_agreement": 120, "gk_plausible": 120, "gk_facts": 80}
OPTION_COUNTS = {"gk_recall": 4, "gk_agreement": 2, "gk_plausible": 2, "gk_facts": 4}
PAIRED_TASKS = ("gk_agreement", "gk_plausible")

Item = dict[str, Any]

each_task = pytest.mark.parametrize("task", ITEM_COUNTS)


def read_items(task: str) -> list[Item]:
    text = (TASKS_DIR / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_task_file_is_known_and_there_are_at_least_400_items() -> None:
    assert {path.stem for path in TASKS_DIR.glob("*.yaml")} == set(ITEM_COUNTS)
    assert {path.stem for path in TASKS_DIR.glob("*.jsonl")} == set(ITEM_COUNTS)
    assert {task: len(read_items(task)) for task in ITEM_COUNTS} == ITEM_COUNTS
    assert sum(ITEM_COUNTS.values()) >= 400


def test_ids_are_unique_over_all_tasks_and_name_their_task() -> None:
    ids = {task: [item["id"] for item in read_items(task)] for task in ITEM_COUNTS}
    assert len(set().union(*ids.values())) == sum(map(len, ids.values()))
    for task, task_ids in ids.items():
        assert all(item_id.startswith(f"{task.removeprefix('gk_')}-") for item_id in task_ids)


@each_task
def test_items_have_a_group_a_context_distinct_options_and_a_valid_answer(task: str) -> None:
    for item in read_items(task):
        assert list(item) == ["id", "group", "context", "choices", "answer"]
        assert re.fullmatch(r"[a-z_]+", item["group"])
        texts = [item["context"], *item["choices"]]
        assert all(text and text == text.strip() for text in texts), item["id"]
        assert len(set(item["choices"])) == len(item["choices"]) == OPTION_COUNTS[task]
        assert 0 <= item["answer"] < OPTION_COUNTS[task]


@each_task
def test_no_question_is_asked_twice(task: str) -> None:
    contexts = [item["context"] for item in read_items(task)]
    assert len(set(contexts)) == len(contexts)


@each_task
def test_the_right_option_stands_equally_often_at_each_position(task: str) -> None:
    positions = Counter(item["answer"] for item in read_items(task))
    assert set(positions.values()) == {ITEM_COUNTS[task] // OPTION_COUNTS[task]}


@each_task
def test_groups_of_a_task_have_at_least_ten_items(task: str) -> None:
    assert min(Counter(item["group"] for item in read_items(task)).values()) >= 10


@pytest.mark.parametrize("task", PAIRED_TASKS)
def test_pairs_share_their_options_and_have_opposite_answers(task: str) -> None:
    items = read_items(task)
    for first, second in zip(items[::2], items[1::2], strict=True):
        assert first["id"].removesuffix("a") == second["id"].removesuffix("b")
        assert first["group"] == second["group"]
        assert first["choices"] == second["choices"]
        assert {first["answer"], second["answer"]} == {0, 1}


def test_all_options_of_a_recall_item_occur_in_its_passage_as_whole_words() -> None:
    for item in read_items("gk_recall"):
        passage, _question = item["context"].split("\n\nQuestion: ")
        for option in item["choices"]:
            assert re.search(rf"\b{re.escape(option)}\b", passage), (item["id"], option)


def test_the_generator_reproduces_the_committed_recall_items_byte_for_byte() -> None:
    assert generate_recall.render().encode() == generate_recall.ITEMS_FILE.read_bytes()


@each_task
def test_the_task_file_names_its_task_and_its_items(task: str) -> None:
    config = yaml.safe_load((TASKS_DIR / f"{task}.yaml").read_text(encoding="utf-8"))
    assert config["task"] == task
    assert config["dataset_kwargs"] == {"items_file": f"{task}.jsonl"}
    assert (TASKS_DIR / config["include"]).is_file()


@each_task
def test_the_loader_gives_the_items_in_file_order_from_any_directory(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets", reason="lm-eval's dataset library is not installed here")
    from workers.suites.tasks import loader

    monkeypatch.chdir(tmp_path)
    loaded = loader.load_items(items_file=f"{task}.jsonl", version=1.0)["test"]
    assert loaded.to_list() == read_items(task)
