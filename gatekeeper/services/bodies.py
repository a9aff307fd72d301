"""Bodies of requests, read no further than they may be long."""

from __future__ import annotations

from collections.abc import AsyncIterable

from gatekeeper.domain.errors import BodyTooLarge


async def read_at_most(limit: int, chunks: AsyncIterable[bytes], *, declared: str) -> bytes:
    """The whole body. `declared`: its Content-Length. Raises BodyTooLarge, having read about `limit` bytes at most."""
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"{declared} bytes, at most {limit}")
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge(f"more than {limit} bytes")
    return bytes(body)
