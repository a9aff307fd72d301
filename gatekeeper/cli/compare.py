"""`gatekeeper compare`: the statistics alone, on what lm-eval has already measured."""

from __future__ import annotations

from pathlib import Path

import click

from gatekeeper.catalog import get_policy, read_policy
from gatekeeper.cli.environment import load_settings
from gatekeeper.cli.gate import check_output, deliver, format_option, is_file_name, output_option
from gatekeeper.domain.measurement import Role
from gatekeeper.reporting import RENDERERS

folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("baseline", type=folder, metavar="BASELINE_DIR")
@click.argument("candidate", type=folder, metavar="CANDIDATE_DIR")
@click.option("--control", type=folder, metavar="DIR", help="A second run of the baseline: shows the noise.")
@click.option("--policy", required=True, metavar="NAME|FILE", help="A FILE ends in .yaml.")
@click.option("--task", "tasks", multiple=True, metavar="TASK", help="Only this task; may be repeated.")
@click.option(
    "--metric",
    "preferred",
    multiple=True,
    metavar="METRIC[,FILTER]",
    help="Which right-or-wrong metric speaks for the tasks that have it; may be repeated.",
)
@click.option(
    "--common-items",
    is_flag=True,
    help="Judge the items that all outputs have; the report counts the others.",
)
@format_option
@output_option
@click.pass_context
def compare(
    ctx: click.Context,
    *,
    baseline: Path,
    candidate: Path,
    control: Path | None,
    policy: str,
    tasks: tuple[str, ...],
    preferred: tuple[str, ...],
    common_items: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Judge two lm-eval output directories, item by item. No service, no database, no engine.

    Both come from `lm_eval run --log_samples --output_path DIR`; of each task the newest samples count. Items are
    paired by the hash of their document, and must have been asked in the same way.

    Exit codes as with `gate`: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 4 refused.
    """
    from gatekeeper.importing.comparison import compare as judge_outputs  # scipy takes a second
    from gatekeeper.importing.outputs import read_output

    settings = load_settings()
    check_output(output)
    rules = (
        read_policy(Path(policy)) if is_file_name(policy) else get_policy(policy, extra=settings.catalog_dir)
    )
    folders: dict[Role, Path | None] = {"baseline": baseline, "control": control, "candidate": candidate}
    outputs = {role: read_output(path, field=role, tasks=tasks) for role, path in folders.items() if path}
    found = judge_outputs(outputs, rules, preferred=preferred, only_common_items=common_items)
    report = RENDERERS[format_name]([found.document])
    headline = f"{found.report.verdict}  {found.document['name']}", found.report.sentence
    ctx.exit(deliver(report, [headline], [found.report.verdict], format_name, output))
