"""Serving commands in the files that people keep them in."""

from __future__ import annotations

import pytest

from gatekeeper.detecting.commands import MAX_NODES, serving_commands
from gatekeeper.domain.errors import UnreadableInput

KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
        - name: proxy
          image: envoy
          args: ["-c", "/etc/envoy.yaml"]
        - name: engine
          image: vllm/vllm-openai:v0.11.0
          args: ["--model", "org/llama", "--kv-cache-dtype", "fp8", "--port", "8000"]
---
apiVersion: v1
kind: Service
metadata: {name: chat}
"""
SHELLED = """
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
        - name: engine
          command: ["/bin/sh", "-c", "exec vllm serve org/llama --kv-cache-dtype=fp8 > /var/log/engine 2>&1"]
"""
COMPOSE = """
services:
  engine:
    image: vllm/vllm-openai
    command: >
      --model org/llama --max-num-seqs 64
      --enable-prefix-caching
  worker:
    entrypoint: ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    command: ["--model=org/other", "--kv-cache-dtype", "auto"]
  redis: {image: redis}
"""
STACK = """
servingEngineSpec:
  modelSpec:
    - name: mistral
      repository: vllm/vllm-openai
      modelURL: org/mistral
      vllmConfig:
        enableChunkedPrefill: false
        maxModelLen: 4096
        extraArgs: ["--kv-cache-dtype", "fp8", "--disable-log-requests"]
"""
CHART = """
image:
  repository: vllm/vllm-openai
  command: ["vllm", "serve", "/data/", "--served-model-name", "chat", "--kv_cache_dtype", "fp8_e5m2"]
"""
SCRIPT = """#!/bin/sh
MODEL=org/llama
export DTYPE="fp8"
# vllm serve org/commented-out
VLLM_LOGGING_LEVEL=INFO vllm serve "$MODEL" \\
  --kv-cache-dtype ${DTYPE} \\
  --max-model-len 8192 | tee log
"""


def commands(path: str, text: str) -> dict[str, str]:
    return {serving.place: " ".join(serving.words) for serving in serving_commands(path, text)}


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "deploy.yaml",
            KUBERNETES,
            {"Deployment/chat/engine": "vllm serve org/llama --kv-cache-dtype fp8 --port 8000"},
        ),
        ("deploy.yml", SHELLED, {"Deployment/chat/engine": "vllm serve org/llama --kv-cache-dtype=fp8"}),
        (
            "docker-compose.yml",
            COMPOSE,
            {
                "services/engine": "vllm serve org/llama --max-num-seqs 64 --enable-prefix-caching",
                "services/worker": "vllm serve org/other --kv-cache-dtype auto",
            },
        ),
        (
            "values.yaml",
            STACK,
            {
                "servingEngineSpec/modelSpec/mistral": "vllm serve org/mistral --no-enable-chunked-prefill"
                " --no-enable-prefix-caching --max-model-len 4096 --kv-cache-dtype fp8 --disable-log-requests"
            },
        ),
        (
            "values.yaml",
            CHART,
            {"image": "vllm serve /data/ --served-model-name chat --kv_cache_dtype fp8_e5m2"},
        ),
        ("run.sh", SCRIPT, {"command": "vllm serve org/llama --kv-cache-dtype fp8 --max-model-len 8192"}),
        ("README.md", "vllm serve org/llama", {}),
        ("values.yaml", "vllm: {replicas: 1}", {}),
        ("run.sh", "pip install vllm", {}),
    ],
    ids=[
        "kubernetes",
        "in a shell",
        "compose",
        "production stack",
        "chart",
        "script",
        "prose",
        "no command",
        "install",
    ],
)
def test_commands_are_found_with_their_places(path: str, text: str, found: dict[str, str]) -> None:
    assert commands(path, text) == found


def test_two_commands_in_one_place_are_told_apart() -> None:
    text = "vllm serve org/a --max-num-seqs 1 &\nvllm serve org/b --max-num-seqs 2\n"
    assert list(commands("run.sh", text)) == ["command", "command#2"]


@pytest.mark.parametrize(
    "text",
    [
        'ARGS="--kv-cache-dtype fp8 --seed 1"\nvllm serve org/a $ARGS --port 1',
        "export T='fp8'; ARGS=\"--kv-cache-dtype $T\" # why\nARGS+=' --seed 1'\nvllm serve org/a ${ARGS} --port 1",
        "COMMAND='vllm serve org/a'\nexec $COMMAND --kv-cache-dtype fp8 --seed 1 --port 1",
    ],
)
def test_quoted_assignments_are_filled_in_and_split(text: str) -> None:
    assert commands("run.sh", text) == {"command": "vllm serve org/a --kv-cache-dtype fp8 --seed 1 --port 1"}


@pytest.mark.parametrize("word", ["$(PORT)", "$(cat /port | head)"])
def test_a_variable_in_parentheses_does_not_end_the_command(word: str) -> None:
    text = f"services: {{engine: {{command: 'vllm serve org/a --port {word} --kv-cache-dtype fp8'}}}}"
    [words] = commands("compose.yaml", text).values()
    assert words.startswith("vllm serve org/a --port ${")
    assert words.endswith(" --kv-cache-dtype fp8")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("run.sh", "vllm serve org/a --hf-overrides '{"),
        ("compose.yaml", 'engine: {image: vllm/vllm-openai, command: "--model org/a --hf-overrides \'{"}'),
    ],
)
def test_a_command_that_has_no_end_is_refused(path: str, text: str) -> None:
    with pytest.raises(UnreadableInput, match=f"{path}: .*No closing quotation"):
        serving_commands(path, text)
    assert serving_commands("run.sh", "# vllm\necho 'two\nlines'") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{- range .Values.models }}\nargs: [vllm, serve]\n{{- end }}", r": no YAML at line 1, column 3$"),
        ("key: *hunter2\nargs: [vllm]", r": no YAML at line 1, column 6$"),
        ("on: 2026-13-45\nargs: [vllm]", r": no YAML \(ValueError\)$"),
    ],
)
def test_what_is_no_yaml_is_refused_by_its_place_without_its_words(text: str, said: str) -> None:
    with pytest.raises(UnreadableInput, match=f"chart/vllm.yaml{said}"):
        serving_commands("chart/vllm.yaml", text)


def test_tags_of_other_programs_are_read_past() -> None:
    text = "a: !reference [b, c]\ne: !Sub {command: !Join [vllm, serve, org/a, --seed, !x '1']}"
    assert commands("ci.yml", text) == {"e": "vllm serve org/a --seed 1"}


def growing(first: str, line: str, joined: str) -> str:
    """Nine lines, each of which uses the one before it ten times."""
    lines = [line.format(n=n, uses=", ".join([joined.format(n - 1)] * 10)) for n in range(1, 9)]
    return "\n".join([first, *lines])


@pytest.mark.parametrize(
    "text",
    [
        growing("a0: &a0 [vllm, vllm]", "a{n}: &a{n} [{uses}]", "*a{}"),
        growing("a0: &a0 {vllm: vllm}", "a{n}: &a{n} {{<<: [{uses}]}}", "*a{}"),
    ],
    ids=["aliases", "merge keys"],
)
def test_a_file_that_grows_when_read_is_refused_before_it_is(text: str) -> None:
    with pytest.raises(UnreadableInput, match=f"more than {MAX_NODES:,} values"):
        serving_commands("bomb.yaml", text)


@pytest.mark.parametrize(
    "nested", ["[" * 100_000, "{a: " * 5_000, "".join("\n" + " " * n + "a:" for n in range(200))]
)
def test_a_file_that_is_nested_without_end_is_refused_at_once(nested: str) -> None:
    with pytest.raises(UnreadableInput, match=r"deep\.yaml: nested deeper than"):
        serving_commands("deep.yaml", f"vllm: {nested}")


@pytest.mark.parametrize("line", ["A=$A$A", "A+=$A", "B=$A; A=$B$B"])
def test_a_script_whose_variables_grow_without_end_is_refused_at_once(line: str) -> None:
    script = "\n".join(["A=vllm", *[line] * 1_000, "vllm serve $A"])
    with pytest.raises(UnreadableInput, match=r"run\.sh: its variables stand for more than"):
        serving_commands("run.sh", script)


def test_a_value_that_holds_itself_is_refused() -> None:
    with pytest.raises(UnreadableInput, match="holds itself"):
        serving_commands("loop.yaml", "vllm: &a [*a]")


def test_what_services_share_is_read() -> None:
    text = "x-shared: &s {image: vllm/vllm-openai}\nengine: {<<: *s, command: --model org/a --seed 1}"
    assert commands("compose.yaml", text) == {"engine": "vllm serve org/a --seed 1"}
