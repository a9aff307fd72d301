"""lm-eval tasks in batches, in one process: starting lm-eval takes longer than scoring a batch of short items.

A program: `python -m workers.suites.lm_eval_program REQUEST.json`. It may be started before that file is there, since
its imports take as long as an engine's: then it waits for it. The request holds `model_args` for lm-eval's
`local-completions`, `tasks`, `include_path`, `bundled_only` (then lm-eval's own tasks are not indexed, which takes
seconds), `forced_choices` (a choice is forced after its prompt instead of being read as a part of it), `batches` (each
a mapping of task to item indices, or null for whole tasks), `limit`, `seed` and `output`. Batch i writes
OUTPUT/batch-<i>/samples_<task>_<i>.jsonl, in place at once, as lm-eval's own `--log_samples` does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from workers.suites.forced_choices import forcing
from workers.suites.nan_scores import scoring_nan

WAIT_SECONDS: Final = 0.1


def main() -> None:
    """Import what takes long, wait for the request, evaluate its batches in turn."""
    from lm_eval import simple_evaluate
    from lm_eval.api.registry import get_model
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer  # noqa: F401 - what lm-eval's model imports only when it is made

    kind = get_model("local-completions")
    path = Path(sys.argv[1])
    while not path.exists() and path.parent.exists():
        time.sleep(WAIT_SECONDS)
    request: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kind = scoring_nan(forcing(kind) if request["forced_choices"] else kind)
    model = kind.create_from_arg_obj(request["model_args"])
    manager = TaskManager(include_path=request["include_path"], include_defaults=not request["bundled_only"])
    for number, batch in enumerate(request["batches"]):
        results = simple_evaluate(
            model=model,
            tasks=list(batch) if batch is not None else request["tasks"],
            samples=batch,
            limit=request["limit"] if batch is None else None,
            bootstrap_iters=0,
            log_samples=True,
            task_manager=manager,
            random_seed=request["seed"],
            numpy_random_seed=request["seed"],
            torch_random_seed=request["seed"],
            fewshot_random_seed=request["seed"],
        )
        write_samples(results["samples"], Path(request["output"]) / f"batch-{number}", number)


def write_samples(samples: dict[str, list[dict[str, Any]]], folder: Path, number: int) -> None:
    """Write one JSON-lines file per task; the folder appears when all are complete."""
    draft = folder.with_suffix(".draft")
    draft.mkdir(parents=True)
    for task, rows in samples.items():
        lines = [json.dumps(row, default=str, ensure_ascii=False) for row in rows]
        (draft / f"samples_{task}_{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.rename(folder)


if __name__ == "__main__":
    main()
