"""`gatekeeper waiver`: grant, list and revoke exceptions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from gatekeeper.cli.environment import existing_service, load_settings, server_option
from gatekeeper.cli.records import json_option, limit_option, print_page, text_of, time_of
from gatekeeper.client import Document


@click.group()
def waiver() -> None:
    """Waivers: a named person's dated, expiring exception for one metric of one change."""


@waiver.command()
@click.argument("run_id", metavar="RUN")
@server_option
@click.option("--metric", required=True, help="The metric whose rule is excused, such as throughput_ratio.")
@click.option("--owner", required=True, help="Who answers for it.")
@click.option("--reason", required=True, help="Why it may go to production all the same.")
@click.option("--expires", metavar="TIME", help="Until when, such as 2027-01-15 (UTC).")
@click.option("--days", type=click.IntRange(1, 90), help="Instead of --expires.")
def grant(
    *,
    run_id: str,
    server: str | None,
    metric: str,
    owner: str,
    reason: str,
    expires: str | None,
    days: int | None,
) -> None:
    """Excuse one metric of a finished run's change, and judge the run again.

    Later runs of the same change (model, engine, configurations, deployment) are judged with it too. Only a regression
    or too little evidence can be excused, never what was not measured.
    """
    if (expires is None) == (days is None):
        raise click.UsageError("one of --expires and --days is needed")
    until = expires or (datetime.now(UTC) + timedelta(days=days or 0)).isoformat()
    document = {"metric": metric, "owner": owner, "reason": reason, "expires_at": until}
    with existing_service(load_settings(), server) as client:
        granted = client.grant_waiver(run_id, document)
        status = client.get(run_id)
    click.echo(f"waiver {granted['id']} excuses {metric} until {time_of(granted, 'expires_at')}")
    click.echo(f"the run is now {status.verdict}: {status.document.get('sentence') or ''}")


@waiver.command(name="list")
@server_option
@click.option("--ended", is_flag=True, help="Also those that expired or were revoked.")
@limit_option
@json_option
def list_waivers(*, server: str | None, ended: bool, limit: int, as_json: bool) -> None:
    """List waivers, newest first."""
    with existing_service(load_settings(), server) as client:
        page = client.list_waivers(ended="true" if ended else None, limit=limit)
    print_page(page, as_json=as_json, header=("id", "metric", "owner", "until", "reason", "run"), row=_row)


def _row(item: Document) -> tuple[str, ...]:
    until = "revoked" if item.get("revoked_at") else time_of(item, "expires_at")
    words = (text_of(item, key) for key in ("id", "metric", "owner"))
    return *words, until, text_of(item, "reason"), text_of(item, "run_id")


@waiver.command()
@click.argument("waiver_id", metavar="ID", type=int)
@server_option
def revoke(*, waiver_id: int, server: str | None) -> None:
    """End a waiver now, and judge the run again on which it was granted."""
    with existing_service(load_settings(), server) as client:
        revoked = client.revoke_waiver(waiver_id)
        status = client.get(str(revoked["run_id"]))
    click.echo(f"waiver {waiver_id} is revoked; the run is now {status.verdict}")
