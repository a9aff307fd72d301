"""The doorbell: a Celery message that says which run waits. It carries a run id, and the trace that it belongs to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid4

from celery import Celery
from kombu.exceptions import KombuError
from kombu.transport import filesystem

from gatekeeper import tracing
from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.vllm_flags import Device
from gatekeeper.settings import Settings

TASK: Final = "gatekeeper.execute"
QUEUE_PREFIX: Final = "device."
Ring: TypeAlias = Callable[[UUID, Device], None]
"""Tells the workers of a device that a run waits. Raises ServiceUnavailable; then the sweep rings later."""

REACH_SECONDS: Final = 3.0
POLL_SECONDS: Final = 0.2
"""How often the folders of the broker without a server are looked into."""
CONTROL_SUFFIX: Final = ".pidbox"
"""Of the queues that Celery's control messages and the answers to them go through."""
CONTROL_SECONDS: Final = 10.0
"""A control message that nobody has taken for so long is removed; whoever sent it waits no more."""
IMPATIENT: Final[Mapping[str, float]] = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}


def queue_name(device: Device) -> str:
    """The queue that the workers of a device listen to."""
    return f"{QUEUE_PREFIX}{device}"


def make_celery(settings: Settings) -> Celery:
    """The Celery application of producers and workers.

    Messages are acknowledged early: they are doorbells, and leases in PostgreSQL keep runs from being lost.
    """
    app = Celery("gatekeeper", set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=REACH_SECONDS,
        task_default_queue=queue_name(settings.device),
        task_create_missing_queues=True,
        task_acks_late=False,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
    )
    if settings.broker_url is not None:
        app.conf.update(
            broker_url=settings.broker_url, broker_transport_options=_reach_options(settings.broker_url)
        )
    else:
        app.conf.update(
            broker_url="filesystem://",
            broker_transport=f"{__name__}:AtomicFilesystemTransport",
            broker_transport_options=_make_folders(settings.root / "broker"),
        )
    return app


def trace_of(request: Any) -> dict[str, str]:
    """The headers of a task's message that name the trace it belongs to; Celery adds headers to the request."""
    return {name: request.get(name) for name in tracing.HEADERS if request.get(name)}


class Doorbell:
    """The producer's side: a connection per ring, for rings are rare, and quick to say that nobody answers."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery

    def ring(self, run_id: UUID, device: Device) -> None:
        """Tell the workers of `device` that the run waits. Raises ServiceUnavailable."""
        with (
            tracing.span("ring", kind="PRODUCER", run_id=run_id, device=device),
            self._connection() as connection,
        ):
            self._celery.send_task(
                TASK, args=[str(run_id)], queue=queue_name(device), connection=connection, retry=False,
                headers=tracing.carrier(),
            )  # fmt: skip

    def check(self) -> None:
        """Raise ServiceUnavailable unless the broker can be reached."""
        with self._connection() as connection:
            folder = connection.transport_options.get("data_folder_out")
            if folder is not None and not os.access(folder, os.W_OK):
                raise ServiceUnavailable(f"broker: cannot write to {folder}")
            connection.ensure_connection(**IMPATIENT)

    def close(self) -> None:
        """Give back what Celery holds."""
        self._celery.close()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            with self._celery.connection_for_write(transport_options=dict(IMPATIENT)) as connection:
                yield connection
        except (KombuError, OSError) as error:
            raise ServiceUnavailable(f"broker: {error}") from error


class AtomicFilesystemChannel(filesystem.Channel):
    """Kombu's filesystem channel, but a message appears only when it is complete, and control messages go when stale.

    Kombu creates the file and then writes it; a worker that looks in between dies of half a message. Nor does it know
    of messages that expire: those to a worker that has ended would gather for ever.
    """

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # as kombu does
        folder = Path(self.data_folder_out)
        if queue.endswith(CONTROL_SUFFIX):
            _remove_stale(folder)
        draft = folder / f".{uuid4()}.draft"
        draft.write_text(json.dumps(payload), encoding="utf-8")
        draft.rename(folder / f"{int(time.time() * 1000)}_{uuid4()}.{queue}.msg")


class AtomicFilesystemTransport(filesystem.Transport):
    """The broker without a server."""

    Channel = AtomicFilesystemChannel


def _remove_stale(folder: Path) -> None:
    """Remove the control messages that nobody waits for any more; another process may do the same."""
    eldest = time.time() - CONTROL_SECONDS
    for message in folder.glob(f"*{CONTROL_SUFFIX}.msg"):
        with suppress(FileNotFoundError):
            if message.stat().st_mtime < eldest:
                message.unlink()


def _make_folders(broker: Path) -> dict[str, Any]:
    folders = {
        "messages": broker / "messages",
        "processed": broker / "processed",
        "control": broker / "control",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(folders["messages"]),
        "data_folder_out": str(folders["messages"]),
        "processed_folder": str(folders["processed"]),
        "control_folder": str(folders["control"]),
        "store_processed": False,
        "polling_interval": POLL_SECONDS,
    }


def _reach_options(url: str) -> dict[str, Any]:
    if not url.startswith(("redis://", "rediss://")):
        return {}
    return {"socket_connect_timeout": REACH_SECONDS, "socket_timeout": 30.0, "socket_keepalive": True}
