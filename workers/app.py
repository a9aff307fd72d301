"""The Celery application of the workers: `celery -A workers.app worker -Q device.cpu --pool=prefork -c 1`."""

from __future__ import annotations

import logging
import logging.config
from functools import lru_cache
from uuid import UUID

from celery import Task
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown

from gatekeeper import logs, tracing
from gatekeeper.queue import TASK, make_celery, trace_of
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions, make_engine, make_sessions
from workers.tasks import work_on

logging.getLogger("httpx").setLevel(
    logging.WARNING
)  # a line per poll of an engine would drown everything else
settings = Settings()
app = make_celery(settings)


def log_as_json(**_: object) -> None:
    """Configure logging in Celery's place."""
    logging.config.dictConfig(logs.CONFIG)


if settings.log_format == "json":
    setup_logging.connect(log_as_json, weak=False)


@lru_cache(maxsize=1)
def sessions() -> Sessions:
    """The connection pool of this worker process: made after the fork, since connections cannot be shared."""
    if settings.database_url is None:
        raise SystemExit("DATABASE_URL is needed: workers do not start a database of their own")
    return make_sessions(make_engine(settings.database_url))


@worker_process_init.connect  # type: ignore[untyped-decorator]  # celery has no types
def start_tracing(**_: object) -> None:
    """After the fork, in the process that works."""
    end = tracing.start("gatekeeper-worker")
    worker_process_shutdown.connect(lambda **_: end(), weak=False)


@app.task(name=TASK, bind=True)  # type: ignore[untyped-decorator]  # celery has no types
def execute(task: Task, run_id: str) -> None:
    """Work on a run, in the trace of whoever rang."""
    carried = trace_of(task.request)
    with logs.about_run(UUID(run_id)), tracing.span("run", kind="CONSUMER", carried=carried, run_id=run_id):
        work_on(UUID(run_id), sessions(), settings)
