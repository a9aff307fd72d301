"""The operator's catalog: whatever lies in it, what is usable is listed and what is not says why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from gatekeeper import catalog
from gatekeeper.domain.errors import GatekeeperError, InvalidInput, UnreadableInput

Run = Callable[..., Result]
POLICY = "name: chat\nrules:\n  - {metric: decode_kl, at_most: 0.1, reason: Small.}\n"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """An operator's folder of policies; `tmp_path` is the catalog."""
    folder = tmp_path / "policies"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", [b"bad\xff.yaml", b".hidden.yaml", b".yaml", b"a#b.yaml", b"chat .yaml"])
def test_files_whose_names_no_change_can_say_are_passed_over(policies: Path, name: bytes) -> None:
    known = catalog.list_names("policies", None)
    Path(os.fsdecode(os.path.join(os.fsencode(policies), name))).write_text(POLICY)  # noqa: PTH118 - bytes
    assert catalog.list_names("policies", policies.parent) == known


def test_a_file_that_calls_itself_something_else_is_refused(policies: Path) -> None:
    (policies / "mine.yaml").write_text(POLICY)
    with pytest.raises(InvalidInput) as refused:
        catalog.get_policy("mine", extra=policies.parent)
    assert str(refused.value).endswith("policies/mine.yaml: name: 'chat' is not the file's (allowed: mine)")


def test_a_wrong_field_of_a_file_is_named_with_the_file(policies: Path) -> None:
    (policies / "chat.yaml").write_text(POLICY.replace("decode_kl", "vibes"))
    with pytest.raises(InvalidInput) as refused:
        catalog.get_policy("chat", extra=policies.parent)
    assert refused.value.problems[0].field == "policies/chat.yaml: rules.0"


def test_a_link_to_nothing_is_not_replaced_by_the_bundled_file(policies: Path) -> None:
    (policies / "fast.yaml").symlink_to(policies / "gone.yaml")
    with pytest.raises(UnreadableInput, match=str(policies)):
        catalog.get_policy("fast", extra=policies.parent)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff"), Path.touch])
def test_what_is_no_document_is_an_error_of_this_program(
    policies: Path, make: Callable[[Path], object]
) -> None:
    make(policies / "odd.yaml")
    assert "odd" in catalog.list_names("policies", policies.parent)
    with pytest.raises(GatekeeperError, match=r"odd\.yaml"):
        catalog.get_policy("odd", extra=policies.parent)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff")])
def test_showing_what_cannot_be_read_is_refused(
    run: Run, policies: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(policies / "odd.yaml")
    monkeypatch.setenv("GATEKEEPER_CATALOG_DIR", str(policies.parent))
    result = run("policy", "show", "odd")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "odd.yaml" in result.stderr


@pytest.mark.parametrize("kind", ["policies", "suites", "presets"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_by_its_name_without_waiting(
    tmp_path: Path, kind: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / kind / "odd.yaml"
    path.parent.mkdir()
    make(path)
    get = {"policies": catalog.get_policy, "suites": catalog.get_suite, "presets": catalog.get_preset}[kind]
    with pytest.raises(UnreadableInput, match=f"{path} is not a file"):
        get("odd", extra=tmp_path)


def test_a_file_larger_than_any_of_the_catalog_is_refused_before_it_is_parsed(policies: Path) -> None:
    (policies / "mine.yaml").write_text(POLICY + "#" * catalog.LIMIT_BYTES)
    with pytest.raises(UnreadableInput, match=r"mine\.yaml is larger than 1,000,000 bytes"):
        catalog.get_policy("mine", extra=policies.parent)
