"""Files that are no change. Nothing is started for them: no service is up, and an embedded one would take seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
FP8 = "model: smollm2-135m\ncandidate: {quantization: {scheme: fp8_e4m3}}\n"


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a stack was started")

    monkeypatch.setattr("gatekeeper.cli.environment.running_stack", start)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\xff\xfe\x01binary", "is not UTF-8 text"),
        (b"a" * 300_000, "is larger than 262,144 bytes"),
        (BOMB.encode(), "YAML aliases are not accepted"),
        (b"[" * 20_000, "nested deeper"),
        (b"", "expected a mapping"),
        (b"- a\n- b\n", "expected a mapping"),
        (b"model: {", "could not be read"),
        (b"model: m\nmodel: n\n", "appears twice"),
        (f"{FP8}colour: red\n".encode(), "colour: unknown key"),
        (b"model: m\ncandidate: {quantization: {scheme: fp9}}\n", "candidate.quantization.scheme: unknown 'fp9'"),
        (b"model: m\ncandidate: {eviction: {policy: sliding_window, window: -5}}\n", "candidate.eviction.window"),
        (b"model: smollm2-135m\ncandidate: {}\n", "nothing to judge"),
        (f"{FP8}suite: huge\n".encode(), "suite: unknown 'huge' (allowed: "),
        (f"{FP8}policy: lax\n".encode(), "policy: unknown 'lax' (allowed: decode, deep, default, fast,"),
        (b"model: smollm2-135m\ncandidate: {quantization: {scheme: nvfp4}}\n", "CPU backend does not store nvfp4"),
        (b"command: vllm serve smollm2-135m --trust-remote-code\n", "--trust-remote-code: this flag is forbidden"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_naming_what_is_wrong(
    run: Run, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "change.yaml"
    path.write_bytes(content)
    result = run("gate", path)
    assert result.exit_code == 4
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("words", [("gate",), ("plan",), ("explore", "smollm2-135m", "--candidates")])
def test_a_file_that_is_no_document_is_refused_by_its_name(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("[]")
    result = run(*words, path)
    assert result.exit_code == 4
    assert f"{path}: expected a mapping of fields" in result.stderr


@pytest.mark.parametrize(
    ("words", "field"),
    [(("--outlier-fraction", "nan"), "outlier_fraction: "), ((), "model: smollm2-135m: there is no folder ")],
)
def test_a_calibration_that_cannot_be_made_is_refused(run: Run, words: tuple[str, ...], field: str) -> None:
    result = run("calibrate", "smollm2-135m", "--bits", "3", *words)
    assert result.exit_code == 4
    assert field in result.stderr


@pytest.mark.parametrize("url", ["ftp://here", "here:8800", "::"])
def test_a_server_that_is_no_address_is_refused_at_once(run: Run, url: str) -> None:
    result = run("explore", "smollm2-135m", "--preset", "edge", "--server", url)
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"server: {url!r} is no address" in result.stderr


@pytest.mark.parametrize("output", ["/proc/none/x", "/dev/null/x"])
def test_changes_cannot_be_written_where_no_folder_can_be_made(
    run: Run, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr("gatekeeper.cli.detect.detected_changes", lambda *_, **__: [])
    result = run("detect", "--output", output)
    assert result.exit_code == 4
    assert f"output: {output} cannot be made" in result.stderr


def test_a_missing_file_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("gate", tmp_path / "none.yaml")
    assert result.exit_code == 4
    assert "No such file" in result.stderr


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_without_waiting(
    run: Run, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    result = run("gate", tmp_path / "odd")
    assert result.exit_code == 4
    assert "odd" in result.stderr


def test_an_endless_device_is_refused(run: Run) -> None:
    assert run("gate", "/dev/zero").exit_code == 4


def test_a_bad_setting_names_its_variable(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEKEEPER_PORT", "seventy")
    result = run("gate", tmp_path / "any.yaml")
    assert result.exit_code == 4
    assert "GATEKEEPER_PORT" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("name: p\nrules: []\n", "rules"),
        ("\x00", "special characters"),
        ("name: p\nrules: [{metric: speed, at_most: 1, reason: r}]\n", "unknown metric"),
    ],
)  # fmt: skip
def test_a_bad_policy_file_is_refused(
    run: Run, change: Path, tmp_path: Path, content: str, words: str
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(content)
    result = run("gate", change, "--policy", policy)
    assert result.exit_code == 4
    assert words in result.stderr


def test_a_forbidden_flag_of_a_command_line_is_refused(run: Run) -> None:
    result = run("gate", "--", "vllm", "serve", "smollm2-135m", "--host", "0.0.0.0")
    assert result.exit_code == 4
    assert "command --host: this flag is forbidden" in result.stderr
