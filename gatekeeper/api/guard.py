"""What every request passes: a token for what changes something, and headers that keep browsers from mischief."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gatekeeper.api.problems import problem_response

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}


class Guard:
    """ASGI middleware. `token` None: nobody needs one."""

    def __init__(self, app: ASGIApp, *, token: SecretStr | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = None if scope["method"] in SAFE_METHODS else self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
            return problem_response(
                HTTPStatus.FORBIDDEN,
                kind="cross-site",
                title="The request comes from another site",
                detail="a browser sent it for a page that is not this service's",
                instance=scope["path"],
            )
        if self._token is None or self._is_known(headers.get("authorization", "")):
            return None
        return problem_response(
            HTTPStatus.UNAUTHORIZED,
            kind="unauthorized",
            title="The token is missing or wrong",
            detail="send `Authorization: Bearer <token>`",
            instance=scope["path"],
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _is_known(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        expected = self._token.get_secret_value() if self._token else ""
        same = hmac.compare_digest(given.strip().encode(), expected.encode())
        return scheme.lower() == "bearer" and same
