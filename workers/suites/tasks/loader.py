"""Loads the JSON-lines items that lie beside this file; lm-eval finds it through `!function` in the task YAML."""

import json
from pathlib import Path

from datasets import Dataset, DatasetDict

ITEMS_DIR = Path(__file__).parent


def load_items(*, items_file: str, **_metadata: object) -> DatasetDict:
    """One `test` split, in file order, held in memory: no dataset cache, no working-directory-relative path.

    lm-eval also passes the task's metadata and the model arguments as keywords; the items depend on neither.
    """
    lines = (ITEMS_DIR / items_file).read_text(encoding="utf-8").splitlines()
    return DatasetDict(test=Dataset.from_list([json.loads(line) for line in lines]))
