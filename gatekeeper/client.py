"""A client of the service's HTTP API. Every failure is one of gatekeeper's own errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from gatekeeper.domain.errors import (
    Conflict,
    FieldProblem,
    GatekeeperError,
    InvalidInput,
    NotFound,
    ServiceUnavailable,
)
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.event_stream import Event, parse_events

Document = dict[str, Any]
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
DONE: Final = frozenset({RunState.FINISHED, RunState.CANCELLED})


class Forbidden(GatekeeperError):
    """The service wants a valid token (GATEKEEPER_API_TOKEN)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a run is: which stage of which arm, and how many of its items are done."""

    stage: str = ""
    arm: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """A run as the service answered; `document` is the answer itself."""

    run_id: str
    name: str
    state: RunState
    verdict: Verdict | None
    progress: Progress
    document: Document = field(repr=False)

    @property
    def is_done(self) -> bool:
        """True if nothing more will happen to it by itself."""
        return self.state in DONE


class Client:
    """One connection pool to one service. `patience_s`: how long `wait` bears with its silence."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._sleep = sleep
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise _bad_url(url) from error
        if address.scheme not in ("http", "https"):
            raise _bad_url(url)
        # A proxy that the environment names is for the world outside this machine.
        trust_env = address.host not in LOOPBACK
        self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout_s, trust_env=trust_env)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(self, change: Mapping[str, Any], *, idempotency_key: str | None = None) -> RunStatus:
        """Propose a change. Raises InvalidInput where the service refuses it."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return _status(self._json("POST", "/api/v1/runs", json=change, headers=headers))

    def plan(self, change: Mapping[str, Any]) -> Document:
        """What a change would do, without doing it. Raises InvalidInput."""
        return self._json("POST", "/api/v1/plan", json=change)

    def get(self, run_id: str) -> RunStatus:
        """A run. Raises NotFound."""
        return _status(self._json("GET", f"/api/v1/runs/{run_id}"))

    def wait(self, run_id: str, *, on_update: Callable[[RunStatus], None], every_s: float = 1.0) -> RunStatus:
        """Ask every `every_s` until the run is done; tell `on_update` each answer.

        Raises ServiceUnavailable once the service has not answered for `patience_s`.
        """
        silent_since: float | None = None
        while True:
            try:
                status = self.get(run_id)
                silent_since = None
                on_update(status)
                if status.is_done:
                    return status
            except ServiceUnavailable:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > self._patience_s:
                    raise
            self._sleep(every_s)

    def events(self, run_id: str) -> Iterator[Event]:
        """The run's server-sent events, until the service ends them."""
        path = f"/api/v1/runs/{run_id}/events"
        with (
            _translated(self.url),
            self._http.stream("GET", path, timeout=httpx.Timeout(30.0, read=None)) as response,
        ):
            if response.is_error:
                response.read()
                raise _refusal(response)
            yield from parse_events(response.iter_lines())

    def cancel(self, run_id: str) -> RunStatus:
        """Ask for a run to be stopped. Raises NotFound, or Conflict if it is done."""
        return _status(self._json("POST", f"/api/v1/runs/{run_id}/cancel"))

    def retry(self, run_id: str) -> RunStatus:
        """Queue a run that ended in ERROR again. Raises NotFound or Conflict."""
        return _status(self._json("POST", f"/api/v1/runs/{run_id}/retry"))

    def rejudge(self, run_id: str, policy: str | Mapping[str, Any]) -> RunStatus:
        """A run as another policy, named or given whole, would judge it. Raises NotFound, InvalidInput or Conflict."""
        return _status(self._json("POST", f"/api/v1/runs/{run_id}/rejudge", json={"policy": policy}))

    def compare(self, run_ids: Sequence[str]) -> Document:
        """Runs side by side, with the settings in which they differ. Raises NotFound, and InvalidInput."""
        return self._json("GET", "/api/v1/compare", params={"run": list(run_ids)})

    def grant_waiver(self, run_id: str, waiver: Mapping[str, Any]) -> Document:
        """Excuse a metric of a finished run's change. Raises NotFound, InvalidInput or Conflict."""
        return self._json("POST", f"/api/v1/runs/{run_id}/waivers", json=waiver)

    def revoke_waiver(self, waiver_id: int) -> Document:
        """End a waiver. Raises NotFound or Conflict."""
        return self._json("POST", f"/api/v1/waivers/{waiver_id}/revoke")

    def list_waivers(self, **filters: str | int | None) -> Document:
        """The waivers, newest first."""
        return self._list("/api/v1/waivers", filters)

    def promote(self, run_id: str) -> Document:
        """Make a passed configuration its model's reference. Raises NotFound, or Conflict for anything but PASS."""
        return self._json("POST", f"/api/v1/runs/{run_id}/promote")

    def reference(self, model: str) -> Document:
        """The reference of a model. Raises NotFound."""
        return self._json("GET", f"/api/v1/references/{quote(model)}")

    def add_webhook(self, webhook: Mapping[str, Any]) -> Document:
        """Tell an address of every verdict; the answer has the secret. Raises InvalidInput."""
        return self._json("POST", "/api/v1/webhooks", json=webhook)

    def remove_webhook(self, webhook_id: int) -> Document:
        """Let an address hear no more. Raises NotFound."""
        return self._json("POST", f"/api/v1/webhooks/{webhook_id}/remove")

    def list_webhooks(self) -> Document:
        """Who hears of verdicts."""
        return self._list("/api/v1/webhooks", {})

    def list_deliveries(self, webhook_id: int) -> Document:
        """The newest messages to an address. Raises NotFound."""
        return self._list(f"/api/v1/webhooks/{webhook_id}/deliveries", {})

    def list_runs(self, **filters: str | int | None) -> Document:
        """A page of runs."""
        return self._list("/api/v1/runs", filters)

    def list_deltas(self, **filters: str | int | None) -> Document:
        """A page of deltas, across runs."""
        return self._list("/api/v1/deltas", filters)

    def export_deltas(self, **filters: str | None) -> bytes:
        """All deltas that meet the filters, as a file of the `format` csv or parquet. Raises InvalidInput."""
        named = {key: value for key, value in filters.items() if value is not None}
        return self._request("GET", "/api/v1/export/deltas", params=named).content

    def list_baselines(self) -> Document:
        """The stored baselines."""
        return self._list("/api/v1/baselines", {})

    def change_baseline(self, baseline_id: int, verb: str) -> Document:
        """`pin`, `unpin` or `refresh` a baseline. Raises NotFound or Conflict."""
        return self._json("POST", f"/api/v1/baselines/{baseline_id}/{verb}")

    def _list(self, path: str, filters: Mapping[str, str | int | None]) -> Document:
        return self._json(
            "GET", path, params={key: value for key, value in filters.items() if value is not None}
        )

    def _json(self, method: str, path: str, **arguments: Any) -> Document:
        return _document(self._request(method, path, **arguments))

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        with _translated(self.url):
            response = self._http.request(method, path, **arguments)
        if response.is_error:
            raise _refusal(response)
        return response


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn httpx's errors into gatekeeper's."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise _bad_url(url) from error
    except httpx.HTTPError as error:
        raise ServiceUnavailable(f"{url}: {str(error) or type(error).__name__}") from error


def _bad_url(url: str) -> InvalidInput:
    return InvalidInput(
        [FieldProblem(field="server", problem=f"{url!r} is no address", allowed="http://HOST:PORT")]
    )


def _document(response: httpx.Response) -> Document:
    try:
        document = response.json()
    except ValueError as error:
        raise ServiceUnavailable(f"{response.url} answers, but not as gatekeeper does") from error
    return document if isinstance(document, dict) else {"items": document}


def _refusal(response: httpx.Response) -> GatekeeperError:
    """The error that a problem document (RFC 9457) stands for."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or problem.get("title") or f"HTTP {response.status_code}")
    match response.status_code:
        case 401 | 403:
            return Forbidden(detail)
        case 404:
            return NotFound(detail)
        case 409:
            return Conflict(detail)
        case 429:
            return ServiceUnavailable(detail)
        case status if status < 500:
            return InvalidInput(_problems(problem) or [FieldProblem(field="document", problem=detail)])
        case _:
            return ServiceUnavailable(f"{response.url} answered {response.status_code}: {detail}")


def _problems(problem: Document) -> list[FieldProblem]:
    errors = problem.get("errors")
    return [
        FieldProblem(
            field=str(error.get("field", "document")),
            problem=str(error.get("problem", "was refused")),
            allowed=str(error.get("allowed") or ""),
        )
        for error in (errors if isinstance(errors, list) else [])
        if isinstance(error, dict)
    ]


def _status(document: Document) -> RunStatus:
    try:
        verdict = document.get("verdict")
        return RunStatus(
            run_id=str(document["run_id"]),
            name=str(document.get("name") or document["run_id"]),
            state=RunState(document["state"]),
            verdict=Verdict(verdict) if verdict else None,
            progress=_progress(document.get("progress") or {}),
            document=document,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ServiceUnavailable(f"the answer is not a run that this version knows: {error!r}") from error


def _progress(document: Document) -> Progress:
    return Progress(
        stage=str(document.get("stage") or ""),
        arm=str(document.get("arm") or ""),
        done=int(document.get("done") or 0),
        total=int(document.get("total") or 0),
    )
