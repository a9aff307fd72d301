"""The Celery process stays small: engines and measuring tools are subprocesses."""

import os
import subprocess
import sys
from pathlib import Path


def test_the_celery_process_imports_no_torch_and_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys, workers.app; heavy = {'torch', 'vllm', 'transformers', 'lm_eval'} & set(sys.modules); "
        "print(workers.app.app.main, sorted(heavy))"
    )
    environment = os.environ | {"GATEKEEPER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "gatekeeper []"
