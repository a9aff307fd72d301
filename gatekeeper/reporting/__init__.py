"""Runs as text, JSON, Markdown, JUnit or SARIF. Pure: runs in, a string out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gatekeeper.reporting.junit import render_junit
from gatekeeper.reporting.markdown import render_markdown
from gatekeeper.reporting.sarif import render_sarif
from gatekeeper.reporting.text import render_text
from gatekeeper.reporting.view import RunView, read_run

Documents: TypeAlias = Sequence[Mapping[str, Any]]


def render_json(documents: Documents) -> str:
    """The service's own documents, indented and otherwise as they came; a list unless it is one."""
    shown = documents[0] if len(documents) == 1 else list(documents)
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def _of_views(render: Callable[[Sequence[RunView]], str]) -> Callable[[Documents], str]:
    return lambda documents: render([read_run(document) for document in documents])


def _one_by_one(render: Callable[[RunView], str]) -> Callable[[Sequence[RunView]], str]:
    return lambda runs: "\n".join(render(run) for run in runs) or f"{NOTHING}\n"


NOTHING: Final = "No change of a KV configuration was found, so there is nothing to gate."

RENDERERS: Final[Mapping[str, Callable[[Documents], str]]] = {
    "text": _of_views(_one_by_one(render_text)),
    "json": render_json,
    "markdown": _of_views(_one_by_one(render_markdown)),
    "junit": _of_views(render_junit),
    "sarif": _of_views(render_sarif),
}
"""Format -> the runs' documents, as the service sent them, to text that ends with a newline."""
