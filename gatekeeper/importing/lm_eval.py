"""What lm-eval writes with `--log_samples`: one JSON-lines file per task, and a results file beside it.

Written for lm-eval 0.4.13, whose `result_schema.py` names the fields; earlier ones without `metrics` are read too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, Final

from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.text import storable
from gatekeeper.files import open_file, read_text
from gatekeeper.importing.lm_eval_answers import Said, choice_probabilities, has_nan, right_choice, said_in

SUITE: Final = "accuracy"
CORRECT: Final = "correct"
CHOICE_PROBABILITY: Final = "right_choice_probability"
"""What an item yields, under the names by which the domain's metrics find it."""
FILE_NAME: Final = re.compile(r"samples_(?P<task>.+)_(?P<stamp>[^_]+)\.jsonl")
LONGEST_LINE_BYTES: Final = 64_000_000
RESULTS_LIMIT_BYTES: Final = 256_000_000
"""Far beyond what lm-eval writes: what is longer is something else, and would fill the memory."""
NO_FILTER: Final = "none"
"""What lm-eval calls the filter of a task without one."""
NOT_METRICS: Final = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash".split()
)
COMPARED: Final = ("output_type", "generation_kwargs", "repeats")
"""Of a task's configuration; what else decides a prompt shows in the prompt's hash."""
TEMPLATES: Final = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One item of a task as one answer filter saw it.

    `values` by metric: None where lm-eval logs no single number, NaN where one of the item's log-likelihoods is NaN.
    `right_choice_probability`: None but for multiple choice. `document_id`: the item's own `id`, empty without one.
    `said`: question and answer as text.
    """

    filter: str
    doc_hash: str
    document_id: str
    prompt_hash: str | None
    target_hash: str | None
    values: Mapping[str, float | None]
    right_choice_probability: float | None
    said: Said


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSettings:
    """How a task was run, as far as the results file says. `compared`: what must agree for items to be comparable."""

    model: str | None = None
    compared: Mapping[str, Any] = field(default_factory=dict)
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleFile:
    """The samples of one task. `stamp`: the time in its name, which its results file shares."""

    task: str
    stamp: str
    path: Path


def list_sample_files(folder: Path) -> dict[str, SampleFile]:
    """The newest file of every task anywhere below `folder`, by the time in its name."""
    newest: dict[str, SampleFile] = {}
    for path in sorted(folder.rglob("samples_*.jsonl")):
        if name := FILE_NAME.fullmatch(path.name):
            found = SampleFile(task=storable(name["task"]), stamp=name["stamp"], path=path)
            if found.task not in newest or newest[found.task].stamp <= found.stamp:
                newest[found.task] = found
    return newest


def read_samples(file: SampleFile) -> Iterator[Sample]:
    """The samples of a file in its order. Raises UnreadableInput naming file and line."""
    try:
        with open_file(file.path) as lines:
            pieces = iter(partial(lines.readline, LONGEST_LINE_BYTES + 1), b"")
            for number, line in enumerate(pieces, start=1):
                if line.strip():
                    yield _parse_line(line, f"{file.path}:{number}")
    except OSError as error:
        raise UnreadableInput(f"{file.path}: {error.strerror}") from error


def _parse_line(line: bytes, place: str) -> Sample:
    if len(line) > LONGEST_LINE_BYTES:
        raise UnreadableInput(f"{place} is longer than {LONGEST_LINE_BYTES:,} bytes")
    try:
        document = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{place} is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{place} is not JSON") from error
    if not isinstance(document, dict) or not isinstance(document.get("doc_hash"), str):
        raise UnreadableInput(f"{place} is no sample of lm-eval's: it has no doc_hash")
    return parse_sample(document)


def parse_sample(document: Mapping[str, Any]) -> Sample:
    """One logged sample; it has a `doc_hash`."""
    listed = document.get("metrics")
    names = listed if isinstance(listed, list) else [key for key in document if key not in NOT_METRICS]
    item, shares = document.get("doc"), choice_probabilities(document)
    values = {
        storable(name): _number(document[name])
        for name in names
        if isinstance(name, str) and name in document
    }
    if has_nan(document):  # which choice is the largest of numbers and a NaN is an accident
        values = {name: None if value is None else math.nan for name, value in values.items()}
    return Sample(
        filter=storable(str(document.get("filter") or NO_FILTER)),
        doc_hash=storable(str(document["doc_hash"])),
        document_id=storable(str(item.get("id") or "")) if isinstance(item, Mapping) else "",
        prompt_hash=document.get("prompt_hash"),
        target_hash=document.get("target_hash"),
        values=values,
        right_choice_probability=None if shares is None else shares[right_choice(document)],
        said=said_in(document, shares),
    )


def _number(value: Any) -> float | None:
    """One number per item, NaN included. NumPy's own scalars come as text."""
    if value in ("True", "False"):
        return float(value == "True")
    try:
        return float(value) if isinstance(value, bool | int | float | str) else None
    except (ValueError, OverflowError):  # no number, or a whole one beyond every float
        return None


def measurements_of(
    *, item_id: str, cluster: str, correct: float | None, probability: float | None
) -> Iterator[Measurement]:
    """What one item yields: whether it was right as 0 or 1, and how probable the right choice was."""
    place = partial(Measurement.of, suite=SUITE, mode="cold", item_id=item_id, cluster=cluster)
    if correct is not None:
        yield place(metric=CORRECT, value=correct)
    if probability is not None:
        yield place(metric=CHOICE_PROBABILITY, value=probability)


def read_settings(file: SampleFile) -> TaskSettings:
    """What the results file of the same time says; nothing where there is none. Raises UnreadableInput."""
    paths = sorted(file.path.parent.glob(f"*_{escape(file.stamp)}.json"))
    if not paths:
        return TaskSettings()
    try:
        # NaN as text: two of them are the same setting, though not the same number.
        logged = json.loads(read_text(paths[0], limit_bytes=RESULTS_LIMIT_BYTES), parse_constant=str)
        document = json.loads(json.dumps(logged, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{paths[0]} is not JSON") from error
    return parse_settings(document if isinstance(document, dict) else {}, file.task)


def parse_settings(document: Mapping[str, Any], task: str) -> TaskSettings:
    """One task's part of a results document."""
    configuration = _part(document, "configs", task)
    model = document.get("model_name")
    return TaskSettings(
        model=storable(str(model)) if model else None,
        compared={
            "version": _part(document, "versions").get(task),
            "num_fewshot": _part(document, "n-shot").get(task),
            "gen_kwargs": _part(document, "config").get("gen_kwargs") or None,
            **{name: configuration.get(name) for name in COMPARED},
            **{name: document.get(name) or None for name in TEMPLATES},
        },
        higher_is_better={
            storable(name): said if isinstance(said, bool) else None
            for name, said in _part(document, "higher_is_better", task).items()
        },
    )


def _part(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping under `keys`, empty where there is none."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
