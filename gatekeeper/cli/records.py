"""What is on record (`runs`, `show`, `deltas`, `baseline`) and what can still be done (`retry`, `cancel`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from gatekeeper.cli.environment import Service, existing_service, load_settings, server_option
from gatekeeper.cli.gate import check_output, format_option, output_option, print_reports
from gatekeeper.cli.gating import await_run, page_url
from gatekeeper.cli.signals import interruptible
from gatekeeper.client import Document
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.reporting.figures import number, title
from gatekeeper.reporting.text import columns

json_option = click.option("--json", "as_json", is_flag=True, help="The service's own answer.")
limit_option = click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
cursor_option = click.option("--cursor", help="The next page, as the page before named it.")
since_option = click.option(
    "--since", metavar="TIME", help="Not before, such as 2026-11-30 or 2026-11-30T12:00Z."
)


@click.command()
@server_option
@click.option("--model")
@click.option("--verdict", type=click.Choice([str(verdict) for verdict in Verdict]))
@click.option("--state", type=click.Choice([str(state) for state in RunState]))
@click.option("--scheme")
@since_option
@limit_option
@cursor_option
@json_option
def runs(*, server: str | None, as_json: bool, **filters: Any) -> None:
    """List runs, newest first."""
    with existing_service(load_settings(), server) as client:
        page = client.list_runs(**filters)
    print_page(page, as_json=as_json, header=("verdict", "name", "model", "created", "run"), row=_run_row)


def _run_row(item: Document) -> Sequence[str]:
    word = str(item.get("verdict") or item.get("state"))
    return (
        word,
        text_of(item, "name"),
        text_of(item, "model"),
        time_of(item, "created_at"),
        text_of(item, "run_id"),
    )


@click.command()
@click.argument("run_id", metavar="RUN")
@server_option
@click.option(
    "--wait", is_flag=True, help="Wait until the run is done, and exit by its verdict as `gate` does."
)
@format_option
@output_option
@click.pass_context
def show(
    ctx: click.Context, *, run_id: str, server: str | None, wait: bool, format_name: str, output: Path | None
) -> None:
    """Print the report of a run."""
    check_output(output)
    with interruptible(), existing_service(load_settings(), server) as client:
        service = Service(client=client)
        status = await_run(service, run_id) if wait else client.get(run_id)
        code = print_reports([status], service, format_name, output)
    ctx.exit(code if wait else 0)


@click.command()
@server_option
@click.option("--model")
@click.option("--metric")
@click.option("--scheme")
@click.option("--finding", type=click.Choice([str(outcome) for outcome in Outcome]))
@since_option
@limit_option
@cursor_option
@json_option
@click.option("--run", "run_id", metavar="RUN", help="With --export: of this run only.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all of them, not one page, to this .csv or .parquet file.",
)
def deltas(
    *, server: str | None, as_json: bool, run_id: str | None, export: Path | None, **filters: Any
) -> None:
    """List measured deltas across runs, newest first."""
    if export is not None:
        _export(export, server, filters | {"run_id": run_id})
        return
    with existing_service(load_settings(), server) as client:
        page = client.list_deltas(**filters)
    header = ("metric", "mode", "group", "estimate", "finding", "change", "model", "run")
    print_page(page, as_json=as_json, header=header, row=_delta_row)


def _export(target: Path, server: str | None, filters: Mapping[str, Any]) -> None:
    form = target.suffix.removeprefix(".")
    if form not in ("csv", "parquet"):
        problem = f"{target.name} does not say its format"
        raise InvalidInput([FieldProblem(field="export", problem=problem, allowed="a .csv or .parquet file")])
    check_output(target)
    kept = {key: value for key, value in filters.items() if key not in ("limit", "cursor")}
    with existing_service(load_settings(), server) as client:
        target.write_bytes(client.export_deltas(format=form, **kept))
    click.echo(str(target))


def _delta_row(item: Document) -> Sequence[str]:
    metric, estimate = text_of(item, "metric"), item.get("estimate")
    shown = number(metric, float(estimate) if isinstance(estimate, int | float) else None)
    fields = (text_of(item, key) for key in ("finding", "label", "model"))
    return (
        title(metric),
        text_of(item, "mode"),
        text_of(item, "group"),
        shown,
        *fields,
        text_of(item, "run_id"),
    )


@click.group()
def baseline() -> None:
    """Baselines: measured once per fingerprint, then reused."""


@baseline.command(name="list")
@server_option
@json_option
def list_baselines(*, server: str | None, as_json: bool) -> None:
    """Show the baselines in use."""
    with existing_service(load_settings(), server) as client:
        page = client.list_baselines()
    header = ("id", "model", "pinned", "created", "fingerprint", "run")
    print_page(page, as_json=as_json, header=header, row=_baseline_row)


def _baseline_row(item: Document) -> Sequence[str]:
    pinned = "yes" if item.get("pinned") else ""
    fields = text_of(item, "fingerprint")[:12], text_of(item, "run_id")
    return text_of(item, "id"), text_of(item, "model"), pinned, time_of(item, "created_at"), *fields


def _baseline_verb(verb: Literal["pin", "unpin", "refresh"], help_text: str, done: str) -> None:
    @baseline.command(name=verb, help=help_text)
    @click.argument("baseline_id", metavar="ID", type=int)
    @server_option
    def change(*, baseline_id: int, server: str | None) -> None:
        with existing_service(load_settings(), server) as client:
            client.change_baseline(baseline_id, verb)
        click.echo(f"baseline {baseline_id} {done}")


_baseline_verb("pin", "Keep a baseline in use however old it gets.", "is pinned")
_baseline_verb("unpin", "Let a baseline grow old again.", "is no longer pinned")
_baseline_verb(
    "refresh", "Retire a baseline: the next run measures it anew.", "is retired; the next run measures anew"
)


@click.command()
@click.argument("run_id", metavar="RUN")
@server_option
def retry(*, run_id: str, server: str | None) -> None:
    """Queue a run again that ended in ERROR or was cancelled."""
    with existing_service(load_settings(), server) as client:
        status = client.retry(run_id)
        click.echo(f"{status.name} is {status.state}: {page_url(client.url, run_id)}")


@click.command()
@click.argument("run_id", metavar="RUN")
@server_option
def cancel(*, run_id: str, server: str | None) -> None:
    """Stop a run that is queued or running."""
    with existing_service(load_settings(), server) as client:
        status = client.cancel(run_id)
        stopping = (
            ""
            if status.is_done
            else "; its worker has been told to stop; one that has died is noticed within a minute"
        )
        click.echo(f"{status.name} is {status.state}{stopping}")


def print_page(
    page: Document, *, as_json: bool, header: Sequence[str], row: Callable[[Document], Sequence[str]]
) -> None:
    """Print a page of a list: a table, or the service's own answer."""
    if as_json:
        click.echo(json.dumps(page, indent=2, ensure_ascii=False))
        return
    items = page.get("items") or []
    click.echo(
        "\n".join(columns(header, [row(item) for item in items], whole=("run",)))
        if items
        else "nothing found"
    )
    if page.get("next_cursor"):
        click.echo(f"more: --cursor {page['next_cursor']}")


def text_of(item: Mapping[str, Any], key: str) -> str:
    """A value as text; empty where there is none."""
    value = item.get(key)
    return "" if value is None else str(value)


def time_of(item: Mapping[str, Any], key: str) -> str:
    """Local time to the minute."""
    try:
        return datetime.fromisoformat(text_of(item, key)).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text_of(item, key)
