"""`gatekeeper explore`: gate several candidates against one baseline, to choose what to propose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from gatekeeper.catalog import get_preset
from gatekeeper.cli.environment import (
    Service,
    embedded_service,
    find_client,
    load_settings,
    say,
    server_option,
)
from gatekeeper.cli.exits import ExitCode
from gatekeeper.cli.gate import check_output
from gatekeeper.cli.gating import gate_change
from gatekeeper.cli.inputs import read_document
from gatekeeper.cli.signals import interruptible
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput, ServiceUnavailable
from gatekeeper.domain.kv_account import MemoryQuestion, memory_account
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.preset import Preset
from gatekeeper.reporting.explore import EXPLORATION_RENDERERS, Exploration, Tried, figures_of
from gatekeeper.settings import Settings


@click.command()
@click.argument("model")
@click.option("--preset", metavar="NAME", help="One of `gatekeeper presets`.")
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Candidates of your own, as a preset's file.",
)
@server_option
@click.option("--policy", metavar="NAME", help="Instead of the preset's own.")
@click.option("--suite", metavar="NAME", help="Instead of the preset's own.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(EXPLORATION_RENDERERS)),
    default="text",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the table to this file.")
@click.pass_context
def explore(
    ctx: click.Context,
    *,
    model: str,
    preset: str | None,
    candidates: Path | None,
    server: str | None,
    policy: str | None,
    suite: str | None,
    format_name: str,
    output: Path | None,
) -> None:
    """Gate several candidates of a preset on MODEL, one after the other, and print what each costs and buys.

    The baseline is measured with the first and reused. A candidate that the service refuses is shown with the reason.

    Exit codes: 0 at least one passed, 1 none did, 3 none came to a verdict, 4 all were refused.
    """
    settings = load_settings()
    check_output(output)
    chosen = _preset(preset, candidates, settings)
    chosen = chosen.model_copy(
        update={key: value for key, value in (("policy", policy), ("suite", suite)) if value is not None}
    )
    with interruptible(), _service(settings, server) as service:
        exploration = _explored(service, chosen, model)
    report = EXPLORATION_RENDERERS[format_name](exploration)
    if output is None:
        click.echo(report, nl=False)
    else:
        output.write_text(report, encoding="utf-8")
        click.echo(exploration.advice)
    ctx.exit(_exit_code(exploration.tried))


def _preset(name: str | None, path: Path | None, settings: Settings) -> Preset:
    """The preset that was named or given. Raises InvalidInput or UnreadableInput."""
    if (name is None) == (path is None):
        problem = "exactly one of --preset and --candidates is needed"
        raise InvalidInput([FieldProblem(field="preset", problem=problem)])
    if path is None:
        return get_preset(name or "", extra=settings.catalog_dir)
    document = read_document(path, settings)
    try:
        return Preset.model_validate({"name": path.stem} | document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, Preset)) from error


@contextmanager
def _service(settings: Settings, server: str | None) -> Iterator[Service]:
    """The named service, the one that runs here, or an embedded one for as long as this takes."""
    client = find_client(settings, server)
    if client is None:
        with embedded_service(settings) as service:
            yield service
        return
    with client:
        yield Service(client=client)


def _explored(service: Service, preset: Preset, model: str) -> Exploration:
    """Everything, gated one after the other, so that the baseline is measured once."""
    tried: list[Tried] = []
    context, baseline_bytes = preset.deployment.max_context or 0, None
    for name, change in preset.changes(model).items():
        try:
            plan = _planned(service, change)
        except InvalidInput as error:
            say(f"{name}: refused")
            tried.append(_refused(name, change, error))
            continue
        context = _context(plan)
        baseline_bytes = _kv_bytes(plan, plan.baseline.config)
        tried.append(_gated(service, name, change, plan))
    return Exploration(
        name=preset.name, model=model, context=context, baseline_kv_bytes=baseline_bytes, tried=tried
    )


def _planned(service: Service, change: Mapping[str, Any]) -> Plan:
    """What the service makes of a change. Raises InvalidInput where it refuses it."""
    answer = service.client.plan(change)
    try:
        return Plan.model_validate(answer.get("plan"))
    except ValidationError as error:
        raise ServiceUnavailable(f"the answer is not a plan that this version knows: {error}") from error


def _gated(service: Service, name: str, change: Mapping[str, Any], plan: Plan) -> Tried:
    status = gate_change(service, change)
    return Tried(
        name=name,
        label=plan.candidate.config.label_against(plan.baseline.config),
        verdict=str(status.verdict or status.state).upper(),
        sentence=str(status.document.get("sentence") or "no verdict"),
        kv_bytes=_kv_bytes(plan, plan.candidate.config),
        run_id=status.run_id,
        figures=figures_of(status.document),
    )


def _refused(name: str, change: Mapping[str, Any], error: InvalidInput) -> Tried:
    config = KVConfig.model_validate(change["candidate"])
    reasons = "; ".join(str(problem) for problem in error.problems)
    return Tried(name=name, label=config.label, verdict="REFUSED", sentence=reasons, kv_bytes=None)


def _context(plan: Plan) -> int:
    """Tokens of the sequences that a change is about: as declared, or as far as its suite measures."""
    return plan.change.deployment.max_context or plan.suite.quality_context


def _kv_bytes(plan: Plan, config: KVConfig) -> float | None:
    """Bytes per token of such a sequence, evicted tokens counted in; None: the model's shape is not known."""
    context = _context(plan)
    if plan.candidate.model.shape is None or not context:
        return None
    decoded = min(plan.change.deployment.decode_tokens or plan.suite.quality_decode, context - 1)
    question = MemoryQuestion(
        quantization=config.quantization, eviction=config.eviction, context=context, decode_tokens=decoded
    )
    return memory_account(plan.candidate.model.shape, question).bytes_per_sequence / context


def _exit_code(tried: Sequence[Tried]) -> ExitCode:
    words = {one.verdict for one in tried}
    if "PASS" in words:
        return ExitCode.PASS
    if words == {"REFUSED"}:
        return ExitCode.REFUSED
    return ExitCode.ERROR if words <= {"ERROR", "CANCELLED", "REFUSED"} else ExitCode.FAIL
