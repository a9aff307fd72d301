"""The form of a change: its fields follow the typed configuration, and its document is what the API takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel

from gatekeeper.domain.eviction import Eviction
from gatekeeper.domain.kv_config import Quantization, Reuse, Scheduling
from gatekeeper.services.submit import Preview
from gatekeeper.web import badges, figures, filters
from gatekeeper.web.badges import Badge
from gatekeeper.web.filters import Choice

QUANTIZATION: Final = "candidate.quantization"
EVICTION: Final = "candidate.eviction"
DEPLOYMENT: Final = ("max_context", "decode_tokens", "concurrency")
SKIPPED: Final = "skip_layers"
WRITTEN_AS: Final = {
    SKIPPED: "such as 0, 1",
    "prompt": "such as {policy: h2o, evicted_fraction: 0.5}",
    "decode": "such as {policy: streaming_llm, window: 508}",
    "groups": "such as [{layers: [0, 1], eviction: {policy: none}}]",
    "other": "such as {policy: sliding_window, window: 512}, else all tokens stay",
}
"""How parameters are typed in that are no single word or number."""
MOST_CHARACTERS: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One input. `name`: the dotted place in the change's document."""

    name: str
    label: str
    value: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldGroup:
    """Inputs that belong together, after the drop-down list that decides which there are."""

    legend: str
    choice: Choice | None
    fields: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeForm:
    """The whole form."""

    choices: tuple[Choice, ...]
    groups: tuple[FieldGroup, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedArm:
    """What one arm would be."""

    role: str
    flags: tuple[str, ...]
    per_token: str
    pool: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutlook:
    """Whether the suite can decide a rule of the policy, and why."""

    name: str
    only_warns: bool
    badge: Badge
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What can be said of a change before it runs: arms, gaps, and whether each rule can be decided."""

    name: str
    arms: tuple[PlannedArm, ...]
    gaps: tuple[str, ...]
    rules: tuple[RuleOutlook, ...]


def change_form(
    given: Mapping[str, str], *, models: list[str], suites: list[str], policies: list[str]
) -> ChangeForm:
    """The form, filled in as given; the fields of a scheme or policy appear once that is chosen.

    No policy is chosen by itself: a change that names none is judged by its suite's own.
    """
    named = {"model": models, "suite": suites, "policy": policies}
    usual = {"suite": "standard", "policy": "", "model": next(iter(models), "")}
    chosen = {name: given.get(name, "") or usual[name] for name in named}
    return ChangeForm(
        choices=tuple(filters.choice(name, values, chosen[name]) for name, values in named.items()),
        groups=(
            _group("Quantization", f"{QUANTIZATION}.scheme", Quantization, filters.SCHEMES, given),
            _group("Eviction", f"{EVICTION}.policy", Eviction, filters.POLICIES, given),
            FieldGroup(legend="Reuse", choice=None, fields=tuple(_fields("candidate.reuse", Reuse, given))),
            FieldGroup(
                legend="Scheduling", choice=None, fields=tuple(_fields("candidate.scheduling", Scheduling, given))
            ),
            FieldGroup(legend="Deployment", choice=None, fields=tuple(_plain("deployment", DEPLOYMENT, given))),
            FieldGroup(
                legend="Origin",
                choice=None,
                fields=(
                    Field(name="name", label="name", value=given.get("name", "")),
                    *_plain("ref", ("repo", "commit", "author"), given),
                ),
            ),
        ),
    )  # fmt: skip


def change_document(given: Mapping[str, str]) -> dict[str, Any]:
    """The change as a document; empty inputs are left out, numbers and yes or no read as YAML does."""
    document: dict[str, Any] = {"candidate": {}}
    for name, text in given.items():
        if not text.strip():
            continue
        *path, last = name.split(".")
        place = document
        for part in path:
            place = place.setdefault(part, {})
        place[last] = _value(name, text.strip()[:MOST_CHARACTERS])
    return document


def known_fields(given: Mapping[str, str], form: ChangeForm) -> dict[str, str]:
    """What the form says: the usual names where none were sent, and no parameter of another scheme."""
    usual = {choice.name: o.value for choice in form.choices for o in choice.options if o.is_chosen}
    names = [field.name for group in form.groups for field in group.fields]
    names += [group.choice.name for group in form.groups if group.choice]
    return usual | {name: given[name] for name in names if name in given}


def outlook(preview: Preview) -> Outlook:
    """What a run of the change would be."""
    return Outlook(
        name=preview.plan.change.label,
        arms=tuple(
            PlannedArm(
                role=role,
                flags=arm.flags,
                per_token="" if arm.kv_bytes_per_token is None else f"{arm.kv_bytes_per_token:,.0f} bytes",
                pool="" if arm.kv_pool_bytes is None else figures.size(arm.kv_pool_bytes),
            )
            for role, arm in preview.arms.items()
        ),
        gaps=(*preview.coverage_gaps, *filter(None, (preview.plan.undeclared,))),
        rules=tuple(
            RuleOutlook(
                name=figures.of_group(seen.metric, seen.group),
                only_warns=seen.severity == "warn",
                badge=badges.OUTLOOKS[seen.outlook],
                sentence=seen.sentence,
            )
            for seen in preview.foresight
        ),
    )


def _value(name: str, text: str) -> Any:
    """Names, ids and the origin are text whatever they look like; several layers need no brackets."""
    last = name.rpartition(".")[2]
    if not name.startswith(("candidate.", "deployment.")) or last == "calibration":
        return text
    if last == SKIPPED:
        text = f"[{text.strip('[]')}]"
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _group(
    legend: str, name: str, union: object, names: tuple[str, ...], given: Mapping[str, str]
) -> FieldGroup:
    """A discriminated union: which member is decided by the list called `name`, and that member's fields."""
    place, _, key = name.rpartition(".")
    chosen = given.get(name, "")
    member = _member(union, key, chosen)
    fields = tuple(field for field in _fields(place, member, given) if field.name != name) if member else ()
    return FieldGroup(legend=legend, choice=filters.choice(name, names, chosen), fields=fields)


def _member(union: object, key: str, name: str) -> type[BaseModel] | None:
    members: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return next((kind for kind in members if name in get_args(kind.model_fields[key].annotation)), None)


def _fields(place: str, kind: type[BaseModel], given: Mapping[str, str]) -> Iterator[Field]:
    own_first = sorted(kind.model_fields.items(), key=lambda entry: entry[0] not in kind.__annotations__)
    for name, field in own_first:
        default = "" if field.is_required() or field.default is None else f"{field.default}"
        hint = "needed" if field.is_required() else f"else {default}" if default else ""
        written = WRITTEN_AS.get(name, hint)
        yield Field(
            name=f"{place}.{name}", label=name, value=given.get(f"{place}.{name}", ""), hint=written
        )  # fmt: skip


def _plain(place: str, names: tuple[str, ...], given: Mapping[str, str]) -> Iterator[Field]:
    for name in names:
        yield Field(name=f"{place}.{name}", label=name, value=given.get(f"{place}.{name}", ""))
