"""Two versions of a serving command to the document of a change: the old one is the baseline, the new the candidate.

Of an old version that quantizes its cache, the baseline is the same command with a 16-bit one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from gatekeeper.detecting.commands import Serving
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.vllm_command import SKIP_LAYERS, parse_serve_command, words_of
from gatekeeper.domain.vllm_flags import SCALAR_FLAGS, SWITCHES, TYPED_ARGUMENTS

Flags = dict[str, str | None]
"""Flag without dashes -> value, None for a switch."""

KV_FLAGS: Final = frozenset(
    {
        "kv-cache-dtype",
        SKIP_LAYERS,
        "kv-offloading-size",
        *SWITCHES.values(),
        *(flag[2:] for flag, _ in SCALAR_FLAGS.values()),
    }
)
"""Flags that the typed configuration knows."""
SIXTEEN_BIT: Final = {"scheme": "none"}
"""What every baseline has: quality is held against the full 16-bit cache, whatever runs today."""
NEUTRAL: Final = frozenset(
    {"host", "port", "uds", "served-model-name", "api-key", "uvicorn-log-level", "disable-log-requests",
     "disable-log-stats", "enable-log-requests", "root-path"}
)  # fmt: skip
"""Flags that touch neither what is computed nor how fast."""
UNTOLD: Final = (TYPED_ARGUMENTS.keys() - KV_FLAGS) | {"config", "kv-transfer-config"}
"""Flags that can change the cache in ways that are not read here: a change of one is refused, not passed over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Detected:
    """A change found in a file. `document` is a change's; `notes` say what of the command it does not speak of."""

    path: str
    place: str
    document: dict[str, Any]
    notes: tuple[str, ...]


def changes_between(
    path: str, old: Sequence[Serving], new: Sequence[Serving], *, allowed: frozenset[str], model: str | None
) -> Iterator[Detected | str]:
    """The changes of a file that touch the KV configuration; text for commands that differ in what is not gated.

    `allowed`: the engine arguments that may be passed on; `model`: the registered name, instead of the file's.
    Raises InvalidInput naming file, command and flag.
    """
    before = {serving.place: serving for serving in old}
    for serving in new:
        earlier = before.get(serving.place)
        document, notes = _document(path, earlier, serving, allowed=allowed)
        if document is not None:
            named = {"name": _name(path, serving.place), "model": model or serving.words[2]}
            yield Detected(path=path, place=serving.place, document=named | document, notes=notes)
        else:
            yield from (f"{path}: {serving.place}: {note}" for note in notes)


def _document(
    path: str, earlier: Serving | None, serving: Serving, *, allowed: frozenset[str]
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The change's engine and arms, or None if nothing in it can be gated; and what is to be said."""
    known = KV_FLAGS | allowed
    before = {} if earlier is None else _flags(earlier.words[3:])
    after = _flags(serving.words[3:])
    where = f"{path}: {serving.place}"
    _refuse_untold(where, before, after)
    unknown = _only_where_it_runs(where, earlier, serving)
    ungated = (*unknown, *_new_model(earlier, serving), *_changed_too(before, after, known))
    if earlier is None:
        new = _parsed(where, _only(after, known), allowed)
        if _plain(new["baseline"]) == _plain(new["candidate"]):
            return None, ungated
        return _arms(new["baseline"], new["candidate"]), (*unknown, *_left_out(after, after, known))
    if _only(before, known) == _only(after, known):
        return None, ungated
    _refuse_removed(where, before, after, known)
    old = _parsed(where, _only(before, known), allowed)["candidate"]
    new = _parsed(where, _only(after, known), allowed)["candidate"]
    baseline = {key: value for key, value in old.items() if key != "quantization"}
    if _explicit(baseline) == _explicit(new):
        return None, ungated
    notes = (*_old_scheme(old), *ungated, *_left_out(before, after, known))
    return _arms(_explicit(baseline), _explicit(new)), notes


def _only_where_it_runs(where: str, earlier: Serving | None, serving: Serving) -> tuple[str, ...]:
    """A note on words with variables. Raises InvalidInput for one that is new and may stand for any flags."""
    hiding = _hiding(serving.words[3:])
    before = () if earlier is None else _hiding(earlier.words[3:])
    new = [word for word in hiding if word not in before]
    if new:
        problem = f"{', '.join(new)} may stand for any flags and is only known where it runs"
        raise InvalidInput([FieldProblem(field=where, problem=problem, allowed="the flags themselves")])
    words = [word for word in dict.fromkeys(serving.words[3:]) if _is_variable(word)]
    return (f"only known where it runs: {', '.join(words)}",) if words else ()


def _hiding(words: Sequence[str]) -> tuple[str, ...]:
    """Words with variables that no flag before them takes as its value."""
    previous = ("", *words)
    return tuple(
        word
        for before, word in zip(previous, words, strict=False)
        if _is_variable(word) and not word.startswith("-") and not _takes_value(before)
    )


def _is_variable(word: str) -> bool:
    return "$" in word or "`" in word


def _takes_value(word: str) -> bool:
    name = word.lstrip("-")
    return word.startswith("-") and "=" not in word and not name.startswith(("enable-", "disable-", "no-"))


def _new_model(earlier: Serving | None, serving: Serving) -> tuple[str, ...]:
    if earlier is None or earlier.words[2] == serving.words[2]:
        return ()
    return (f"the model changes from {earlier.words[2]} to {serving.words[2]}, which this does not gate",)


def _old_scheme(old: Mapping[str, Any]) -> tuple[str, ...]:
    if old.get("quantization", SIXTEEN_BIT) == SIXTEEN_BIT:
        return ()
    scheme = old["quantization"]["scheme"]
    return (f"the old version's cache is {scheme}; the baseline is the same with 16 bits",)


def _arms(baseline: dict[str, Any], candidate: dict[str, Any]) -> dict[str, Any]:
    return {"engine": "vllm", "baseline": _plain(baseline), "candidate": _plain(candidate)}


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty parts."""
    return {key: value for key, value in config.items() if value}


def _explicit(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the scheme spelled out: a flag that is gone means 16 bits again, not what the old version had."""
    return {"quantization": SIXTEEN_BIT} | _plain(config)


def _flags(words: Sequence[str]) -> Flags:
    """The last value of each flag, `--no-x` as `x` of its own kind; short flags stay apart."""
    found: Flags = {}
    index = 0
    while index < len(words):
        word = words[index]
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        index += 1
        if not word.startswith("-"):
            continue
        _drop_opposite(found, name)
        if equals:
            found[name] = value
        else:
            following = list(takewhile(lambda later: not _is_flag(later), words[index:]))
            taken = words_of(name, following)
            found[name] = " ".join(taken) if taken else None
            index += len(taken)
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _drop_opposite(found: Flags, name: str) -> None:
    found.pop(name.removeprefix("no-") if name.startswith("no-") else f"no-{name}", None)


def _only(flags: Flags, known: frozenset[str]) -> Flags:
    return {name: value for name, value in flags.items() if name.removeprefix("no-") in known}


def _parsed(where: str, flags: Flags, allowed: frozenset[str]) -> dict[str, Any]:
    words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items()]
    try:
        return parse_serve_command(["vllm", "serve", "model", *words], allowed_arguments=allowed)
    except InvalidInput as error:
        raise InvalidInput(
            [
                FieldProblem(
                    field=f"{where} {problem.field}", problem=problem.problem, allowed=problem.allowed
                )
                for problem in error.problems
            ]
        ) from error


def _refuse_removed(where: str, before: Flags, after: Flags, known: frozenset[str]) -> None:
    """What a removed flag falls back to only the engine knows, so it has to be stated."""
    gone = {name.removeprefix("no-") for name in _only(before, known)}
    gone -= {name.removeprefix("no-") for name in after} | {"kv-cache-dtype"}
    if gone:
        raise InvalidInput(
            [
                FieldProblem(
                    field=f"{where} --{name}",
                    problem="was removed, and what the engine does without it depends on its version and device",
                    allowed="the flag with the value that is meant",
                )
                for name in sorted(gone)
            ]
        )


def _refuse_untold(where: str, before: Flags, after: Flags) -> None:
    changed = [
        name
        for name in _differing(before, after)
        if name.partition(".")[0] in UNTOLD  # vLLM takes `--hf-overrides.key value` too
    ]
    if changed:
        raise InvalidInput(
            [
                FieldProblem(
                    field=f"{where} --{name}",
                    problem="changes what the cache holds in a way that is not read from a command",
                    allowed="a change file that states it, gated by itself",
                )
                for name in changed
            ]
        )


def _differing(before: Flags, after: Flags) -> list[str]:
    return [n for n in dict.fromkeys((*before, *after)) if before.get(n, "absent") != after.get(n, "absent")]


def _changed_too(before: Flags, after: Flags, known: frozenset[str]) -> tuple[str, ...]:
    """A note on the flags that differ and are in neither arm."""
    names = [f"--{n}" for n in _differing(before, after) if n.removeprefix("no-") not in known | NEUTRAL]
    return (f"changed, but not gated by this: {', '.join(names)}",) if names else ()


def _left_out(before: Flags, after: Flags, known: frozenset[str]) -> tuple[str, ...]:
    """A note on the flags that do not differ and are in neither arm."""
    differing = _differing(before, after)
    others = (name for name in after if name.removeprefix("no-") not in known | NEUTRAL)
    same = [f"--{name}" for name in others if name not in differing]
    return (f"left out in both arms: {', '.join(same)}",) if same else ()


def _name(path: str, place: str) -> str:
    """A name that a change accepts: letters, digits and a few signs, at most 120 characters."""
    text = path if place == "command" else f"{path} {place}"
    cleaned = "".join(sign if sign.isalnum() or sign in "_.:/@+ -" else "-" for sign in text).lstrip(
        "./@:+ -"
    )
    return cleaned[-120:].lstrip("./@:+ -") or "detected"
