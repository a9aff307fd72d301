"""What webhooks say, and how receivers know who said it."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count

from gatekeeper.domain.webhook import LONGEST_WAIT, body_of, signed_headers, wait_after

FACTS = {
    "event": "run.finished", "run_id": "r-1", "name": "<!channel> fp8", "model": "m", "verdict": "FAIL",
    "sentence": "FAIL: decode KL 0.098 exceeds 0.050",
}  # fmt: skip


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # The example of the specification's reference implementations.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signed_headers(
        secret, message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_json_has_the_facts_and_where_the_run_is() -> None:
    assert json.loads(body_of("json", FACTS, page="http://gate/runs/r-1")) == FACTS | {
        "url": "http://gate/runs/r-1"
    }


def test_slack_gets_text_that_calls_nobody() -> None:
    message = json.loads(body_of("slack", FACTS, page="http://gate/runs/r-1"))
    text = message["blocks"][0]["text"]["text"]
    assert text.startswith(":x: *FAIL* <http://gate/runs/r-1|&lt;!channel&gt; fp8> (m)\ndecode KL 0.098")
    assert message["text"] == "FAIL: &lt;!channel&gt; fp8"
    assert "text" in json.loads(body_of("slack", {"event": "ping"}, page=None))


def test_attempts_become_rarer_and_end() -> None:
    waits = []
    for attempts in count(1):
        wait = wait_after(attempts)
        if wait is None:
            break
        waits.append(wait)
    assert waits[:3] == [timedelta(seconds=10), timedelta(seconds=20), timedelta(seconds=40)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT
    assert timedelta(hours=4) < sum(waits, timedelta()) < timedelta(hours=12)
