"""`gatekeeper calibrate`: what a scheme has to know of a model beforehand, found in the worker's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
from pydantic import ValidationError

from gatekeeper.cli.environment import load_settings
from gatekeeper.cli.exits import ExitCode
from gatekeeper.cli.known_models import find_model
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.kv_config import KvQuant


@click.command()
@click.argument("model")
@click.option("--scheme", type=click.Choice(["kvquant"]), default="kvquant", show_default=True)
@click.option("--bits", type=click.IntRange(2, 4), required=True)
@click.option(
    "--outlier-fraction", type=click.FloatRange(0, 0.5, max_open=True), default=0.01, show_default=True
)
@click.option(
    "--texts",
    type=click.Path(path_type=Path, exists=True),
    help="A .jsonl file (a `text` per line), a .txt file, or a folder of them. Default: the bundled ones.",
)
@click.pass_context
def calibrate(
    ctx: click.Context, *, model: str, scheme: str, bits: int, outlier_fraction: float, texts: Path | None
) -> None:
    """Calibrate MODEL, a registered one, for a scheme that can't run without it. Changes then find what this leaves.

    For the operator, on a machine with a worker's environment and the workers' data directory: this loads the model.
    It is quick where the same calibration has been made before; a change takes the one that was made last, or the one
    that its `calibration` names.
    """
    _check(scheme=scheme, bits=bits, outlier_fraction=outlier_fraction)
    settings = load_settings()
    found, _ = find_model(model, settings)
    if Path(found.source).is_absolute() and not Path(found.source).is_dir():
        raise InvalidInput(
            [FieldProblem(field="model", problem=f"{model}: there is no folder {found.source}")]
        )
    command = [
        sys.executable, "-m", "workers.calibrate", found.name, "--source", found.source, "--bits", str(bits),
        "--outlier-fraction", repr(outlier_fraction),
    ]  # fmt: skip
    command += ["--revision", found.revision] if found.revision else []
    command += ["--texts", str(texts.absolute())] if texts else []
    environment = os.environ | {"GATEKEEPER_HOME": str(settings.root), "TOKENIZERS_PARALLELISM": "false"}
    if Path(found.source).is_absolute():
        environment["HF_HUB_OFFLINE"] = "1"
    ended = subprocess.run(command, check=False, env=environment).returncode
    ctx.exit(ended if ended in (ExitCode.PASS, ExitCode.REFUSED) else ExitCode.ERROR)


def _check(**scheme: object) -> None:
    """Refuse what no change could ask for. Raises InvalidInput."""
    try:
        KvQuant.model_validate(scheme)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, KvQuant)) from error
