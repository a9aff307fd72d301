"""The pages as HTML, and the routes that need no database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, MutableMapping
from html.parser import HTMLParser
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.context import Context
from gatekeeper.services.views import RunDetail
from gatekeeper.settings import Settings
from gatekeeper.web import filters, router
from gatekeeper.web.assets import ASSETS
from gatekeeper.web.rendering import render
from gatekeeper.web.run_list import run_lines
from gatekeeper.web.run_page import RunMaterial, run_page
from tests.unit.web import samples

VOID = {"meta", "link", "input", "img", "br", "hr"}
DETAILS: dict[str, Callable[[], RunDetail]] = {
    "passed": lambda: samples.detail(*samples.passing()),
    "failed": lambda: samples.detail(*samples.failing()),
    "inconclusive": lambda: samples.detail(*samples.inconclusive()),
    "cached": lambda: samples.detail(*samples.prefix_caching()),
    "past context": lambda: samples.detail(*samples.past_context()),
    "not applied": lambda: samples.detail(*samples.not_applied()),
    "refused": lambda: samples.detail(*samples.refused()),
    "error": lambda: samples.detail(*samples.broken()),
    "queued": lambda: samples.unfinished(RunState.QUEUED),
    "running": lambda: samples.unfinished(RunState.RUNNING),
    "cancelled": lambda: samples.unfinished(RunState.CANCELLED),
}


class Outline(HTMLParser):
    """What a page consists of; complains of tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def page_of(run: RunDetail, *, needs_token: bool = False) -> str:
    material = RunMaterial(
        run=run, events=samples.events(), artifacts=samples.artifacts(), items=samples.items()
    )
    page = run_page(material, now=samples.NOW, base_url="http://gate:8800/", needs_token=needs_token)
    return bytes(render("run.html", page=page).body).decode()


def list_of(*runs: RunDetail) -> str:
    values: dict[str, Any] = {
        "runs": run_lines(runs, {}, {run.run_id: (0.1, 0.2) for run in runs}, now=samples.NOW),
        "form": filters.filter_form({}, models=["smollm2-135m"]),
        "problem": "",
        "is_live": True,
        "older_url": "/runs?cursor=x",
        "newest_url": None,
    }
    return bytes(render("runs.html", **values).body).decode()


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    runs = {name: make() for name, make in DETAILS.items()}
    return {name: page_of(run) for name, run in runs.items()} | {"list": list_of(*runs.values())}


@pytest.fixture
def client() -> TestClient:
    return client_with(Settings())


def client_with(settings: Settings) -> TestClient:
    """Only the pages, and no database behind them."""
    app = FastAPI()
    app.state.context = Context(
        settings=settings,
        sessions=cast("Any", None),
        doorbell=cast("Any", None),
        roll_call=cast("Any", None),
    )
    app.include_router(router)
    return TestClient(app, follow_redirects=False)


@pytest.mark.parametrize("name", [*DETAILS, "list"])
def test_pages_are_well_formed_and_load_nothing_inline_or_foreign(pages: dict[str, str], name: str) -> None:
    outline = Outline(pages[name])
    assert sum(tag == "h1" for tag, _ in outline.tags) == 1
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in outline.tags:
        assert tag != "style"
        assert not [key for key in attributes if key == "style" or key.startswith("on")]
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        target = attributes.get("src") or attributes.get("href") or ""
        assert "//" not in target
        assert tag != "a" or not target.startswith("#") or target[1:] in ids


@pytest.mark.parametrize("name", [*DETAILS, "list"])
def test_every_table_has_a_caption_and_scoped_headings(pages: dict[str, str], name: str) -> None:
    outline = Outline(pages[name])
    count = {tag: sum(found == tag for found, _ in outline.tags) for tag in ("table", "caption")}
    assert count["table"] == count["caption"] > 0
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in outline.tags if tag == "th")


def test_the_engines_words_are_text_not_markup(pages: dict[str, str]) -> None:
    assert "&lt;b&gt;not markup&lt;/b&gt; &amp; more" in pages["error"]
    assert "<b>" not in pages["error"]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_title_begins_with_the_verdict(verdict: Verdict) -> None:
    run = samples.detail(*samples.passing()).model_copy(
        update={"verdict": verdict, "sentence": f"{verdict}: so."}
    )
    html = page_of(run)
    assert f"<title>{verdict}: fp8_e4m3 · gatekeeper</title>" in html
    assert "So." in words(html)
    assert ("Gate open" in html) is (verdict is Verdict.PASS)


def test_only_unfinished_runs_listen_for_news(pages: dict[str, str]) -> None:
    listening = {name for name, html in pages.items() if "data-events" in html}
    assert listening == {"queued", "running"}
    assert f'data-events="/api/v1/runs/{samples.RUN_ID}/events"' in pages["running"]
    assert 'http-equiv="refresh"' in pages["running"]


def test_with_a_token_there_is_a_command_and_no_form() -> None:
    html = page_of(samples.unfinished(RunState.RUNNING), needs_token=True)
    assert "<form" not in html
    assert "curl -X POST" in html
    assert "<form" in page_of(samples.unfinished(RunState.RUNNING))


def test_an_empty_list_says_how_to_begin() -> None:
    assert "gatekeeper gate change.yaml" in list_of()


def test_home_leads_to_the_runs(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/runs")


@pytest.mark.parametrize("name", list(ASSETS))
def test_assets_are_kept_for_good_under_a_hash(client: TestClient, name: str) -> None:
    answer = client.get(ASSETS[name].url)
    assert answer.content == ASSETS[name].content
    assert "immutable" in answer.headers["cache-control"]
    assert re.search(r"\?v=[0-9a-f]{12}$", ASSETS[name].url)


@pytest.mark.parametrize(
    "path", ["/nowhere", "/runs/not-an-id", "/static/../settings.py", "/static/no.css", "/a/b/c"]
)
def test_what_is_not_there_gets_a_friendly_page(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "There is nothing here" in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_other_clients_and_the_api_are_left_to_the_application(client: TestClient) -> None:
    assert client.get("/nowhere").json() == {"detail": "Not Found"}
    assert client.get("/api/v1/nowhere", headers={"Accept": "text/html"}).json() == {"detail": "Not Found"}


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_form_from_elsewhere_is_refused(client: TestClient, verb: str) -> None:
    answer = client.post(f"/runs/{samples.RUN_ID}/{verb}", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert "not sent from a page of this service" in answer.text


FORMS = ["/submit", f"/runs/{samples.RUN_ID}/waive", f"/runs/{samples.RUN_ID}/rejudge"]
HERE = {"Origin": "http://testserver"}


def without_stated_length() -> Iterator[bytes]:
    yield from [b"x" * 40_000] * 2


@pytest.mark.parametrize("path", FORMS)
def test_a_form_is_read_no_further_than_its_limit(client: TestClient, path: str) -> None:
    too_long = client.post(path, content=b"x" * 65_537, headers=HERE)
    assert (too_long.status_code, too_long.headers["connection"]) == (413, "close")
    assert "The body is too large: 65537 bytes, at most 65536" in too_long.text
    unstated = client.post(path, content=without_stated_length(), headers=HERE)
    assert (unstated.status_code, "more than 65536 bytes" in unstated.text) == (413, True)
    fields = client.post(path, data={f"f{number}": "x" for number in range(101)}, headers=HERE)
    assert (fields.status_code, "at most 100 fields" in fields.text) == (400, True)


@pytest.mark.parametrize("path", FORMS)
def test_a_form_from_elsewhere_is_refused_unread(client: TestClient, path: str) -> None:
    received, statuses = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"x" * 1_000, "more_body": received < 3}

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status"))

    headers = [(b"host", b"testserver"), (b"origin", b"http://evil.example")]
    headers += [(b"content-type", b"application/x-www-form-urlencoded")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(cast("FastAPI", client.app)(scope, receive, send))
    assert (statuses[0], received) == (403, 0)


@pytest.mark.parametrize("verb", ["cancel", "retry", "rejudge"])
def test_with_a_token_no_form_changes_anything(verb: str) -> None:
    client = client_with(Settings.model_validate({"api_token": "secret"}))
    answer = client.post(f"/runs/{samples.RUN_ID}/{verb}", headers={"Origin": "http://testserver"})
    assert answer.status_code == 403
    assert "Authorization: Bearer" in answer.text
