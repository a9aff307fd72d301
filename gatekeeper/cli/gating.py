"""Submit a change, watch it, and show what came of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from gatekeeper.cli.environment import Service, say
from gatekeeper.cli.progress import ProgressLine
from gatekeeper.cli.signals import Interrupted
from gatekeeper.client import RunStatus
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.reporting import RENDERERS

COLOURS: Mapping[str, str] = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "INVALID": "yellow",
    "ERROR": "magenta",
}


def page_url(service_url: str, run_id: str) -> str:
    """Where a run's page is."""
    return f"{service_url}/runs/{run_id}"


def gate_change(service: Service, document: Mapping[str, Any]) -> RunStatus:
    """Submit, wait, and return the run when it is done. Raises InvalidInput and ServiceUnavailable."""
    status = service.client.submit(document)
    say(f"{status.name}: run {status.run_id}  {page_url(service.client.url, status.run_id)}")
    for gap in status.document.get("coverage_gaps", ()):
        say(f"  no PASS is possible: coverage: {gap}")
    for seen in status.document.get("foresight", ()):
        if seen["outlook"] == "undecidable":
            say(f"  not decidable: {seen['metric']} ({seen['severity']}): {seen['sentence']}")
    return await_run(service, status.run_id)


def await_run(service: Service, run_id: str) -> RunStatus:
    """Show a run's progress until it is done. When interrupted, says what becomes of the run."""
    line = ProgressLine(sys.stderr)
    try:
        return service.client.wait(run_id, on_update=line)
    except Interrupted:
        line.clear()
        _say_what_becomes_of(service, run_id)
        raise
    finally:
        line.clear()


def _say_what_becomes_of(service: Service, run_id: str) -> None:
    if not service.is_ours:
        say(
            f"the run goes on: `gatekeeper show --wait {run_id}` follows it,"
            f" `gatekeeper cancel {run_id}` stops it"
        )
        return
    try:
        service.client.cancel(run_id)
        say("the run was cancelled, since its service stops with this command")
    except GatekeeperError as error:
        say(f"the run could not be cancelled: {error}")


def rendered(statuses: Sequence[RunStatus], service: Service, format_name: str) -> str:
    """The report of runs, in one of the formats. JSON stays exactly what the service sent.

    The address of a service that is about to stop is left out.
    """
    documents = [dict(status.document) for status in statuses]
    if format_name != "json":
        for document, status in zip(documents, statuses, strict=True):
            document["url"] = None if service.is_ours else page_url(service.client.url, status.run_id)
    return RENDERERS[format_name](documents)


def emphasized(report: str) -> str:
    """A text report with its first word in colour; click drops that again where stdout is no terminal."""
    word, space, rest = report.partition(" ")
    return click.style(word, fg=COLOURS.get(word), bold=True) + space + rest
