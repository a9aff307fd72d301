"""What git knows: which files a branch changed, and how they were before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from gatekeeper.detecting.changes import Detected, changes_between
from gatekeeper.detecting.commands import YAML_ENDINGS, is_candidate, serving_commands
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput

LARGEST_BYTES: Final = 1_000_000


def detect(
    folder: Path, *, base: str, paths: Sequence[str], allowed: frozenset[str], model: str | None
) -> Iterator[Detected | str]:
    """The changes that the working tree makes to serving commands since it left `base`; text for what was passed over.

    `paths`: git pathspecs to look at, all if empty. Raises InvalidInput, and UnreadableInput for a manifest of now that
    cannot be read.
    """
    fork = _fork(folder, base)
    for path, old_path in _changed_files(folder, fork, paths):
        if not is_candidate(path):
            continue
        text = _text(folder / path)
        if text is None:
            yield f"passed over: {path} is a link, no file, or larger than {LARGEST_BYTES:,} bytes"
            continue
        if _is_template(path, text):
            yield f"passed over: {path} is a chart's template; its values are read"
            continue
        new = serving_commands(path, text)
        if not new:
            continue
        try:
            old = serving_commands(old_path, _old_text(folder, fork, old_path))
        except UnreadableInput as error:
            yield f"taken as new: {path}, as its old version could not be read: {error.detail}"
            old = ()
        yield from changes_between(path, old, new, allowed=allowed, model=model)


def _is_template(path: str, text: str) -> bool:
    in_chart = "templates" in PurePosixPath(path).parts and path.endswith(YAML_ENDINGS)
    return in_chart and "{{" in text and "vllm" in text


def commit_of(folder: Path) -> str:
    """The commit that is checked out."""
    return _git(folder, "rev-parse", "HEAD").strip()


def _fork(folder: Path, base: str) -> str:
    """Where the working tree's branch left `base`; `base` itself if they share no history that is here."""
    if base.startswith("-"):
        raise _bad_base(base)
    try:
        return _git(folder, "merge-base", base, "HEAD").strip()
    except InvalidInput:
        try:
            return _git(folder, "rev-parse", "--verify", f"{base}^{{commit}}").strip()
        except InvalidInput as error:
            raise _bad_base(base) from error


def _bad_base(base: str) -> InvalidInput:
    allowed = "a commit or branch that was fetched; in CI, fetch the whole history (fetch-depth: 0)"
    return InvalidInput([FieldProblem(field="base", problem=f"unknown {base!r}", allowed=allowed)])


def _changed_files(folder: Path, fork: str, paths: Sequence[str]) -> list[tuple[str, str]]:
    """(name, name before) of changed, moved or added files, relative to `folder`; those not committed yet included."""
    options = ("--name-status", "-z", "--relative", "--find-renames", "--diff-filter=d")
    words = iter(_git(folder, "diff", *options, fork, "--", *paths).split("\0"))
    found = {}
    for status in words:
        if status:
            old = next(words)
            found[next(words) if status[0] in "RC" else old] = old
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return sorted((found | {path: path for path in new.split("\0") if path}).items())


def _old_text(folder: Path, fork: str, path: str) -> str:
    """Empty for a new file. Raises UnreadableInput for one that is too large."""
    name = f"{fork}:./{path}"
    try:
        size = int(_git(folder, "cat-file", "-s", name))
    except InvalidInput:
        return ""
    if size > LARGEST_BYTES:
        raise UnreadableInput(f"{path} was larger than {LARGEST_BYTES:,} bytes")
    return _git(folder, "show", name)


def _text(path: Path) -> str | None:
    """None for what is not read: a link may lead out of the repository."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_BYTES:
        return None
    return path.read_text(encoding="utf-8", errors="replace")


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, errors="replace", check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        allowed = "a git repository"
        problem = FieldProblem(field=f"git {words[0]}", problem=" ".join(reason.split()), allowed=allowed)
        raise InvalidInput([problem]) from error
    return done.stdout
