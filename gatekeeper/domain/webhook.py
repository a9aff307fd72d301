"""What outgoing webhooks say and how they are signed.

Signed as Standard Webhooks 1.0.0 has it, for which many languages have a verifying library: HMAC-SHA256 over
`id.timestamp.body`, in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal

WebhookFormat = Literal["json", "slack"]
EventKind = Literal["run.finished", "run.waived", "run.waiver_revoked", "ping"]

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
MOST_ATTEMPTS: Final = 14
FIRST_WAIT: Final = timedelta(seconds=10)
LONGEST_WAIT: Final = timedelta(hours=1)

SYMBOLS: Final[Mapping[str, str]] = {
    "PASS": ":white_check_mark:",
    "FAIL": ":x:",
    "INCONCLUSIVE": ":grey_question:",
    "INVALID": ":no_entry_sign:",
    "ERROR": ":warning:",
}


def wait_after(attempts: int) -> timedelta | None:
    """How long to wait after so many failed attempts, doubling up to an hour; None: no more (after about 5 hours)."""
    if attempts >= MOST_ATTEMPTS:
        return None
    doubled: timedelta = FIRST_WAIT * 2 ** (attempts - 1)
    return min(doubled, LONGEST_WAIT)


def signed_headers(secret: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that let a receiver know who sent this, and when. `timestamp`: seconds since 1970."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


def body_of(form: WebhookFormat, facts: Mapping[str, Any], *, page: str | None) -> bytes:
    """The body of a message. `page`: the run's page, where the service knows its own address."""
    document = {**facts, "url": page} if form == "json" else _slack(facts, page)
    return json.dumps(document, ensure_ascii=False).encode()


def _slack(facts: Mapping[str, Any], page: str | None) -> dict[str, Any]:
    """Slack's incoming webhooks: `text` for notifications, a section block for the channel."""
    if facts["event"] == "ping":
        return {"text": "gatekeeper can reach this channel."}
    verdict = str(facts["verdict"])
    name = _escaped(str(facts["name"]))
    title = f"<{page}|{name}>" if page else name
    headline = f"{SYMBOLS.get(verdict, '')} *{verdict}* {title} ({_escaped(str(facts['model']))})".strip()
    sentence = _escaped(str(facts["sentence"]).removeprefix(f"{verdict}: "))[:2500]
    section = {"type": "section", "text": {"type": "mrkdwn", "text": f"{headline}\n{sentence}"}}
    return {"text": f"{verdict}: {name}", "blocks": [section]}


def _escaped(text: str) -> str:
    """Slack's three control characters as entities, so that a change's name calls nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
