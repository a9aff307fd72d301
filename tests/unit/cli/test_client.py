"""The HTTP client."""

from __future__ import annotations

import pytest

from gatekeeper.client import Client, Forbidden, RunStatus
from gatekeeper.domain.errors import Conflict, GatekeeperError, InvalidInput, NotFound, ServiceUnavailable
from gatekeeper.domain.verdict import Verdict
from gatekeeper.event_stream import Event
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import document


def ignore(_: RunStatus) -> None:
    """See nothing."""


def test_waiting_ends_with_the_run(service: FakeService) -> None:
    service.plays(document(None), document(None), document(Verdict.FAIL))
    seen: list[RunStatus] = []
    naps: list[float] = []
    with Client(service.url, sleep=naps.append) as client:
        status = client.wait("r-1", on_update=seen.append, every_s=2.5)
    assert status.verdict is Verdict.FAIL
    assert [update.is_done for update in seen] == [False, False, True]
    assert seen[0].progress.arm == "candidate"
    assert naps == [2.5, 2.5]


def test_waiting_bears_with_a_restart_of_the_service(service: FakeService) -> None:
    service.plays(document(None))
    service.reply(
        f"GET {RUN}", document(None), (502, "bad gateway"), (503, {"title": "starting"}), document()
    )
    with Client(service.url, sleep=lambda _: None) as client:
        assert client.wait("r-1", on_update=ignore).verdict is Verdict.PASS


def test_waiting_gives_up_on_a_service_that_stays_silent() -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=0.0, sleep=lambda _: None) as client,
        pytest.raises(ServiceUnavailable),
    ):
        client.wait("r-1", on_update=ignore)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, Forbidden), (403, Forbidden), (404, NotFound), (409, Conflict), (413, InvalidInput), (422, InvalidInput),
     (429, ServiceUnavailable), (500, ServiceUnavailable)],
)  # fmt: skip
def test_each_status_is_one_of_our_errors(
    service: FakeService, status: int, error: type[GatekeeperError]
) -> None:
    service.reply(f"POST {RUN}/retry", (status, {"title": "no", "detail": "because"}))
    with Client(service.url) as client, pytest.raises(error, match="because"):
        client.retry("r-1")


@pytest.mark.parametrize("body", ["<html>", "[1]", '"text"', '{"errors": [1, {"field": "x"}]}'])
def test_a_refusal_in_any_form_is_a_refusal(service: FakeService, body: str) -> None:
    service.reply("POST /api/v1/runs", (422, body))
    with Client(service.url) as client, pytest.raises(InvalidInput):
        client.submit({})


@pytest.mark.parametrize(
    "body", [{}, {"run_id": "r", "state": "resting"}, {"run_id": "r", "state": "running", "progress": 3}]
)
def test_an_answer_that_is_no_run_is_said_to_be_none(service: FakeService, body: dict[str, object]) -> None:
    service.reply(f"GET {RUN}", body)
    with Client(service.url) as client, pytest.raises(ServiceUnavailable, match="not a run"):
        client.get("r-1")


def test_events_are_parsed_as_they_come(service: FakeService) -> None:
    progress = ': hello\n\nevent: progress\nid: 1\ndata: {"done":\ndata: 1}\n\n'
    stream = f'{progress}event: odd\ndata: nothing\n\ndata: {{"a": 2}}\n\n'
    service.reply(f"GET {RUN}/events", stream)
    with Client(service.url) as client:
        assert list(client.events("r-1")) == [
            Event(name="progress", data={"done": 1}),
            Event(name="message", data={"a": 2}),
        ]


def test_events_of_an_unknown_run_are_not_found(service: FakeService) -> None:
    with Client(service.url) as client, pytest.raises(NotFound):
        list(client.events("r-9"))


def test_filters_that_are_not_given_are_not_sent(service: FakeService) -> None:
    service.reply("GET /api/v1/runs", {"items": [], "next_cursor": None})
    with Client(service.url) as client:
        client.list_runs(model="m", verdict=None, limit=5)
    assert service.seen[0][0] == "GET /api/v1/runs?model=m&limit=5"


def test_runs_are_compared_in_the_order_given(service: FakeService) -> None:
    service.reply("GET /api/v1/compare", {"runs": [], "metrics": []})
    with Client(service.url) as client:
        assert client.compare(["b", "a"]) == {"runs": [], "metrics": []}
    assert service.seen[0][0] == "GET /api/v1/compare?run=b&run=a"


def test_a_wrong_address_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput, match="http://HOST:PORT"):
        Client("ftp://somewhere")
