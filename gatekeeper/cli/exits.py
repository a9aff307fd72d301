"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, assert_never

import click

from gatekeeper.cli.signals import Interrupted
from gatekeeper.domain.errors import Conflict, GatekeeperError, InvalidInput, NotFound, UnreadableInput
from gatekeeper.domain.verdict import Verdict


class ExitCode(IntEnum):
    """What a pipeline reads. A usage error or a crash must never look like a verdict."""

    PASS = 0
    FAIL = 1
    UNDECIDED = 2
    """INCONCLUSIVE or INVALID."""
    ERROR = 3
    """ERROR, no verdict, or a service that does not answer."""
    REFUSED = 4
    """Bad input."""


REFUSALS = (InvalidInput, UnreadableInput, NotFound, Conflict)


def exit_code(verdict: Verdict | None) -> ExitCode:
    """The exit code of a run that is done; None: it was cancelled."""
    match verdict:
        case Verdict.PASS:
            return ExitCode.PASS
        case Verdict.FAIL:
            return ExitCode.FAIL
        case Verdict.INCONCLUSIVE | Verdict.INVALID:
            return ExitCode.UNDECIDED
        case Verdict.ERROR | None:
            return ExitCode.ERROR
        case _:
            assert_never(verdict)


def worst_code(verdicts: Iterable[Verdict | None]) -> ExitCode:
    """The exit code of several runs: one proven regression outweighs what could not be decided. None at all: PASS."""
    codes = {exit_code(verdict) for verdict in verdicts}
    order = (ExitCode.FAIL, ExitCode.ERROR, ExitCode.UNDECIDED)
    return next((code for code in order if code in codes), ExitCode.PASS)


class Commands(click.Group):
    """A group whose commands end with the codes above, whatever goes wrong in them."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the command line."""
        with _as_refusal():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with _as_refusal():
                return super().invoke(ctx)
        except GatekeeperError as error:
            complain(error)
            ctx.exit(ExitCode.REFUSED if isinstance(error, REFUSALS) else ExitCode.ERROR)
        except Interrupted as interrupted:
            ctx.exit(interrupted.exit_code)
        except KeyboardInterrupt:
            ctx.exit(130)
        except click.exceptions.Exit:
            raise
        except BrokenPipeError:
            ctx.exit(ExitCode.ERROR)
        except Exception:  # noqa: BLE001 - Python's own exit code for a crash would read as FAIL
            traceback.print_exc()
            ctx.exit(ExitCode.ERROR)


@contextmanager
def _as_refusal() -> Iterator[None]:
    """End click's usage errors with the code of bad input; their own, 2, would read as INCONCLUSIVE."""
    try:
        yield
    except click.ClickException as error:
        error.show()
        raise click.exceptions.Exit(ExitCode.REFUSED) from error


def complain(error: GatekeeperError) -> None:
    """Print an error; one line per wrong field."""
    if isinstance(error, InvalidInput):
        click.echo("refused:", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
    else:
        click.echo(f"error: {error}", err=True)
