"""The command group."""

from __future__ import annotations

import click

from gatekeeper.cli import (
    calibrate,
    compare,
    demo,
    detect,
    explore,
    gate,
    memory,
    models,
    plan,
    policy,
    presets,
    promote,
    records,
    rejudge,
    schema,
    up,
    waiver,
    webhook,
)
from gatekeeper.cli.exits import Commands


@click.group(cls=Commands)
@click.version_option(package_name="gatekeeper")
def main() -> None:
    """Gate KV-cache changes of LLM serving: measure baseline and candidate on the real engine, then decide.

    Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 3 ERROR or service unreachable, 4 refused input.
    """


for command in (
    gate.gate,
    detect.detect,
    plan.plan,
    up.up,
    records.runs,
    records.show,
    records.deltas,
    records.baseline,
    records.retry,
    records.cancel,
    rejudge.rejudge,
    promote.promote,
    promote.reference,
    schema.schema,
    waiver.waiver,
    webhook.webhook,
    compare.compare,
    models.model,
    calibrate.calibrate,
    policy.policy,
    presets.presets,
    explore.explore,
    memory.memory,
    demo.demo,
    up.serve,
    up.migrate,
):
    main.add_command(command)
