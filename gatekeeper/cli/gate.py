"""`gatekeeper gate`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import click

from gatekeeper.catalog import read_policy
from gatekeeper.cli.detect import base_option, detected_changes, model_option
from gatekeeper.cli.environment import Service, embedded_service, find_client, load_settings, server_option
from gatekeeper.cli.exits import ExitCode, worst_code
from gatekeeper.cli.gating import emphasized, gate_change, rendered
from gatekeeper.cli.inputs import Document, check, overridden, read_words
from gatekeeper.cli.signals import interruptible
from gatekeeper.client import RunStatus
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.verdict import Verdict
from gatekeeper.reporting import NOTHING, RENDERERS
from gatekeeper.settings import Settings

Report: TypeAlias = tuple[str, Path]

format_option = click.option(
    "--format", "format_name", type=click.Choice(list(RENDERERS)), default="text", show_default=True
)
output_option = click.option(
    "--output", type=click.Path(path_type=Path), help="Write the report to this file."
)


class _ReportFile(click.ParamType[Report]):
    """`FORMAT=FILE`."""

    name = "FORMAT=FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Report:
        format_name, equals, path = str(value).partition("=")
        if not (equals and path and format_name in RENDERERS):
            self.fail(f"{value!r} is not FORMAT=FILE with a format of {', '.join(RENDERERS)}", param, ctx)
        return format_name, Path(path)


@click.command()
@click.argument("words", nargs=-1, metavar="FILE | -- vllm serve MODEL FLAG... | --detected [PATH...]")
@click.option("--detected", is_flag=True, help="Gate what `gatekeeper detect` finds, at PATHs or everywhere.")
@base_option
@model_option
@server_option
@click.option("--policy", metavar="NAME|FILE", help="Instead of the change's own; a FILE ends in .yaml.")
@click.option("--suite", metavar="NAME", help="Instead of the change's own.")
@format_option
@output_option
@click.option("--report", "reports", type=_ReportFile(), multiple=True, help="Write this too; repeatable.")
@click.pass_context
def gate(
    ctx: click.Context,
    *,
    words: tuple[str, ...],
    detected: bool,
    base: str,
    model: str | None,
    server: str | None,
    policy: str | None,
    suite: str | None,
    format_name: str,
    output: Path | None,
    reports: tuple[Report, ...],
) -> None:
    """Gate a change: submit it, wait, print the report.

    The change is a YAML or JSON file, or the `vllm serve` command line that is to be rolled out. With --detected it is
    what the branch changes in serving manifests; several are gated one after the other, and none is a success.

    Without --server, and with no service up here, an embedded service is started and stopped again.
    Policies belong to the operator: a service takes them by name only. A policy FILE therefore works just with
    the embedded service that this command starts itself.

    Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 3 ERROR or service unreachable, 4 refused. Of several
    changes, a FAIL counts before an ERROR, and that before what could not be decided.
    """
    settings = load_settings()
    for path in (output, *(path for _, path in reports)):
        check_output(path)
    policy_file = Path(policy) if policy and is_file_name(policy) else None
    if detected:
        changes = detected_changes(words, base=base, model=model, settings=settings)
        found = [change.document for change in changes]
    else:
        found = [read_words(words, settings)]
    documents = [overridden(one, suite=suite, policy=None if policy_file else policy) for one in found]
    if not documents:
        _write(reports, lambda name: RENDERERS[name]([]))
        ctx.exit(deliver(RENDERERS[format_name]([]), [(NOTHING, "")], [], format_name, output))
    with interruptible(), _service(settings, server, documents, policy_file) as service:
        statuses = [gate_change(service, document) for document in documents]
        _write(reports, lambda name: rendered(statuses, service, name))
        ctx.exit(print_reports(statuses, service, format_name, output))


def _write(reports: Iterable[Report], render: Callable[[str], str]) -> None:
    for name, path in reports:
        path.write_text(render(name), encoding="utf-8")


def is_file_name(policy: str) -> bool:
    """True for what cannot be the name of a policy, or ends as a policy's file does."""
    return os.sep in policy or policy.endswith((".yaml", ".yml"))


@contextmanager
def _service(
    settings: Settings, server: str | None, documents: Sequence[Document], policy_file: Path | None
) -> Iterator[Service]:
    """The service to gate with. What an embedded one would refuse is refused before it is started."""
    client = find_client(settings, server)
    if client is None:
        with _own_policy(settings, documents, policy_file) as adapted:
            for document in documents:
                check(document, adapted)
            with embedded_service(adapted) as service:
                yield service
        return
    if policy_file:
        allowed = f"the name of one that {client.url} has (its operator adds files to GATEKEEPER_CATALOG_DIR)"
        raise InvalidInput(
            [FieldProblem(field="policy", problem="this service takes no files", allowed=allowed)]
        )
    with client:
        yield Service(client=client)


@contextmanager
def _own_policy(
    settings: Settings, documents: Sequence[Document], policy_file: Path | None
) -> Iterator[Settings]:
    """Settings whose catalogue has the policy of `policy_file` too, which the documents then name."""
    if policy_file is None:
        yield settings
        return
    policy = read_policy(policy_file)
    with tempfile.TemporaryDirectory(prefix="gatekeeper-catalog-") as folder:
        catalog = Path(folder)
        if settings.catalog_dir:
            shutil.copytree(settings.catalog_dir, catalog, dirs_exist_ok=True)
        (catalog / "policies").mkdir(exist_ok=True)
        shutil.copyfile(policy_file, catalog / "policies" / f"{policy.name}.yaml")
        for document in documents:
            document["policy"] = policy.name
        yield settings.model_copy(update={"catalog_dir": catalog})


def check_output(output: Path | None) -> None:
    """Raise InvalidInput now rather than lose a report after minutes."""
    if output is None:
        return
    target = output if output.exists() else output.absolute().parent
    if output.is_dir() or not os.access(target, os.W_OK):
        raise InvalidInput(
            [FieldProblem(field="output", problem=f"{output} cannot be written", allowed="a file")]
        )


def print_reports(
    statuses: Sequence[RunStatus], service: Service, format_name: str, output: Path | None
) -> ExitCode:
    """Print the report of runs, or write it and print their verdicts; return the exit code."""
    headlines = [
        (
            f"{status.verdict or str(status.state).upper()}  {status.name}",
            str(status.document.get("sentence") or "no verdict"),
        )
        for status in statuses
    ]
    report = rendered(statuses, service, format_name)
    return deliver(report, headlines, [status.verdict for status in statuses], format_name, output)


def deliver(
    report: str,
    headlines: Sequence[tuple[str, str]],
    verdicts: Sequence[Verdict | None],
    format_name: str,
    output: Path | None,
) -> ExitCode:
    """Print a report, or write it and print its headlines; return the verdicts' exit code."""
    if output is None:
        click.echo(emphasized(report) if format_name == "text" else report, nl=False)
    else:
        output.write_text(report, encoding="utf-8")
        for headline, sentence in headlines:
            click.echo(emphasized(headline))
            click.echo(sentence)
    return worst_code(verdicts)
