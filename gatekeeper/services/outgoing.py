"""HTTP requests to addresses that callers named, without letting them reach what only this machine may reach.

A host is resolved once, every address that it resolves to is checked, and the connection goes to the checked address:
a name that points elsewhere a moment later changes nothing. Redirects are not followed, answers are not read, and the
environment's proxies are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import httpx

from gatekeeper.domain.errors import GatekeeperError

TIMEOUT_S: Final = 10.0
"""For each step: to connect, to take some more of the message, to say some more."""
DEADLINE_S: Final = 20.0
"""For all of them together, however slowly a receiver goes on. With the look-up of its name it ends within a lease."""

LONGEST_NAME: Final = 253
LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
"""A part of a host's name; underscores are no part of the standard and common in private networks."""

RESERVED: Final = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20", "5f00::/16")
)
"""Not public by IANA's registries of special-purpose addresses, and public for some versions of `ipaddress`."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Sequence[str]]


class NotSent(GatekeeperError):
    """The message did not arrive."""


class Gone(NotSent):
    """The receiver wants no more messages."""


def resolve(host: str, port: int, *, flags: int = 0) -> list[str]:
    """The addresses of a host; `flags` as `getaddrinfo` has them. Raises NotSent."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError) as error:
        raise NotSent(f"{host} has no address: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def url_problem(url: str) -> str | None:
    """What is wrong with an address as such, before anything is resolved; None if nothing is."""
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # decoding it can fail too
    except (httpx.InvalidURL, ValueError):
        return "is no address"
    if parsed.scheme not in ("http", "https") or not host:
        return "is no http or https address"
    if not _is_host(parsed.raw_host.decode("ascii")):
        return "names no host: neither a name nor an IP address"
    if parsed.port is not None and not 1 <= parsed.port <= 65_535:
        return "names a port outside of 1 to 65535"
    return "names a user" if parsed.userinfo else None


def _is_host(text: str) -> bool:
    """An IPv6 address without a zone, or labels of at most 63 characters, which an IPv4 address is too (RFC 1123)."""
    if ":" in text:
        return "%" not in text
    name = text.removesuffix(".")
    return len(name) <= LONGEST_NAME and all(LABEL.fullmatch(label) for label in name.split("."))


def host_problem(url: str, *, allowed: Sequence[str] = ()) -> str | None:
    """Why the host of an address without `url_problem` is never reached, as far as that shows without a look-up.

    Read as connecting reads it, so 2130706433, 0x7f000001 and ::ffff:127.0.0.1 are 127.0.0.1. None for other names than
    this machine's own: they may lead elsewhere when a message is sent, and are checked then.
    """
    host = httpx.URL(url).host.rstrip(".")
    try:
        written = ["127.0.0.1"] if _is_own_name(host) else resolve(host, 0, flags=socket.AI_NUMERICHOST)
    except NotSent:
        return None
    try:
        checked_address(written, allowed)
    except NotSent as error:
        return error.detail
    return None


def _is_own_name(host: str) -> bool:
    """`localhost` and the names below it (RFC 6761, section 6.3)."""
    return f".{host.casefold()}".endswith(".localhost")


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Sequence[str] = (),
    resolve: Resolve = resolve,
    deadline_s: float = DEADLINE_S,
) -> None:
    """POST a body to a public address, or to one in the `allowed` networks, from a thread without an event loop.

    Raises NotSent, and Gone for status 410.
    """
    problem = url_problem(url)
    if problem:
        raise NotSent(f"{url!r} {problem}")
    target = httpx.URL(url)
    port = target.port or (443 if target.scheme == "https" else 80)
    address = checked_address(resolve(target.host, port), allowed)
    pinned = target.copy_with(host=address)
    all_headers = {**headers, "Host": target.netloc.decode(), "Content-Type": "application/json"}
    try:
        status = asyncio.run(_status(pinned, body, all_headers, name=target.host, deadline_s=deadline_s))
    except TimeoutError as error:
        raise NotSent(f"{target.host} took more than {deadline_s:g} seconds") from error
    except httpx.HTTPError as error:
        raise NotSent(f"{target.host}: {str(error) or type(error).__name__}") from error
    if status == 410:
        raise Gone(f"{target.host} answered 410")
    if not 200 <= status < 300:
        raise NotSent(f"{target.host} answered {status}")


async def _status(
    url: httpx.URL, body: bytes, headers: Mapping[str, str], *, name: str, deadline_s: float
) -> int:
    """The status of the answer, whose body is not read. `name`: what TLS expects. Raises TimeoutError."""
    named = {"sni_hostname": name}
    async with (
        asyncio.timeout(deadline_s),
        httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, follow_redirects=False) as client,
        client.stream("POST", url, content=body, headers=headers, extensions=named) as response,
    ):
        return response.status_code


def checked_address(addresses: Iterable[str], allowed: Sequence[str]) -> str:
    """The first of the addresses, if all of them may be reached. Raises NotSent."""
    networks = [ipaddress.ip_network(network) for network in allowed]
    found = [_unwrapped(ipaddress.ip_address(address.partition("%")[0])) for address in addresses]
    for address in found:
        if not _may_be_reached(address, networks):
            raise NotSent(f"{address} is not public; the operator can allow networks like it")
    if not found:
        raise NotSent("no address")
    return str(found[0])


def _may_be_reached(address: Address, allowed: Sequence[Network]) -> bool:
    if _is_in(address, allowed):
        return True
    is_reserved = address.is_multicast or address.is_reserved or _is_in(address, RESERVED)
    return address.is_global and not is_reserved


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for (mapped, 6to4, Teredo, NAT64), else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in ipaddress.IPv6Network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    return inner or address
