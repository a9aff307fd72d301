"""The `vllm serve` command lines in a file: Kubernetes and docker-compose YAML, Helm values, shell scripts.

A command is known by its place in the file (kind, names, container), so that the same one is found in the older version
however the rest of the file has moved. A Helm chart's templates are no YAML and are not read: their values are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from gatekeeper.domain.errors import UnreadableInput

MODULE: Final = "vllm.entrypoints.openai.api_server"
IMAGE: Final = "vllm-openai"
"""Images whose entrypoint is the server, so that a container may state arguments alone."""
YAML_ENDINGS: Final = (".yaml", ".yml")
SCRIPT_ENDINGS: Final = (".sh", ".bash", ".service", ".env", "")
MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 100
MAX_FILLED: Final = 200_000
"""Characters that a script's variables may stand for, all their uses together."""

STACK_FLAGS: Final[Mapping[str, str]] = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
"""`vllmConfig` of vLLM's production stack -> flag, as its chart's deployment template writes them."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_NAMES_SERVER = re.compile(rf"vllm\s+serve\b|{re.escape(MODULE)}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_END_OF_COMMAND = re.compile(r"^(?:[|&;()<>]+|\d*>.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """One engine that a file starts. `words` begin with `vllm serve MODEL`."""

    place: str
    words: tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """Reads plain values; of a tag that it does not know, such as `!reference`, the value below it."""

    def construct_untagged(self, node: yaml.Node) -> Any:
        match node:
            case yaml.MappingNode():
                return self.construct_mapping(node, deep=True)
            case yaml.SequenceNode():
                return self.construct_sequence(node, deep=True)
            case _:
                return node.value


_Loader.add_constructor(None, _Loader.construct_untagged)


def is_candidate(path: str) -> bool:
    """Whether a file of this name can hold a serving command."""
    suffix = PurePosixPath(path).suffix
    return suffix in YAML_ENDINGS or suffix in SCRIPT_ENDINGS


def serving_commands(path: str, text: str) -> tuple[Serving, ...]:
    """All commands of a file, by place. Raises UnreadableInput for YAML that cannot be read."""
    if not is_candidate(path) or ("vllm" not in text and "modelSpec" not in text):
        return ()
    found = _of_yaml(path, text) if path.endswith(YAML_ENDINGS) else _of_script(path, text)
    return tuple(_numbered(found))


def _numbered(found: Iterator[Serving]) -> Iterator[Serving]:
    """The same with places made distinct: the second of a place gets `#2`."""
    seen: dict[str, int] = {}
    for serving in found:
        seen[serving.place] = count = seen.get(serving.place, 0) + 1
        yield serving if count == 1 else Serving(place=f"{serving.place}#{count}", words=serving.words)


def _of_yaml(path: str, text: str) -> Iterator[Serving]:
    try:
        _refuse_growth(path, text)
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:  # its words may be the file's, and so secret
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableInput(f"{path}: no YAML{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: no YAML ({type(error).__name__})") from None
    for number, document in enumerate(documents, start=1):
        yield from _walk(document, _document_name(document, number), path)


def _refuse_growth(path: str, text: str) -> None:
    """Raise UnreadableInput for a file nested deeper than MAX_DEPTH, or of more than MAX_NODES values.

    Aliases count as what they stand for.

    Looks at the parser's events alone: merge keys are copied as soon as a document is constructed.
    """
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # anchor, values before it
    count = 0
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.AliasEvent(anchor=anchor):
                if any(anchor == above for above, _ in open_nodes):
                    raise UnreadableInput(f"{path}: a value that holds itself")
                count += sizes.get(anchor or "", 1)
            case yaml.ScalarEvent(anchor=anchor):
                sizes.pop(anchor or "", None)
                count += 1
            case yaml.CollectionStartEvent(anchor=anchor):
                open_nodes.append((anchor, count))
                count += 1
            case yaml.CollectionEndEvent():
                anchor, before = open_nodes.pop()
                sizes[anchor or ""] = count - before
        if len(open_nodes) > MAX_DEPTH:
            raise UnreadableInput(f"{path}: nested deeper than {MAX_DEPTH}")
        if count > MAX_NODES:
            raise UnreadableInput(f"{path}: more than {MAX_NODES:,} values")


def _document_name(document: Any, number: int) -> str:
    match document:
        case {"kind": str(kind), "metadata": {"name": str(name)}}:
            return f"{kind}/{name}"
        case _:
            return "" if number == 1 else f"document {number}"


def _walk(node: Any, place: str, path: str) -> Iterator[Serving]:
    """Every mapping and list below `node`, as often as it is used."""
    if isinstance(node, dict):
        words = _words_of(node, place or "command", path)
        if words:
            yield Serving(place=place or "command", words=words)
        for key, value in node.items():
            if isinstance(value, dict | list):
                yield from _walk(value, _joined(place, str(key)), path)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            if isinstance(value, dict | list):
                name = value.get("name") if isinstance(value, dict) else None
                yield from _walk(value, _joined(place, str(name or index)), path)


def _words_of(node: Mapping[str, Any], place: str, path: str) -> tuple[str, ...]:
    """A mapping's serving command; empty if it has none. Raises UnreadableInput for one that has no end."""
    try:
        return _stack_words(node) or _container_words(node)
    except ValueError as error:
        if "vllm" in str(node):
            raise UnreadableInput(f"{path}: {place}: {error}") from error
        return ()


def _joined(place: str, part: str) -> str:
    """Kubernetes' own levels between a name and a container say nothing."""
    return place if part in ("spec", "template", "containers") else f"{place}/{part}".lstrip("/")


def _stack_words(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The command of an entry of the production stack's `modelSpec`; absent prefix caching is off there."""
    config = node.get("vllmConfig")
    if not isinstance(config, dict) or not isinstance(node.get("modelURL"), str):
        return ()
    words = ["vllm", "serve", node["modelURL"]]
    if "enableChunkedPrefill" in config:
        words.append(f"--{'' if config['enableChunkedPrefill'] else 'no-'}enable-chunked-prefill")
    words.append(f"--{'' if config.get('enablePrefixCaching') else 'no-'}enable-prefix-caching")
    for key, flag in STACK_FLAGS.items():
        if key in config:
            words += [flag, str(config[key])]
    return (*words, *_words(config.get("extraArgs")))


def _container_words(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The command of a container or a compose service; empty if it serves nothing."""
    parts = [*_words(node.get("entrypoint")), *_words(node.get("command")), *_words(node.get("args"))]
    image = node.get("image")
    served = _serve(parts)
    if not served and parts and parts[0].startswith("-") and IMAGE in str(image):
        served = _serve(["vllm", "serve", *parts])
    return served


def _words(value: Any) -> list[str]:
    """A command as words; what a shell gets as one string is split too."""
    if isinstance(value, str):
        return _split(value)
    if not isinstance(value, list):
        return []
    words = [str(word) for word in value]
    for index, word in enumerate(words):
        if index and words[index - 1] in ("-c", "-ec", "-lc", "-xc") and " " in word:
            return _split(word)
    return words


def _split(text: str) -> list[str]:
    """Words as a shell's; `$(x)`, Kubernetes' variables and a shell's commands alike, stays one. Raises ValueError."""
    whole = _SUBSTITUTION.sub(
        lambda found: f"${{{re.sub(r'[^A-Za-z0-9_]+', '_', found[1])}}}", text.replace("\\\n", " ")
    )
    lexer = shlex.shlex(whole, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _serve(words: Sequence[str]) -> tuple[str, ...]:
    """`vllm serve MODEL FLAG…` within a list of words, to the end of that command; empty if there is none."""
    for index, word in enumerate(words):
        after = words[index + 1 : index + 2]
        if (word == "vllm" or word.endswith("/vllm")) and list(after) == ["serve"]:
            return _normal(words[index + 2 :])
        if word == MODULE:
            return _normal(words[index + 1 :])
    return ()


def _normal(rest: Sequence[str]) -> tuple[str, ...]:
    """With the model in third place, whether it was given there or as `--model`."""
    ends = (index for index, word in enumerate(rest) if _END_OF_COMMAND.match(word))
    words = list(rest[: next(ends, len(rest))])
    model = words.pop(0) if words and not words[0].startswith("-") else ""
    for index, word in enumerate(words):
        if word == "--model" and index + 1 < len(words):
            model = words[index + 1]
            del words[index : index + 2]
            break
        if word.startswith("--model="):
            model = words.pop(index).partition("=")[2]
            break
    return ("vllm", "serve", model, *words) if model else ()


def _of_script(path: str, text: str) -> Iterator[Serving]:
    """Commands in a shell script, a unit file or the like; assignments before them are filled in and split.

    Raises UnreadableInput for a line that names the server and has no end.
    """
    variables = _Variables(path=path)
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#"):
            continue
        try:
            words = _split(variables.filled(line))
        except ValueError as error:
            if _NAMES_SERVER.search(line):
                raise UnreadableInput(f"{path}: a line that names the server: {error}") from error
            continue
        assigned = _assigned(words)
        for name, more, value in assigned:
            filled = variables.filled(value)  # one earlier in the same line, too
            variables.values[name] = variables.values.get(name, "") + filled if more else filled
        served = () if assigned else _serve(words)
        if served:
            yield Serving(place="command", words=served)


def _assigned(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """(name, `+` if it is added to, value) of a line that only assigns; empty for any other."""
    rest = [word for word in words if word not in (*_DECLARING, ";")]
    found = [_ASSIGNMENT.fullmatch(word) for word in rest]
    return [(one[1], one[2], one[3]) for one in found if one] if all(found) else []


@dataclass(kw_only=True)
class _Variables:
    """A script's variables so far, and how many characters their uses stood for."""

    path: str
    values: dict[str, str] = field(default_factory=dict)
    used: int = 0

    def filled(self, text: str) -> str:
        """The text with the values of known variables. Raises UnreadableInput for a script that grows without end."""
        known = (self.values.get(found[1] or found[2], "") for found in _VARIABLE.finditer(text))
        self.used += sum(map(len, known))
        if self.used > MAX_FILLED:
            raise UnreadableInput(f"{self.path}: its variables stand for more than {MAX_FILLED:,} characters")
        return _VARIABLE.sub(lambda found: self.values.get(found[1] or found[2], found[0]), text)
