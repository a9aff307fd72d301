"""The form of a change: its fields follow the typed configuration, and its document is what the API takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel

from gatekeeper.domain.change import Change, Deployment, Ref, Slo
from gatekeeper.domain.documents import parse_value
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.eviction import Eviction
from gatekeeper.domain.kv_config import Quantization, Reuse, Scheduling
from gatekeeper.services.promote import PROMOTED
from gatekeeper.web import filters
from gatekeeper.web.filters import Choice
from gatekeeper.web.inputs import SKIPPED, Field, typed_fields

QUANTIZATION: Final = "candidate.quantization"
EVICTION: Final = "candidate.eviction"
LOAD: Final = ("max_context", "decode_tokens", "concurrency")
ARGUMENTS: Final = "engine_args"
STATED: Final = "stated"
"""The choice of a baseline that is written out in the form."""
MOST_CHARACTERS: Final = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldGroup:
    """Inputs that belong together, after the list that decides which there are.

    `place`: the part of the document that they all belong to, if no other group has it.
    """

    legend: str
    fields: tuple[Field, ...]
    place: str = ""
    choice: Choice | None = None
    usual: str = ""
    """What the list's empty entry means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """Groups that few changes need. `is_open`: something of them is filled in."""

    summary: str
    note: str
    groups: tuple[FieldGroup, ...]
    is_open: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeForm:
    """The whole form."""

    choices: tuple[Choice, ...]
    groups: tuple[FieldGroup, ...]
    folds: tuple[Fold, ...]

    @property
    def all_groups(self) -> tuple[FieldGroup, ...]:
        """The groups, folded ones too."""
        return (*self.groups, *(group for fold in self.folds for group in fold.groups))


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is wrong with a field. `anchor`: the input, or the group, of this form that it leads to."""

    field: str
    text: str
    anchor: str


def change_form(
    given: Mapping[str, str],
    *,
    models: list[str],
    suites: list[str],
    policies: list[str],
    arguments: Iterable[str],
) -> ChangeForm:
    """The form, filled in as given; the fields of a scheme, policy or baseline appear once that is chosen.

    No policy is chosen by itself: a change that names none is judged by its suite's own. `arguments`: those that the
    operator lets through to the engine.
    """
    named = {"model": models, "suite": suites, "policy": policies}
    usual = {"suite": "standard", "policy": "", "model": next(iter(models), "")}
    chosen = {name: given.get(name, "") or usual[name] for name in named}
    own = "as the baseline"
    return ChangeForm(
        choices=tuple(filters.choice(name, values, chosen[name]) for name, values in named.items()),
        groups=(
            _union("Quantization", f"{QUANTIZATION}.scheme", Quantization, filters.SCHEMES, given),
            _union("Eviction", f"{EVICTION}.policy", Eviction, filters.POLICIES, given),
            _typed("Reuse", "candidate.reuse", Reuse, given, open_means=own),
            _group(
                "Deployment", typed_fields("deployment", Deployment, given, names=LOAD), place="deployment"
            ),
        ),
        folds=(
            _load_and_limits(given),
            _engine(given, arguments),
            _baseline(given, arguments),
            _origin(given),
        ),
    )


def change_document(given: Mapping[str, str]) -> dict[str, Any]:
    """The change as a document; empty inputs are left out, numbers and yes or no read as YAML does.

    Raises InvalidInput for a list or mapping that can't be read, a line of engine arguments that is none, and a
    baseline that is no choice.
    """
    document: dict[str, Any] = {"candidate": {}}
    if chosen := given.get("baseline", "").strip():
        document["baseline"] = _baseline_document(chosen)
    for name, text in given.items():
        *path, last = name.split(".")
        if not text.strip() or name == "baseline":
            continue
        place = document
        for part in path:
            place = place.setdefault(part, {})
        place[last] = (
            _arguments(name, text) if last == ARGUMENTS else _value(name, text.strip()[:MOST_CHARACTERS])
        )
    return document


def _baseline_document(chosen: str) -> str | dict[str, Any]:
    """The baseline before what the form states of it. Raises InvalidInput for a choice that the form does not have."""
    if chosen not in (PROMOTED, STATED):
        allowed = f"{PROMOTED}, {STATED}, or nothing for the usual one"
        raise InvalidInput(
            [FieldProblem(field="baseline", problem=f"unknown {chosen!r:.80}", allowed=allowed)]
        )
    return PROMOTED if chosen == PROMOTED else {}


def known_fields(given: Mapping[str, str], form: ChangeForm) -> dict[str, str]:
    """What the form says: the usual names where none were sent, and no parameter of another scheme."""
    usual = {choice.name: o.value for choice in form.choices for o in choice.options if o.is_chosen}
    names = [field.name for group in form.all_groups for field in group.fields]
    names += [group.choice.name for group in form.all_groups if group.choice]
    return usual | {name: given[name] for name in names if name in given}


def problems(found: Iterable[FieldProblem], form: ChangeForm) -> tuple[Problem, ...]:
    """Each problem with the nearest place of the form."""
    anchors = {field.name for group in form.all_groups for field in group.fields}
    anchors |= {group.choice.name for group in form.all_groups if group.choice}
    anchors |= {choice.name for choice in form.choices} | {
        group.place for group in form.all_groups if group.place
    }

    def nearest(place: str) -> str:
        while place and place not in anchors:
            place = place.rpartition(".")[0]
        return place

    return tuple(
        Problem(
            field=problem.field,
            text=str(problem).removeprefix(f"{problem.field}: "),
            anchor=nearest(problem.field),
        )
        for problem in found
    )


def _load_and_limits(given: Mapping[str, str]) -> Fold:
    load = typed_fields("deployment", Deployment, given, names=("request_rate", "scenario"))
    return _fold(
        "Arrivals and latency limits",
        "Requests arrive as a Poisson process at the rate, else as fast as the concurrency lets them in. A request "
        "that meets every limit counts towards goodput.",
        _group("Load", load),
        _typed("Latency limits", "deployment.slo", Slo, given),
    )


def _engine(given: Mapping[str, str], arguments: Iterable[str]) -> Fold:
    engine = typed_fields("", Change, given, names=("engine",), open_means="chosen by the change")
    return _fold(
        "Engine and scheduling",
        "Both arms run on the same engine.",
        _group("Engine", [*engine, _lines("candidate", given, arguments)]),
        _typed("Scheduling", "candidate.scheduling", Scheduling, given, open_means="as the baseline"),
    )


def _baseline(given: Mapping[str, str], arguments: Iterable[str]) -> Fold:
    """A baseline's cache is always a 16-bit, full one, so neither scheme nor policy is asked for."""
    stated = any(value.strip() for name, value in given.items() if name.startswith("baseline."))
    chosen = given.get("baseline", "") or (STATED if stated else "")
    fields: tuple[Field, ...] = ()
    if chosen == STATED:
        own = "the engine's own"
        fields = (
            *typed_fields("baseline.reuse", Reuse, given, open_means=own),
            *typed_fields("baseline.scheduling", Scheduling, given, open_means=own),
            _lines("baseline", given, arguments),
        )
    group = FieldGroup(
        legend="Baseline",
        fields=fields,
        choice=filters.choice("baseline", (PROMOTED, STATED), chosen),
        usual="the usual one",
    )
    return _fold(
        "Baseline",
        "The usual one leaves everything to the engine but prefix reuse, which is off. Every baseline has a 16-bit, "
        "full cache; what it states holds for the candidate too, unless that says otherwise.",
        group,
    )


def _origin(given: Mapping[str, str]) -> Fold:
    return _fold(
        "Name and origin",
        "What the run is called, and where the change comes from.",
        _group("Name", typed_fields("", Change, given, names=("name",))),
        _typed("Origin", "ref", Ref, given),
    )


def _fold(summary: str, note: str, *groups: FieldGroup) -> Fold:
    filled = any(field.value for group in groups for field in group.fields)
    chosen = any(o.is_chosen for group in groups if group.choice for o in group.choice.options)
    return Fold(summary=summary, note=note, groups=groups, is_open=filled or chosen)


def _value(name: str, text: str) -> Any:
    """Names, ids and the origin are text whatever they look like; several layers need no brackets."""
    last = name.rpartition(".")[2]
    if not name.startswith(("candidate.", "baseline.", "deployment.")) or last == "calibration":
        return text
    if last == SKIPPED:
        text = f"[{text.strip('[]')}]"
    try:
        return parse_value(text)
    except UnreadableInput as error:
        if not text.startswith(("[", "{", "-")):
            return text  # what the field takes is said better by its type
        raise InvalidInput([FieldProblem(field=name, problem=error.detail)]) from error


def _arguments(name: str, text: str) -> dict[str, Any]:
    """Lines of `name=value`. Raises InvalidInput."""
    found: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text[:MOST_CHARACTERS].splitlines())):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not (key and equals and value):
            raise InvalidInput(
                [FieldProblem(field=name, problem=f"got {line!r}", allowed="name=value, one a line")]
            )
        flag = key.removeprefix("--")
        if flag in found:
            allowed = "each name once"
            raise InvalidInput(
                [FieldProblem(field=f"{name}.{flag}", problem="appears twice", allowed=allowed)]
            )
        found[flag] = _argument(value)
    return found


def _argument(text: str) -> Any:
    """A number, yes or no if it reads as one, else the text."""
    try:
        value = parse_value(text)
    except UnreadableInput:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _lines(arm: str, given: Mapping[str, str], arguments: Iterable[str]) -> Field:
    name, names = f"{arm}.{ARGUMENTS}", ", ".join(sorted(arguments)) or "none"
    return Field(
        name=name,
        label=ARGUMENTS,
        value=given.get(name, ""),
        hint=f"name=value, one a line; allowed: {names}",
        kind="lines",
    )


def _group(legend: str, fields: Iterable[Field], *, place: str = "") -> FieldGroup:
    return FieldGroup(legend=legend, fields=tuple(fields), place=place)


def _typed(
    legend: str, place: str, kind: type[BaseModel], given: Mapping[str, str], *, open_means: str = ""
) -> FieldGroup:
    return _group(legend, typed_fields(place, kind, given, open_means=open_means), place=place)


def _union(
    legend: str, name: str, union: object, names: tuple[str, ...], given: Mapping[str, str]
) -> FieldGroup:
    """A discriminated union: which member is decided by the list called `name`, and that member's fields."""
    place, _, key = name.rpartition(".")
    chosen = given.get(name, "")
    member = _member(union, key, chosen)
    fields = (
        tuple(field for field in typed_fields(place, member, given) if field.name != name) if member else ()
    )
    return FieldGroup(
        legend=legend,
        place=place,
        fields=fields,
        choice=filters.choice(name, names, chosen),
        usual="as the baseline",
    )


def _member(union: object, key: str, name: str) -> type[BaseModel] | None:
    members: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return next((kind for kind in members if name in get_args(kind.model_fields[key].annotation)), None)
