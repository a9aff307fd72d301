"""`gatekeeper waiver`."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from gatekeeper.domain.verdict import Verdict
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import document

Run = Callable[..., Result]
WAIVER = {
    "id": 7, "run_id": "r-1", "metric": "decode_kl", "owner": "Ada", "reason": "room",
    "expires_at": "2027-01-15T00:00:00Z", "revoked_at": None,
}  # fmt: skip
ASKED = ("--metric", "decode_kl", "--owner", "Ada", "--reason", "room")


def test_granting_says_what_the_run_is_now(service: FakeService, run: Run) -> None:
    service.reply(f"POST {RUN}/waivers", (201, WAIVER))
    service.reply(f"GET {RUN}", document(Verdict.PASS))
    result = run("waiver", "grant", "r-1", *ASKED, "--expires", "2027-01-15", "--server", service.url)
    assert result.exit_code == 0
    assert "waiver 7 excuses decode_kl until 2027-01-1" in result.stdout
    assert "the run is now PASS" in result.stdout
    assert service.bodies(f"POST {RUN}/waivers")[0]["expires_at"] == "2027-01-15"


def test_a_waiver_without_an_end_is_refused(service: FakeService, run: Run) -> None:
    result = run("waiver", "grant", "r-1", *ASKED, "--server", service.url)
    assert result.exit_code == 4
    assert "--expires" in result.stderr


def test_waivers_are_listed_and_revoked(service: FakeService, run: Run) -> None:
    service.reply("GET /api/v1/waivers", {"items": [WAIVER]})
    [_, line] = run("waiver", "list", "--server", service.url).stdout.splitlines()
    assert line.split()[:3] == ["7", "decode_kl", "Ada"]
    service.reply("POST /api/v1/waivers/7/revoke", WAIVER | {"revoked_at": "2026-12-01T00:00:00Z"})
    service.reply(f"GET {RUN}", document(Verdict.FAIL))
    assert "the run is now FAIL" in run("waiver", "revoke", "7", "--server", service.url).stdout
