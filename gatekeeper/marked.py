"""Processes found by a mark in their environment, which all their descendants inherit, whatever group they are in.

Only the standard library and no other module of ours: supervisors import this, and must start in an instant.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def marked_processes(variable: str, prefix: str) -> dict[int, str]:
    """Pid and command line of every other living process whose `variable` begins with `prefix`.

    Empty where there is no /proc.
    """
    wanted = f"{variable}={prefix}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended just now, or belongs to somebody else
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            )
            marked = any(entry.startswith(wanted) for entry in environment)
            if marked and command and int(folder.name) != os.getpid():  # a zombie has no command line
                found[int(folder.name)] = command
    return found
