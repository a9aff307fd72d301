"""`gatekeeper demo`: what `make run` shows."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gatekeeper.cli.environment import Service, load_settings, say, watching_client
from gatekeeper.cli.exits import ExitCode
from gatekeeper.cli.gating import emphasized, gate_change, rendered
from gatekeeper.cli.inputs import check, read_words
from gatekeeper.cli.progress import elapsed
from gatekeeper.cli.signals import Interrupted, interruptible
from gatekeeper.cli.up import serve_until_interrupted
from gatekeeper.client import RunStatus
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.verdict import Verdict
from gatekeeper.embedded.stack import Stack, running_stack
from gatekeeper.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDER = ("fp8_e4m3.yaml", "fp8_e5m2.yaml", "prefix_caching.yaml")


@click.command()
@click.option("--once", is_flag=True, help="Stop after the verdicts instead of serving the web pages.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Default: GATEKEEPER_PORT (8800), or the next free one."
)
@click.option(
    "--examples", type=click.Path(path_type=Path), default=EXAMPLES, help="The folder with the changes."
)
@click.pass_context
def demo(ctx: click.Context, *, once: bool, port: int | None, examples: Path) -> None:
    """Start the service, gate the three example changes, show the verdicts, keep serving.

    Exit code 0 if every change came to a verdict other than ERROR, else 3.
    """
    settings = load_settings()
    started = time.monotonic()
    paths = _find_examples(examples, settings)
    code = ExitCode.ERROR
    try:
        with interruptible(), running_stack(settings, say=say, port=port) as stack:
            done = _gate_all(stack, settings, paths)
            reached = [status for status in done if status.verdict not in (None, Verdict.ERROR)]
            code = ExitCode.PASS if len(reached) == len(paths) else ExitCode.ERROR
            words = ", ".join(f"{status.verdict or status.state} {status.name}" for status in done)
            took = elapsed(time.monotonic() - started)
            click.echo(f"{len(reached)} of {len(paths)} verdicts in {took}: {words}")
            if not once:
                click.echo(f"The web UI is at {stack.url}  (Ctrl-C stops it)")
                serve_until_interrupted(stack)
    except Interrupted as interrupted:
        ctx.exit(code if code is ExitCode.PASS else interrupted.exit_code)
    ctx.exit(code)


def _find_examples(folder: Path, settings: Settings) -> list[Path]:
    """The example changes, looked at before anything is started."""
    paths = [folder / name for name in ORDER]
    for path in paths:
        if not path.is_file():
            problem = f"{path} is missing"
            raise InvalidInput(
                [FieldProblem(field="examples", problem=problem, allowed="a folder with " + ", ".join(ORDER))]
            )
        check(read_words([str(path)], settings), settings)
    return paths


def _gate_all(stack: Stack, settings: Settings, paths: list[Path]) -> list[RunStatus]:
    """Gate one after the other; print each report as soon as it is there."""
    done = []
    with watching_client(settings, stack) as client:
        service = Service(client=client, is_ours=True)
        for path in paths:
            status = gate_change(service, read_words([str(path)], settings))
            click.echo(emphasized(rendered([status], service, "text")))
            done.append(status)
    return done
