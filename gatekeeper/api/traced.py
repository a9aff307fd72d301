"""A span for every request, named by its route, so that requests for different runs are counted together."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gatekeeper import tracing

QUIET: Final = ("/healthz", "/readyz", "/metrics", "/static/")
"""Asked for by machines every few seconds, or the same for everybody."""


class Traced:
    """ASGI middleware; names and attributes as OpenTelemetry's conventions for HTTP servers have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on inside a span."""
        if scope["type"] != "http" or scope["path"].startswith(QUIET):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        carried = {name: headers[name] for name in tracing.HEADERS if name in headers}
        with tracing.span(scope["method"], kind="SERVER", carried=carried) as span:

            async def send_noting_status(message: Message) -> None:
                if span is not None and message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            await self._app(scope, receive, send_noting_status)
            if span is not None:
                route = getattr(scope.get("route"), "path", None)
                span.update_name(f"{scope['method']} {route}" if route else scope["method"])
                span.set_attributes({"http.request.method": scope["method"], "url.path": scope["path"]})
                if route:
                    span.set_attribute("http.route", route)
