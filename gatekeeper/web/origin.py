"""Did a form come from our own pages? Buttons carry no token, so a POST from elsewhere must not work."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """True if the browser says that the request comes from this host. Fails closed: without a word, it is false.

    Every current browser sends `Sec-Fetch-Site` (over HTTPS and loopback) and, with a POST, `Origin`. The scheme is not
    compared: behind a proxy that ends TLS the service sees HTTP.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
