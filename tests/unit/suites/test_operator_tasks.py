"""The operator's folder of tasks, whatever lies in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.domain.errors import UnreadableInput
from workers.suites import data_files
from workers.suites.items import BUNDLED_NAMES
from workers.suites.operator_tasks import copy_tasks, read_files

TASK = "task: mine\ndataset_kwargs:\n  items: !function loader.items\nmetadata: {version: 1}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One task and its items, in a folder of their own."""
    (tmp_path / "tasks" / "set").mkdir(parents=True)
    (tmp_path / "tasks" / "set" / "mine.yaml").write_text(TASK)
    (tmp_path / "tasks" / "set" / "mine.jsonl").write_text("{}\n")
    return tmp_path / "tasks"


def copied(folder: Path) -> list[str]:
    target = folder.parent / "copy"
    copy_tasks(folder, target, taken=BUNDLED_NAMES)
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_tasks_are_copied_with_what_lies_beside_them(folder: Path) -> None:
    assert copied(folder) == ["set/mine.jsonl", "set/mine.yaml"]


def test_links_are_followed_and_no_folder_is_read_twice(folder: Path) -> None:
    (folder / "set" / "up").symlink_to("..")
    (folder / "set" / "again").symlink_to("../set")
    (folder / "set" / "more.yaml").symlink_to("mine.yaml")
    assert copied(folder) == ["set/mine.jsonl", "set/mine.yaml", "set/more.yaml"]


def test_hidden_files_are_passed_over(folder: Path) -> None:
    (folder / ".#mine.yaml").symlink_to("somebody@somewhere")  # as an editor leaves it
    (folder / ".git").mkdir()
    (folder / ".git" / "task.yaml").write_text("{")
    assert copied(folder) == ["set/mine.jsonl", "set/mine.yaml"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "odd.yaml is not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "odd.yaml is not a file"),
        (lambda path: path.symlink_to("/nowhere"), "odd.yaml: No such file"),
        (lambda path: path.write_text("task: {"), "odd.yaml is no YAML"),
        (lambda path: path.write_bytes(b"task: \xff"), "odd.yaml is no YAML"),
        (lambda path: path.write_text("[" * 100_000), "odd.yaml is no YAML"),
        (
            lambda path: path.write_text("task: gk_facts\n"),
            "odd.yaml: task: gk_facts is the name of a bundled one",
        ),
    ],
)
def test_what_cannot_be_a_task_is_named(folder: Path, make: Callable[[Path], object], said: str) -> None:
    make(folder / "odd.yaml")
    with pytest.raises(UnreadableInput, match=f"GATEKEEPER_TASKS_DIR: .*{said}"):
        copied(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"GATEKEEPER_TASKS_DIR: .*/none is no folder"):
        list(read_files(tmp_path / "none"))


def test_what_a_run_is_measured_with_includes_the_operators_tasks(folder: Path) -> None:
    names = [name for name, _ in data_files(folder) if name.startswith("operator/")]
    assert names == ["operator/set/mine.jsonl", "operator/set/mine.yaml"]
