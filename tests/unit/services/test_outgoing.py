"""Requests to addresses that callers named."""

from __future__ import annotations

import pytest

from gatekeeper.services.outgoing import (
    DEADLINE_S,
    Gone,
    NotSent,
    checked_address,
    post,
    resolve,
    url_problem,
)
from gatekeeper.services.webhooks import LEASE
from tests.fakes.receiver import receiver, slow_receiver

HERE = ("127.0.0.0/8",)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::",
    ],
)  # fmt: skip
def test_what_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(NotSent, match="is not public"):
        checked_address([address], ())


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    assert checked_address(["93.184.216.34"], ()) == "93.184.216.34"
    with pytest.raises(NotSent):
        checked_address(["93.184.216.34", "10.0.0.1"], ())


def test_the_operator_can_allow_networks() -> None:
    assert checked_address(["10.1.2.3"], ("10.0.0.0/8",)) == "10.1.2.3"
    with pytest.raises(NotSent):
        checked_address(["10.1.2.3"], ("10.2.0.0/16", "fd00::/8"))


def test_the_request_goes_to_the_address_that_was_checked_under_the_name_that_was_given() -> None:
    asked = []

    def resolve_once(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with receiver() as (url, got):
        post(url, b"{}", {"webhook-id": "1"}, allowed=HERE, resolve=resolve_once)
    [(host, path, body)] = got
    assert (host.startswith("receiver.example:"), path, body) == (True, "/hook?x=1", b"{}")
    assert asked == ["receiver.example"]


@pytest.mark.parametrize(("status", "error"), [(500, NotSent), (302, NotSent), (410, Gone)])
def test_what_is_not_accepted_has_not_arrived_and_redirects_are_not_followed(
    status: int, error: type[NotSent]
) -> None:
    with receiver(status) as (url, got), pytest.raises(error, match=f"answered {status}"):
        post(url, b"{}", {}, allowed=HERE, resolve=lambda *_: ["127.0.0.1"])
    assert len(got) == 1


def test_a_receiver_that_never_ends_its_answer_is_left_before_another_courier_takes_the_message() -> None:
    with slow_receiver() as url, pytest.raises(NotSent, match=r"took more than 0\.2 seconds"):
        post(url, b"{}", {}, allowed=HERE, resolve=lambda *_: ["127.0.0.1"], deadline_s=0.2)
    assert LEASE.total_seconds() > DEADLINE_S


def test_a_refused_connection_is_a_message_that_did_not_arrive() -> None:
    with pytest.raises(NotSent):
        post("http://receiver.example:1/", b"", {}, allowed=HERE, resolve=lambda *_: ["127.0.0.1"])
    with pytest.raises(NotSent, match="no address"):
        resolve("x" * 64, 80)  # longer than a name may be, so nobody is asked


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://a.example/x", None),
        ("ftp://a.example", "is no http or https address"),
        ("file:///etc/passwd", "is no http or https address"),
        ("http://user:word@a.example", "names a user"),
        ("http://a.example:65535/", None),
        ("http://a.example:65536/", "names a port outside of 1 to 65535"),
        ("http://a.example:0/", "names a port outside of 1 to 65535"),
        ("nonsense", "is no http or https address"),
        ("http://[::1", "is no address"),
    ],
)
def test_other_schemes_and_users_are_refused(url: str, problem: str | None) -> None:
    assert url_problem(url) == problem


@pytest.mark.parametrize("address", ["192.0.0.8", "192.88.99.1", "fec0::1", "3fff::1", "5f00::1"])
def test_what_is_reserved_is_not_public_whatever_the_library_says(address: str) -> None:
    with pytest.raises(NotSent, match="not public"):
        checked_address([address], [])
    assert checked_address([address], [f"{address}/{32 if '.' in address else 128}"]) == address


@pytest.mark.parametrize(
    "host",
    ["%31%32%37.0.0.1", "127.0.0.1%2f.example.org", "[::1%25lo]", "[fe80::1%25eth0]", "a..b", "...", "-", "a-.org",
     "exa mple.org", "a" * 64 + ".org", ".".join(["a" * 60] * 5), "xn--", "xn--a"],
)  # fmt: skip
def test_what_can_be_no_host_is_refused_before_a_message_waits_for_it(host: str) -> None:
    assert url_problem(f"https://{host}/x") in (
        "is no address",
        "names no host: neither a name nor an IP address",
    )


@pytest.mark.parametrize(
    "host",
    ["example.org", "example.org.", "my_host", "a-b.c", "1.2.3.4", "[2606:4700::1111]", "münchen.example"],
)
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert url_problem(f"https://{host}:8443/x?y=%20") is None
