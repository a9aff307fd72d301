"""What git knows: which files a branch changed, and how they were before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gatekeeper.detecting.changes import Detected, changes_between
from gatekeeper.detecting.commands import is_candidate, serving_commands
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput

LARGEST_BYTES: Final = 1_000_000


def detect(
    folder: Path, *, base: str, paths: Sequence[str], allowed: frozenset[str], model: str | None
) -> Iterator[Detected | str]:
    """The changes that the working tree makes to serving commands since it left `base`; text for what was passed over.

    `paths`: git pathspecs to look at, all if empty. Raises InvalidInput.
    """
    fork = _fork(folder, base)
    for path, old_path in _changed_files(folder, fork, paths):
        if not is_candidate(path):
            continue
        try:
            old = serving_commands(old_path, _old_text(folder, fork, old_path))
            new = serving_commands(path, _text(folder / path))
        except UnreadableInput as error:
            yield f"passed over: {error.detail}"
            continue
        yield from changes_between(path, old, new, allowed=allowed, model=model)


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
    try:
        return _git(folder, "show", f"{fork}:./{path}")
    except InvalidInput:
        return ""  # the file is new


def _text(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
        return ""
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
