"""From a template and a view model to an answer."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gatekeeper.web.assets import asset_url

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Nothing inline, nothing from elsewhere."""

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals["asset_url"] = asset_url


def render(template: str, *, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    """Fill a template."""
    text = _environment.get_template(template).render(**values)
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def render_error(status: HTTPStatus, *, title: str, detail: str) -> HTMLResponse:
    """A page that says what went wrong and where to go on."""
    return render("error.html", status=status, title=title, detail=detail, code=int(status))
