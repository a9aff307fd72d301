"""Logs as JSON lines, each with the run that it speaks of, for `GATEKEEPER_LOG_FORMAT=json`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

_run: ContextVar[str | None] = ContextVar("run", default=None)
_RUN_IN_TEXT = re.compile(r"\bruns?[/ ]([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")

CONFIG: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "gatekeeper.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
    "loggers": {
        name: {"level": "INFO", "handlers": [], "propagate": True}
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery")
    }
    | {"httpx": {"level": "WARNING"}},
}
"""For `logging.config.dictConfig`: everything to stderr, uvicorn's and Celery's lines too."""


@contextmanager
def about_run(run_id: UUID) -> Iterator[None]:
    """Within, lines of this thread carry the run's id."""
    token = _run.set(str(run_id))
    try:
        yield
    finally:
        _run.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, run_id, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        message = record.getMessage()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        run_id = _run.get() or _run_in(message)
        if run_id is not None:
            line["run_id"] = run_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _run_in(message: str) -> str | None:
    """The run that a line names itself: `run ID …`, or a request of `/runs/ID`."""
    found = _RUN_IN_TEXT.search(message)
    return found[1] if found else None
