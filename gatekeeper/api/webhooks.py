"""Webhooks: addresses that hear of verdicts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from gatekeeper.api.dependencies import ContextOf, Document, WebhookId
from gatekeeper.api.documents import ROOT, DeliveryList, WebhookList
from gatekeeper.api.openapi import WEBHOOK_BODY, problems
from gatekeeper.services import webhooks
from gatekeeper.services.webhooks import NewWebhook, WebhookView

router = APIRouter(prefix=f"{ROOT}/webhooks", tags=["webhooks"], responses=problems(_422="A value is wrong."))
UNKNOWN = problems(_404="There is no such webhook.")


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    openapi_extra=WEBHOOK_BODY,
    responses=problems(_400="Malformed.", _413="Too large.", _415="Neither JSON nor YAML."),
)
def add_webhook(context: ContextOf, document: Document) -> NewWebhook:
    """Tell an address of every verdict. The answer has the secret that signs the messages, this once.

    An address whose host is no public one is refused, unless the operator allows its network. Messages follow
    Standard Webhooks and are sent again, less and less often, until the address answers with 2xx.
    """
    return webhooks.add(context.sessions, document, allowed=context.settings.webhook_networks)


@router.get("")
def list_webhooks(context: ContextOf) -> WebhookList:
    """Who hears of verdicts."""
    return WebhookList(items=webhooks.list_webhooks(context.sessions))


@router.post("/{webhook_id}/remove", responses=UNKNOWN)
def remove_webhook(context: ContextOf, webhook_id: WebhookId) -> WebhookView:
    """Let an address hear no more."""
    return webhooks.remove(context.sessions, webhook_id)


@router.get("/{webhook_id}/deliveries", responses=UNKNOWN)
def list_deliveries(
    context: ContextOf, webhook_id: WebhookId, *, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> DeliveryList:
    """The newest messages to an address and what became of them."""
    return DeliveryList(items=webhooks.list_deliveries(context.sessions, webhook_id, limit=limit))
