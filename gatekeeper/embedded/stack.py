"""The whole service on one machine, with nothing installed beside it: PostgreSQL, API and pages, one worker.

One process supervises: it holds the lock of the data directory, starts the others, notices when one dies, and
stops all of them. Nothing runs in threads; whoever waits calls `check` now and then.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from sqlalchemy.exc import SQLAlchemyError

from gatekeeper.domain.errors import FieldProblem, InvalidInput, ServiceUnavailable
from gatekeeper.embedded import bundled_model, postgres, service_file
from gatekeeper.embedded.listener import StackFailed, listen
from gatekeeper.embedded.processes import MARK, Child, kill_marked, marked_processes, wait_until
from gatekeeper.services.models import register_model
from gatekeeper.settings import Settings
from gatekeeper.storage import migrate
from gatekeeper.storage.database import make_engine, make_sessions

API_START_S: Final = 120.0
WORKER_RESTARTS: Final = 3
API_SIGNALS: Final = ((signal.SIGTERM, 10.0),)
WORKER_SIGNALS: Final = ((signal.SIGTERM, 3.0), (signal.SIGQUIT, 15.0))
"""Celery: after SIGTERM it would see its run through, which takes minutes; SIGQUIT ends it now."""
ENGINE_STOP_S: Final = 15.0
"""How long engines get to end by themselves once their worker is gone."""
HEALTH_S: Final = 5.0
"""How often the embedded database is looked after."""

Say = Callable[[str], None]


class Stack:
    """A running stack. Made by `running_stack`."""

    def __init__(
        self, url: str, *, api: Child, worker: Child, revive_database: Callable[[], None], say: Say
    ) -> None:
        self.url = url
        self._api = api
        self._worker = worker
        self._revive_database = revive_database
        self._say = say
        self._restarts = 0
        self._healthy_at = time.monotonic()

    @property
    def logs(self) -> dict[str, str]:
        """Where each child's output goes."""
        return {child.name: str(child.log) for child in (self._api, self._worker)}

    def check(self) -> None:
        """Notice what died: start the worker (at most WORKER_RESTARTS times) and the database again.

        Raises StackFailed for the API, and for what cannot be started again.
        """
        if self._api.exit_code() is not None:
            raise _died(self._api)
        if self._worker.exit_code() is not None:
            self._restart_worker()
        if time.monotonic() - self._healthy_at > HEALTH_S:
            if not _is_ready(self.url):
                self._revive_database()
            self._healthy_at = time.monotonic()

    def _restart_worker(self) -> None:
        if self._restarts >= WORKER_RESTARTS:
            raise _died(self._worker)
        self._restarts += 1
        self._say(
            f"{_died(self._worker).detail}\nstarting the worker again ({self._restarts}/{WORKER_RESTARTS})"
        )
        self._worker.start()


def _died(child: Child) -> StackFailed:
    tail = "".join(f"\n    {line}" for line in child.log_tail())
    return StackFailed(f"the {child.name} ended with {child.exit_code()}; the end of {child.log}:{tail}")


@contextmanager
def running_stack(settings: Settings, *, say: Say, port: int | None = None) -> Iterator[Stack]:
    """Start everything, yield once the API is ready, and leave nothing behind.

    `port` None: the one of the settings, or the next that is free. Raises Conflict where this data directory
    has a stack already, InvalidInput for a port that is taken, ServiceUnavailable or StackFailed where a part
    does not start.
    """
    with ExitStack() as exits:
        exits.enter_context(service_file.hold(settings.root))
        listener = exits.enter_context(listen(settings.host, settings.port, chosen=port))
        url = exits.enter_context(_database(settings, say))
        _register_bundled_model(settings, url, say)
        mark = secrets.token_hex(8)
        exits.callback(_report_left_over, mark, say)
        environment = _environment(settings, database_url=url, port=listener.getsockname()[1], mark=mark)
        logs = settings.root / "logs"
        address = f"http://{_reachable(settings.host)}:{environment['GATEKEEPER_PORT']}"
        api = _api(listener, environment, logs)
        _launch(exits, api, API_SIGNALS)
        listener.close()  # the API's alone from here, so that nothing waits for one that has died
        _await_ready(api, address)
        argv = worker_argv(settings.device)
        worker = Child(
            "worker",
            argv,
            environment=environment,
            log=logs / "worker.log",
            orphan_signal=signal.SIGQUIT,  # SIGTERM would let Celery see its run through
        )
        _launch(exits, worker, WORKER_SIGNALS)
        service_file.announce(settings.root, address)
        try:
            yield Stack(
                address, api=api, worker=worker, revive_database=partial(_revive, settings, say), say=say
            )
        finally:
            say("stopping")


def _api(listener: socket.socket, environment: Mapping[str, str], logs: Path) -> Child:
    """What serves API and pages, on a socket that it is handed."""
    number = listener.fileno()
    argv = [sys.executable, "-m", "gatekeeper.cli", "serve", "--fd", str(number)]
    return Child("API", argv, environment=environment, log=logs / "api.log", handed_on=[number])


def worker_argv(device: str) -> list[str]:
    """The command of a worker for one device: one job at a time."""
    celery = [sys.executable, "-m", "celery", "-A", "workers.app", "worker"]
    return [*celery, "-Q", f"device.{device}", "--pool=prefork", "-c", "1", "--loglevel=INFO"]


def _reachable(host: str) -> str:
    """An address to call a server at that listens on `host`."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def database_dir(settings: Settings) -> Path:
    """Where the embedded PostgreSQL keeps its data."""
    return settings.root / "postgres"


@contextmanager
def _database(settings: Settings, say: Say) -> Iterator[str]:
    """Yield the URL of a migrated database: the operator's, or the embedded one."""
    if settings.database_url:
        yield migrated(settings.database_url)
        return
    say("starting PostgreSQL")
    try:
        yield migrated(postgres.start(database_dir(settings)))
    finally:
        postgres.stop(database_dir(settings))


def _revive(settings: Settings, say: Say) -> None:
    """Start the embedded PostgreSQL again if it is down. An operator's database is the operator's business."""
    if settings.database_url:
        return
    before = _server_id(settings)
    postgres.start(database_dir(settings))
    if _server_id(settings) != before:
        say("PostgreSQL had ended, and was started again")


def _server_id(settings: Settings) -> str:
    try:
        return (database_dir(settings) / "postmaster.pid").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""


def migrated(url: str) -> str:
    """Bring a database to the newest schema, return its URL. Raises InvalidInput or ServiceUnavailable."""
    try:
        migrate.upgrade(url)
    except ValueError as error:
        problem = FieldProblem(
            field="DATABASE_URL", problem=str(error), allowed="postgresql://USER@HOST/NAME"
        )
        raise InvalidInput([problem]) from error
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise ServiceUnavailable(f"PostgreSQL: {cause[0] if cause else type(error).__name__}") from error
    return url


def _register_bundled_model(settings: Settings, url: str, say: Say) -> None:
    """Let callers name the bundled model, if it is there."""
    if not bundled_model.is_built(settings.root):
        build = f"{sys.executable} -m workers.models build --home {settings.root}"
        say(f"the model {bundled_model.NAME} is not built: `{build}` makes it")
        return
    engine = make_engine(url)
    try:
        register_model(make_sessions(engine), bundled_model.bundled_model(settings.root))
    finally:
        engine.dispose()


def _environment(settings: Settings, *, database_url: str, port: int, mark: str) -> Mapping[str, str]:
    """What the children get: ours, and where everything is."""
    own = {
        "DATABASE_URL": database_url,
        "GATEKEEPER_HOME": str(settings.root),
        "GATEKEEPER_HOST": settings.host,
        "GATEKEEPER_PORT": str(port),
        "PYTHONUNBUFFERED": "1",
        "SPT_NOENV": "1",  # setproctitle, which Celery uses, would write its title over the mark
        MARK: mark,
    }
    if settings.catalog_dir:
        own["GATEKEEPER_CATALOG_DIR"] = str(settings.catalog_dir.absolute())
    return os.environ | own


def _launch(exits: ExitStack, child: Child, signals: tuple[tuple[signal.Signals, float], ...]) -> None:
    child.start()
    exits.callback(child.stop, signals)


def _await_ready(api: Child, address: str) -> None:
    """Wait until the API answers that it is ready. Raises StackFailed."""

    def is_settled() -> bool:
        return api.exit_code() is not None or _is_ready(address)

    if not wait_until(is_settled, within_s=API_START_S):
        raise StackFailed(f"the API at {address} is not ready after {API_START_S:.0f} s; see {api.log}")
    if api.exit_code() is not None:
        raise _died(api)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _report_left_over(mark: str, say: Say) -> None:
    """Wait for engines to end, then kill what outlived its parent, and say so: there should be nothing."""
    wait_until(lambda: not marked_processes(mark), within_s=ENGINE_STOP_S)
    for pid, command in kill_marked(mark).items():
        say(f"killed process {pid}, which had been left behind: {command:.80}")
