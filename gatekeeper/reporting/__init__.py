"""A run as text, JSON, Markdown or JUnit. Pure: a run in, a string out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from gatekeeper.reporting.junit import render_junit
from gatekeeper.reporting.markdown import render_markdown
from gatekeeper.reporting.text import render_text
from gatekeeper.reporting.view import RunView, read_run


def render_json(document: Mapping[str, Any]) -> str:
    """The service's own document, indented and otherwise as it came."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _of_view(render: Callable[[RunView], str]) -> Callable[[Mapping[str, Any]], str]:
    return lambda document: render(read_run(document))


RENDERERS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "text": _of_view(render_text),
    "json": render_json,
    "markdown": _of_view(render_markdown),
    "junit": _of_view(render_junit),
}
"""Format -> the run's document, as the service sent it, to text that ends with a newline."""
