"""Reading lm-eval's logs without lm-eval."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.importing import lm_eval
from gatekeeper.importing.lm_eval import (
    SampleFile,
    list_sample_files,
    parse_sample,
    read_samples,
    read_settings,
)
from tests.unit.importing.logs import BF16, GENERATED, STAMP, sample, write

CHOICES = [["-1.0", "False"], ["0.0", "True"]]


def test_real_multiple_choice_logs_are_read_with_their_settings() -> None:
    files = list_sample_files(BF16)
    assert sorted(files) == ["gk_agreement", "gk_facts"]
    samples = list(read_samples(files["gk_facts"]))
    assert [entry.values for entry in samples[:2]] == [{"acc": 1.0}, {"acc": 1.0}]
    assert all(0 < (entry.right_choice_probability or 0) < 1 for entry in samples)
    settings = read_settings(files["gk_facts"])
    assert (settings.model, settings.higher_is_better) == ("m", {"acc": True})
    assert (settings.compared["version"], settings.compared["num_fewshot"]) == (1.0, 0)
    assert settings.compared["output_type"] == "multiple_choice"


def test_real_generated_logs_have_each_item_once_per_filter_and_no_probability() -> None:
    (file,) = list_sample_files(GENERATED).values()
    samples = list(read_samples(file))
    assert [entry.filter for entry in samples] == ["strict-match"] * 6 + ["flexible-extract"] * 6
    assert samples[0].values == {"exact_match": 0.0, "overlap": 0.5, "bleu": None}
    assert {entry.right_choice_probability for entry in samples} == {None}
    assert read_settings(file).compared["generation_kwargs"] == {"until": ["\n"]}


def test_the_newest_file_of_each_task_counts_wherever_it_lies(tmp_path: Path) -> None:
    old, new = "2026-11-29T12-00-00.1", "2026-11-30T12-00-00.1"
    write(tmp_path / "z", "a_task", [sample(1, acc=0.0)], stamp=old)
    write(tmp_path / "a", "a_task", [sample(1, acc=1.0)], stamp=new)
    write(tmp_path / "z", "b", [sample(1, acc=1.0)], stamp=old)
    found = list_sample_files(tmp_path)
    assert {task: file.stamp for task, file in found.items()} == {"a_task": new, "b": old}


@pytest.mark.parametrize(
    ("changed", "probability"),
    [
        ({"target": "1"}, 1 / (1 + math.exp(-1.0))),
        ({"target": 0}, 1 - 1 / (1 + math.exp(-1.0))),
        ({"target": "2"}, None),
        ({"target": "-1"}, None),
        ({"target": "yes"}, None),
        ({"target": "0", "filtered_resps": ["5 apples"]}, None),
        ({"target": "0", "filtered_resps": ["5", "7"]}, None),
        ({"target": "0", "filtered_resps": [["-1.0", "False"]]}, None),
        ({"target": "1", "acc_mutual_info": 1.0}, None),
    ],
)
def test_only_multiple_choice_with_a_known_answer_has_a_probability(
    changed: dict[str, Any], probability: float | None
) -> None:
    found = parse_sample(sample(1, acc=1.0) | {"filtered_resps": CHOICES} | changed)
    assert found.right_choice_probability == (None if probability is None else pytest.approx(probability))


def test_a_likelihood_that_is_no_number_makes_no_number_of_the_probability() -> None:
    responses = {"filtered_resps": [["nan", "False"], ["-0.1", "True"]], "target": "1"}
    found = parse_sample(sample(1, acc=1.0) | responses)
    assert found.right_choice_probability is not None
    assert math.isnan(found.right_choice_probability)
    assert math.isnan(found.values["acc"] or 0.0)


def test_an_answer_that_says_nan_is_a_text_like_any_other() -> None:
    for said in (["nan"], [["nan", "nan"]]):
        logged = sample(1, exact_match=1.0) | {"filtered_resps": said}
        assert parse_sample(logged).values == {"exact_match": 1.0}


@pytest.mark.parametrize(("target", "share"), [(True, 1), (1.7, 1), (" 1 ", 1), ("0", 0)])
def test_the_right_choice_is_the_same_in_figures_and_words(target: object, share: int) -> None:
    arguments = {f"gen_args_{n}": {"arg_0": "q", "arg_1": option} for n, option in enumerate("ab")}
    found = parse_sample(
        sample(1, acc=1.0) | {"filtered_resps": CHOICES, "arguments": arguments, "target": target}
    )
    assert found.said.expected == "ab"[share]
    assert found.right_choice_probability == dict(found.said.options)["ab"[share]]


@pytest.mark.parametrize(
    ("logged", "value"),
    [(True, 1.0), ("False", 0.0), ("0.25", 0.25), (0, 0.0), ([1, 0], None), ("a text", None), (None, None)],
)
def test_a_metric_is_one_number_or_none(logged: object, value: float | None) -> None:
    assert parse_sample(sample(1, some=logged)).values == {"some": value}


def test_logs_without_a_list_of_metrics_are_read_by_what_else_they_hold() -> None:
    logged = sample(1, acc=1.0, acc_norm=0.0)
    del logged["metrics"]
    assert parse_sample(logged).values == {"acc": 1.0, "acc_norm": 0.0}


@pytest.mark.parametrize("line", ["{", "[]", '{"doc": {}}', "[" * 100_000])
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "samples_t_1.jsonl"
    path.write_text(json.dumps(sample(1, acc=1.0)) + "\n\n" + line, encoding="utf-8")
    with pytest.raises(UnreadableInput, match=r"samples_t_1\.jsonl:3 is n"):
        list(read_samples(SampleFile(task="t", stamp="1", path=path)))


def test_a_file_without_results_beside_it_has_no_settings(tmp_path: Path) -> None:
    write(tmp_path, "t", [sample(1, acc=1.0)], results={})
    settings = read_settings(list_sample_files(tmp_path)["t"])
    assert (settings.model, settings.compared, settings.higher_is_better) == (None, {}, {})


def test_a_results_file_that_is_broken_is_named(tmp_path: Path) -> None:
    write(tmp_path, "t", [sample(1, acc=1.0)])
    path = tmp_path / "model" / f"results_{STAMP}.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UnreadableInput, match="results_"):
        read_settings(list_sample_files(tmp_path)["t"])
    path.write_text("[]", encoding="utf-8")
    assert read_settings(list_sample_files(tmp_path)["t"]).model is None


def test_a_multiple_choice_item_says_its_question_and_how_probable_each_option_was() -> None:
    (said,) = [
        s.said for s in read_samples(list_sample_files(BF16)["gk_facts"]) if s.document_id == "facts-004"
    ]
    assert said.prompt == "The longest river in South America is the"
    assert (said.expected, said.text) == ("Amazon", "Amazon")
    assert [text for text, _ in said.options] == ["Amazon", "Nile", "Mississippi", "Danube"]
    assert sum(share for _, share in said.options) == pytest.approx(1)


def test_a_generated_item_says_what_was_written() -> None:
    said = next(read_samples(list_sample_files(GENERATED)["demo_sums"])).said
    assert said.prompt.endswith("Q: 0+1?\nA:")
    assert (said.expected, said.text, said.options) == ("1", "lol", ())


def test_options_that_stand_in_the_context_are_told_apart_by_it() -> None:
    arguments = {
        "gen_args_0": {"arg_0": "the cat", "arg_1": " sat"},
        "gen_args_1": {"arg_0": "the car", "arg_1": " sat"},
    }
    logged = sample(1, acc=1.0) | {"filtered_resps": CHOICES, "arguments": arguments, "target": "0"}
    assert {text for text, _ in parse_sample(logged).said.options} == {"the cat", "the car"}


def test_a_sample_without_its_requests_says_nothing() -> None:
    said = parse_sample({"doc_hash": "h", "acc": 1.0}).said
    assert (said.prompt, said.expected, said.text) == ("", "", "")


@pytest.mark.parametrize(
    "odd",
    [
        {"acc": 10**400},
        {"metrics": [["acc"], {}, 1, None]},
        {"target": 10**400},
        {"filtered_resps": [[10**400], [1]], "target": "1"},
        {"filtered_resps": {"a": 1}},
        {"filtered_resps": 5},
        {"target": math.inf},
    ],
    ids="+".join,
)
def test_values_of_another_kind_are_no_figures_and_no_crash(odd: dict[str, Any]) -> None:
    logged = sample(1, acc=1.0) | {"filtered_resps": CHOICES} | odd
    found = parse_sample(json.loads(json.dumps(logged)))
    assert found.right_choice_probability is None or "target" not in odd


def test_names_that_are_no_text_are_made_such(tmp_path: Path) -> None:
    odd = {
        "doc_hash": "\ud800",
        "filter": "\0",
        "doc": {"id": "\udfff"},
        "metrics": ["\ud801"],
        "\ud801": 1.0,
    }
    found = parse_sample(sample(1) | odd)
    assert (found.doc_hash, found.filter, found.document_id, found.values) == ("?", "\ufffd", "?", {"?": 1.0})
    (tmp_path / os.fsdecode(b"samples_\xff_1.jsonl")).touch()
    assert list(list_sample_files(tmp_path)) == ["?"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["samples_t_1.jsonl", "results_1.json"])
def test_what_is_no_file_is_refused_by_its_name_without_waiting(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    file = SampleFile(task="t", stamp="1", path=tmp_path / "samples_t_1.jsonl")
    with pytest.raises(UnreadableInput, match=f"{name} is not a file"):
        list(read_samples(file)) if name.startswith("samples") else read_settings(file)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_eval, "LONGEST_LINE_BYTES", 1_000)
    path = tmp_path / "samples_t_1.jsonl"
    path.write_text(json.dumps(sample(1, acc=1.0)) + "\n" + "x" * 1_001)
    with pytest.raises(UnreadableInput, match=r"samples_t_1\.jsonl:2 is longer than 1,000 bytes"):
        list(read_samples(SampleFile(task="t", stamp="1", path=path)))


def test_what_the_results_say_is_taken_for_what_it_is(tmp_path: Path) -> None:
    said = {"acc": "no", "f1": [], "bleu": False}
    odd = {"model_name": "\ud800", "chat_template_sha": ["\ud801"]}
    results = {"higher_is_better": {"t": said}, "versions": {"t": math.nan}, **odd}
    write(tmp_path, "t", [sample(1, acc=1.0)], results=results)
    settings = read_settings(list_sample_files(tmp_path)["t"])
    assert settings.higher_is_better == {"acc": None, "f1": None, "bleu": False}
    assert settings.compared["version"] == "NaN"  # equal to itself, as the number is not
    assert (settings.model, settings.compared["chat_template_sha"]) == ("?", ["?"])
