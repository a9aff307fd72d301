"""Prepare what the Makefile's targets need: `bootstrap.py env model browser`; a step that is done already is skipped.

Standard library only, since it runs before the environment exists. One line per step; everything that pip, apt and the
model's conversion say goes to $GATEKEEPER_HOME/logs/bootstrap.log, whose end is shown when a step fails.
Exit codes: 0 done, 1 a step failed, 3 this machine lacks something, which the last line names.
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# Written last: an environment without it was never finished, and is made anew.
STAMP = VENV / "gatekeeper-complete.json"
HOME = Path(os.environ.get("GATEKEEPER_HOME") or ROOT / ".gatekeeper").resolve()
LOG = HOME / "logs" / "bootstrap.log"
TORCH_LOCK = ROOT / "requirements" / "torch-cpu.txt"
LOCKS = [ROOT / "requirements" / f"{part}.txt" for part in ("service", "worker-cpu", "dev")]
# What vLLM's and torch's wheels expect of the machine, by Debian package.
LIBRARIES = {"libnuma.so.1": "libnuma1", "libstdc++.so.6": "libstdc++6"}
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
LOG_TAIL_LINES = 25

NO_TORCH = (
    "pip found no CPU build of PyTorch here: add PyTorch's CPU wheel index to pip's sources "
    "(export PIP_EXTRA_INDEX_URL=<that index>) and run make again."
)


class StepFailed(Exception):
    """A command ended with an error; the log has its output."""


def main(steps: Sequence[str]) -> None:
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with (HOME / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once take turns
        with LOG.open("w") as log:
            for name in steps:
                STEPS[name](log)


def ensure_environment(log: IO[str]) -> None:
    wanted = environment_key()
    done = json.loads(STAMP.read_text()) if STAMP.exists() else {}
    ensure_libraries(log)
    if done.get("interpreter") != wanted["interpreter"]:
        create_environment(log)
        done = {}
    if done.get("packages") != wanted["packages"]:
        STAMP.unlink(missing_ok=True)
        install_packages(log, is_update=bool(done))
    if done != wanted:
        STAMP.unlink(missing_ok=True)
        with step("env", "this project, editable", log):
            run([*pip_install(), "--editable", str(ROOT)], log)
        STAMP.write_text(json.dumps(wanted))


def environment_key() -> dict[str, str]:
    """What the environment depends on; a difference in one part redoes that part only."""
    where = f"{ROOT} {sys.implementation.cache_tag} {platform.machine()} {os.path.realpath(sys.executable)}"
    packages = b"".join(path.read_bytes() for path in [TORCH_LOCK, *LOCKS])
    return {
        "interpreter": where,
        "packages": hashlib.sha256(packages).hexdigest(),
        "project": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
    }


def create_environment(log: IO[str]) -> None:
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        install_venv_module(log)
    with step("env", f"Python {platform.python_version()} in {VENV.relative_to(ROOT)}/", log):
        run([sys.executable, "-I", "-m", "venv", "--clear", str(VENV)], log)


def install_venv_module(log: IO[str]) -> None:
    """Debian ships Python without `ensurepip`, in a package of its own."""
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    require_debian_packages([package], f"{sys.executable} lacks the modules venv and ensurepip", log)


def ensure_libraries(log: IO[str]) -> None:
    if missing := [name for name in LIBRARIES if not is_loadable(name)]:
        require_debian_packages(
            [LIBRARIES[name] for name in missing], f"vLLM needs {', '.join(missing)}", log
        )


def is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def require_debian_packages(packages: Sequence[str], why: str, log: IO[str]) -> None:
    """Install them where that is possible, else say what to install, and leave."""
    names = " ".join(packages)
    sentence = f"{why}; on Debian: apt-get install {names}"
    if not can_apt_install():
        fail(sentence)
    with step("env", f"Debian package {names}", log):
        try:
            apt_install(packages, log)
        except StepFailed:
            fail(f"{sentence} (tried, see {LOG})")


def install_packages(log: IO[str], *, is_update: bool) -> None:
    torch_line = next(line for line in TORCH_LOCK.read_text().splitlines() if line.startswith("torch=="))
    with step("env", f"PyTorch, CPU build ({torch_line.split('+')[0]})", log):
        start = log.tell()
        try:
            run([*pip_install(), "--requirement", str(TORCH_LOCK)], log)
        except StepFailed:
            if b"No matching distribution found for torch" in LOG.read_bytes()[start:]:
                fail(NO_TORCH)
            raise
    names = [line for path in LOCKS for line in path.read_text().splitlines() if "==" in line]
    with step("env", f"{len(names)} locked packages (about 2 minutes the first time)", log):
        run([*pip_install(), *(arg for path in LOCKS for arg in ("--requirement", str(path)))], log)
        check_torch(log)
    if is_update:
        remove_unlocked_packages(log)


def check_torch(log: IO[str]) -> None:
    """On arm64 the CPU and the CUDA build have the same version, and only one of them works without CUDA's packages."""
    try:
        run(
            [str(PYTHON), "-I", "-c", "import torch; assert torch.version.cuda is None, torch.version.cuda"],
            log,
        )
    except StepFailed:
        fail(NO_TORCH)


def pip_install() -> list[str]:
    # --no-build-isolation: the few source packages are built with the locked setuptools, not with one fetched just now.
    options = ("--no-deps", "--no-build-isolation", "--no-user", "--no-input", "--progress-bar=off")
    return [str(PYTHON), "-I", "-m", "pip", "install", *options]


def remove_unlocked_packages(log: IO[str]) -> None:
    """After an update of a complete environment, remove what the lock no longer has."""
    listed = subprocess.run(
        [PYTHON, "-I", "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True
    ).stdout
    locked = {
        canonical(line.partition("==")[0])
        for path in [TORCH_LOCK, *LOCKS]
        for line in path.read_text().splitlines()
        if "==" in line
    }
    names = {canonical(item["name"]) for item in json.loads(listed)}
    if surplus := sorted(names - locked - {"pip", "gatekeeper"}):
        run([str(PYTHON), "-I", "-m", "pip", "uninstall", "--yes", *surplus], log)


def canonical(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def ensure_model(log: IO[str]) -> None:
    with step("model", "SmolLM2-135M-Instruct in bfloat16 (about 20 seconds the first time)", log):
        run([str(PYTHON), "-m", "workers.models", "build", "--home", str(HOME)], log)


def ensure_browser(log: IO[str]) -> None:
    """The browser test wants a Chromium; without one it skips, so nothing here is an error."""
    if any(shutil.which(name) for name in CHROMIUM_NAMES):
        return
    if not can_apt_install():
        report("browser", "no Chromium, and no root with apt-get to install it: the browser test will skip")
        return
    try:
        with step("browser", "Debian packages chromium, fonts-liberation", log):
            apt_install(["chromium", "fonts-liberation"], log)
    except StepFailed:
        report("browser", f"Chromium could not be installed ({LOG}): the browser test will skip")


def can_apt_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: Sequence[str], log: IO[str]) -> None:
    run(["apt-get", "update"], log)
    run(["apt-get", "install", "--yes", "--no-install-recommends", *packages], log)


@contextmanager
def step(part: str, what: str, log: IO[str]) -> Iterator[None]:
    """Print one line for what happens inside; on failure the end of its log, and leave."""
    started = time.monotonic()
    print(f"{part:8} {what} ...", end="", flush=True)
    log.write(f"\n== {time.strftime('%F %T')} {part}: {what}\n")
    log.flush()
    try:
        yield
    except StepFailed as failure:
        print(f" failed after {time.monotonic() - started:.0f} s: {failure}", flush=True)
        if part == "browser":
            raise
        tail = LOG.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        print("\n".join(f"    {line}" for line in tail))
        print(f"the whole log: {LOG}")
        sys.exit(1)
    print(f" {time.monotonic() - started:.0f} s", flush=True)


def run(command: Sequence[str], log: IO[str]) -> None:
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    code = subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
    ).returncode
    log.seek(0, os.SEEK_END)
    if code != 0:
        raise StepFailed(f"{Path(command[0]).name} ended with {code}")


def environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET")
    }
    # Every version is locked, so a constraints file of this machine has nothing to add and could only contradict.
    return kept | {"PIP_CONSTRAINT": os.devnull, "DEBIAN_FRONTEND": "noninteractive"}


def report(part: str, sentence: str) -> None:
    print(f"{part:8} {sentence}", flush=True)


def fail(sentence: str) -> NoReturn:
    print(f"\n{sentence}", flush=True)
    sys.exit(3)


STEPS = {"env": ensure_environment, "model": ensure_model, "browser": ensure_browser}

if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        print("\ninterrupted; the next make goes on from a clean start")
        sys.exit(130)
