"""The command line as a module of Python, where no script is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["gatekeeper", "gatekeeper.cli"])
def test_both_modules_are_the_command_line(module: str) -> None:
    argv = [sys.executable, "-m", module, "policy", "show", "nowhere"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    assert "policy: unknown 'nowhere'" in done.stderr
