"""`gatekeeper webhook`: who hears of verdicts."""

from __future__ import annotations

import click

from gatekeeper.cli.environment import existing_service, load_settings, server_option
from gatekeeper.cli.records import json_option, print_page, text_of, time_of
from gatekeeper.client import Document


@click.group()
def webhook() -> None:
    """Webhooks: addresses that hear of every verdict."""


@webhook.command()
@click.argument("url")
@server_option
@click.option(
    "--slack", is_flag=True, help="The address is one of Slack's incoming webhooks, or takes the same."
)
def add(*, url: str, server: str | None, slack: bool) -> None:
    """Tell URL of every verdict. Prints the secret that signs the messages, this once.

    Messages follow Standard Webhooks. Addresses within the operator's own networks have to be allowed with
    GATEKEEPER_WEBHOOK_NETWORKS.
    """
    document = {"url": url, "format": "slack" if slack else "json"}
    with existing_service(load_settings(), server) as client:
        added = client.add_webhook(document)
    click.echo(f"webhook {added['id']} hears of verdicts from now on; a first message is on its way")
    click.echo(f"secret: {added['secret']}")


@webhook.command(name="list")
@server_option
@json_option
def list_webhooks(*, server: str | None, as_json: bool) -> None:
    """List who hears of verdicts."""
    with existing_service(load_settings(), server) as client:
        page = client.list_webhooks()
    print_page(page, as_json=as_json, header=("id", "host", "format", "since"), row=_row)


def _row(item: Document) -> tuple[str, ...]:
    return text_of(item, "id"), text_of(item, "host"), text_of(item, "format"), time_of(item, "created_at")


@webhook.command()
@click.argument("webhook_id", metavar="ID", type=int)
@server_option
@json_option
def deliveries(*, webhook_id: int, server: str | None, as_json: bool) -> None:
    """List the newest messages to a webhook and what became of them."""
    with existing_service(load_settings(), server) as client:
        page = client.list_deliveries(webhook_id)
    header = ("event", "created", "attempts", "state", "run")
    print_page(page, as_json=as_json, header=header, row=_delivery_row)


def _delivery_row(item: Document) -> tuple[str, ...]:
    ends = {"delivered_at": "arrived", "given_up_at": f"given up: {item.get('last_error')}"}
    waiting = str(item.get("last_error") or "waiting")
    state = next((words for key, words in ends.items() if item.get(key)), waiting)
    fields = text_of(item, "event"), time_of(item, "created_at"), text_of(item, "attempts")
    return *fields, state, text_of(item, "run_id")


@webhook.command()
@click.argument("webhook_id", metavar="ID", type=int)
@server_option
def remove(*, webhook_id: int, server: str | None) -> None:
    """Let a webhook hear no more."""
    with existing_service(load_settings(), server) as client:
        client.remove_webhook(webhook_id)
    click.echo(f"webhook {webhook_id} hears no more")
