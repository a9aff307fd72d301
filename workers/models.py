"""The model that comes with the worker, so that a first gate needs no model hub.

`python -m workers.models build` makes it under $GATEKEEPER_HOME/models, `path` says where it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gatekeeper.embedded.bundled_model import FINISHED, directory, is_built


def convert_apart(target: Path) -> None:
    """Convert in a process of its own: that loads torch, and this module is for everyone."""
    subprocess.run([sys.executable, "-m", "workers.smollm2", str(target)], check=True)


def build(home: Path, convert: Callable[[Path], None] = convert_apart) -> Path:
    """Make the bundled model unless it is there: 20 s and 270 MB, all of it or nothing."""
    target = directory(home)
    if is_built(home):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        convert(scratch)
        (scratch / FINISHED).touch()
        scratch.chmod(0o755)
        if not is_built(home):
            shutil.rmtree(target, ignore_errors=True)  # whatever it is, it was never finished
        try:
            scratch.rename(target)
        except OSError:
            if not is_built(home):  # else another process was quicker, with the same result
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workers.models", description="The model that comes with the worker."
    )
    parser.add_argument("verb", choices=("build", "path"))
    default = os.environ.get("GATEKEEPER_HOME") or ".gatekeeper"
    parser.add_argument(
        "--home", type=Path, default=Path(default), help="default: $GATEKEEPER_HOME or .gatekeeper"
    )
    arguments = parser.parse_args()
    home: Path = arguments.home.resolve()
    print(build(home) if arguments.verb == "build" else directory(home))


if __name__ == "__main__":
    main()
