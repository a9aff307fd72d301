"""Metrics of the service, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from gatekeeper.services.models import register_model
from gatekeeper.services.sweep import sweep
from gatekeeper.services.webhooks import add
from tests.e2e.stored_runs import finished_run, running_run
from tests.integration.services.seeds import World
from tests.unit.web import samples

DASHBOARD = Path(__file__).resolve().parents[3] / "integrations" / "grafana" / "gatekeeper.json"
Samples = dict[tuple[str, tuple[str, ...]], float]


def scrape(client: TestClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_say_what_is_in_the_database(world: World, client: TestClient) -> None:
    assert scrape(client)["gatekeeper_verdicts_total", ("PASS",)] == 0
    register_model(world.sessions, samples.MODEL)
    add(world.sessions, {"url": "http://10.0.0.1/"}, allowed=("10.0.0.0/8",))
    finished_run(world.sessions, world.settings, samples.passing(), hours_ago=0.5)
    finished_run(world.sessions, world.settings, samples.broken())
    running_run(world.sessions, world.settings, "under way")
    world.claim(world.submit(), lease_seconds=-1.0)
    sweep(world.sessions, ring=world.bell.ring)
    found = scrape(client)
    assert found["gatekeeper_runs_open", ("cpu", "queued")] == 1
    assert found["gatekeeper_runs_open", ("cpu", "running")] == 1
    assert found["gatekeeper_verdicts_total", ("PASS",)] == 1
    assert found["gatekeeper_verdicts_total", ("ERROR",)] == 1
    assert found["gatekeeper_lease_takeovers", ()] == 1
    assert sum(value for (name, _), value in found.items() if name == "gatekeeper_engine_failures_total") == 1
    assert found["gatekeeper_webhook_messages", ("waiting",)] >= 1
    assert found["gatekeeper_run_duration_seconds_count", ("PASS",)] == 1
    assert found["gatekeeper_run_duration_seconds_bucket", ("+Inf", "PASS")] == 1
    assert 290 < found["gatekeeper_run_duration_seconds_sum", ("PASS",)] < 310  # five minutes, as set back
    assert ("gatekeeper_stage_seconds", ("0.5", "candidate", "fidelity")) in found


def test_the_dashboard_asks_for_metrics_that_there_are(client: TestClient) -> None:
    board = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"gatekeeper_\w+", target["expr"])
    }
    known = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, flags=re.MULTILINE))
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= known
