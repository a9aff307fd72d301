"""PostgreSQL refuses to run as root. This is how root starts it all the same, without new accounts on the machine."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from functools import cache
from pathlib import Path

ACCOUNT = "nobody"

IN_NAMESPACE = ("unshare", "--user", f"--map-user={ACCOUNT}", "--map-group=65534", "--")
"""A user namespace in which root goes by another uid. Outside it the files and the process stay root's, so directories
that only root may enter (/root, a 0700 checkout) need no wider permissions."""


def command_prefix() -> tuple[str, ...]:
    """What goes before a PostgreSQL command so that it does not see uid 0; empty for ordinary users."""
    if os.geteuid() != 0:
        return ()
    if _namespaces_work():
        return IN_NAMESPACE
    return ("setpriv", f"--reuid={ACCOUNT}", "--regid=65534", "--clear-groups", "--")


def owner_uid() -> int:
    """The uid that owns what PostgreSQL writes."""
    if os.geteuid() == 0 and not _namespaces_work():
        return pwd.getpwnam(ACCOUNT).pw_uid
    return os.geteuid()


def can_enter(directory: Path) -> bool:
    """Whether PostgreSQL, under its account, can use this existing directory."""
    return subprocess.run([*command_prefix(), "test", "-x", directory], check=False).returncode == 0


@cache
def _namespaces_work() -> bool:
    """Containers without CAP_SYS_ADMIN usually forbid user namespaces."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*IN_NAMESPACE, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
