"""From two versions of a command to the document of a change."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gatekeeper.cli import main
from gatekeeper.cli.exits import ExitCode
from gatekeeper.detecting.changes import Detected, changes_between
from gatekeeper.detecting.commands import Serving
from gatekeeper.detecting.repository import LARGEST_BYTES, detect
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.errors import InvalidInput, UnreadableInput

ALLOWED = frozenset({"dtype", "seed"})


def between(old: str | None, new: str) -> list[Detected]:
    return [found for found in said_or_found(old, new) if isinstance(found, Detected)]


def said_or_found(old: str | None, new: str) -> list[Detected | str]:
    def serving(flags: str) -> Serving:
        return Serving(place="engine", words=("vllm", "serve", "org/llama", *flags.split()))

    before = [] if old is None else [serving(old)]
    return list(changes_between("deploy.yaml", before, [serving(new)], allowed=ALLOWED, model=None))


def document(old: str | None, new: str) -> dict[str, Any]:
    [found] = between(old, new)
    parse_change(found.document)
    return found.document


def test_the_old_arguments_are_the_baseline_and_the_new_ones_the_candidate() -> None:
    assert document("--max-num-seqs 8 --port 1", "--max-num-seqs 8 --kv-cache-dtype fp8 --port 2") == {
        "name": "deploy.yaml engine",
        "model": "org/llama",
        "engine": "vllm",
        "baseline": {"quantization": {"scheme": "none"}, "scheduling": {"max_num_seqs": 8}},
        "candidate": {"quantization": {"scheme": "fp8_e4m3"}, "scheduling": {"max_num_seqs": 8}},
    }


def test_layers_that_stay_in_16_bits_are_all_of_its_words() -> None:
    flags = "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers"
    [found] = between(f"{flags} 0 1", f"{flags} 0 --max-num-seqs 8")
    assert found.document["candidate"]["quantization"] == {"scheme": "fp8_e4m3", "skip_layers": [0]}
    assert found.document["candidate"]["scheduling"] == {"max_num_seqs": 8}


def test_quality_is_always_held_against_16_bits() -> None:
    [found] = between("--kv-cache-dtype fp8 --max-num-seqs 8", "--kv-cache-dtype fp8_e5m2 --max-num-seqs 8")
    assert found.document["baseline"] == {
        "quantization": {"scheme": "none"},
        "scheduling": {"max_num_seqs": 8},
    }
    assert found.notes == ("the old version's cache is fp8_e4m3; the baseline is the same with 16 bits",)
    assert between("--kv-cache-dtype fp8_e5m2", "") == []


def test_a_switch_that_is_turned_off_is_not_the_same_as_one_that_is_gone() -> None:
    found = document("--enable-prefix-caching", "--no-enable-prefix-caching")
    assert (found["baseline"]["reuse"], found["candidate"]["reuse"]) == (
        {"prefix_caching": True},
        {"prefix_caching": False},
    )
    with pytest.raises(InvalidInput, match=r"deploy\.yaml: engine --enable-prefix-caching: was removed"):
        between("--enable-prefix-caching", "")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("--tensor-parallel-size 2 --port 9", []),
        ("--tensor-parallel-size 4", ["--tensor-parallel-size"]),
        ("--num-gpu-blocks-override=64", ["--tensor-parallel-size, --num-gpu-blocks-override"]),
    ],
)
def test_what_cannot_be_gated_is_no_change_and_is_said(new: str, said: list[str]) -> None:
    assert said_or_found("--tensor-parallel-size 2", new) == [
        f"deploy.yaml: engine: changed, but not gated by this: {flags}" for flags in said
    ]


@pytest.mark.parametrize("hiding", ["$ARGS", "$@", "${ARGS[@]}", "--disable-log-requests $(ARGS)", "`flags`"])
def test_a_new_word_that_may_stand_for_flags_is_refused_and_an_old_one_said(hiding: str) -> None:
    for old in ("", None):
        with pytest.raises(InvalidInput, match="may stand for any flags"):
            between(old, hiding)
    [found] = between(f"--seed 1 {hiding}", f"--seed 2 {hiding}")
    assert f"only known where it runs: {hiding.rpartition(' ')[2]}" in found.notes


def test_a_value_that_is_only_known_where_it_runs_is_said() -> None:
    said = ["deploy.yaml: engine: only known where it runs: $PORT"]
    assert said_or_found("--port 1", "--port $PORT") == said
    with pytest.raises(InvalidInput, match=r"--kv-cache-dtype: unknown '\$DTYPE'"):
        between("", "--kv-cache-dtype $DTYPE")


def test_another_model_is_said() -> None:
    old, new = (Serving(place="engine", words=("vllm", "serve", name)) for name in ("org/a", "org/b"))
    assert list(changes_between("a.sh", [old], [new], allowed=ALLOWED, model=None)) == [
        "a.sh: engine: the model changes from org/a to org/b, which this does not gate"
    ]


@pytest.mark.parametrize(
    "flag",
    ["--hf-overrides={}", "--hf-overrides.sliding_window=64", "--kv-transfer-config={}", "--config=a.yaml"],
)
def test_a_changed_flag_that_hides_the_cache_is_refused(flag: str) -> None:
    name = flag.partition("=")[0].replace("_", "-")
    for old, new in (("", flag), (flag, ""), (f"{flag}1", flag), (None, flag)):
        with pytest.raises(InvalidInput, match=f"engine {name}: changes what the cache holds"):
            between(old, new)
    assert said_or_found(flag, f"{flag} --port 9") == []


def test_what_is_not_measured_is_said() -> None:
    [found] = between("--tensor-parallel-size 2 -O1", "--tensor-parallel-size 4 -O1 --kv-cache-dtype=fp8")
    assert found.notes == (
        "changed, but not gated by this: --tensor-parallel-size",
        "left out in both arms: --O1",
    )


def test_a_new_command_is_held_against_itself_without_its_cache_settings() -> None:
    found = document(None, "--kv-cache-dtype fp8 --max-num-seqs 8")
    assert found["baseline"] == {"scheduling": {"max_num_seqs": 8}}
    assert found["candidate"]["quantization"] == {"scheme": "fp8_e4m3"}
    assert between(None, "--max-num-seqs 8") == []


def test_a_value_that_is_none_is_refused_with_file_and_flag() -> None:
    with pytest.raises(InvalidInput, match=r"deploy\.yaml: engine command --kv-cache-dtype: unknown 'fp9'"):
        between("", "--kv-cache-dtype fp9")


# --- with git --------------------------------------------------------------------------------------------------------

COMPOSE = (
    "services:\n  engine:\n    image: vllm/vllm-openai\n    command: --model org/llama --port 8000{more}\n"
)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch whose last commit turns on an FP8 cache."""
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "test@localhost")
    monkeypatch.setenv("GATEKEEPER_HOME", str(tmp_path / "home"))
    folder = tmp_path / "repository"
    (folder / "deploy").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"deploy/compose.yaml": COMPOSE.format(more=""), "notes.txt": "vllm serve"})
    git(folder, "checkout", "-q", "-b", "fp8")
    commit(folder, {"deploy/compose.yaml": COMPOSE.format(more=" --kv-cache-dtype fp8"), "notes.txt": "more"})
    monkeypatch.chdir(folder)
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a commit")


def test_a_branch_is_held_against_where_it_left_its_base(repository: Path) -> None:
    git(repository, "checkout", "-q", "main")
    commit(repository, {"deploy/compose.yaml": COMPOSE.format(more=" --max-num-seqs 4")})
    git(repository, "checkout", "-q", "fp8")
    [found] = detect(repository, base="main", paths=(), allowed=ALLOWED, model=None)
    assert isinstance(found, Detected)
    assert found.document["baseline"] == {"quantization": {"scheme": "none"}}
    assert list(detect(repository, base="main", paths=("other",), allowed=ALLOWED, model=None)) == []


def test_a_file_that_only_moved_changes_nothing(repository: Path) -> None:
    git(repository, "mv", "deploy/compose.yaml", "deploy/docker compose.yaml")
    git(repository, "commit", "-q", "-m", "moved")
    assert list(detect(repository, base="HEAD~1", paths=(), allowed=ALLOWED, model=None)) == []
    [found] = detect(repository, base="main", paths=(), allowed=ALLOWED, model=None)
    assert isinstance(found, Detected)
    assert found.path == "deploy/docker compose.yaml"


def test_what_is_not_committed_yet_counts(repository: Path) -> None:
    (repository / "run.sh").write_text("vllm serve org/llama --kv-cache-dtype fp8_e5m2\n")
    found = list(detect(repository, base="HEAD", paths=(), allowed=ALLOWED, model="llama"))
    assert [one.document["model"] for one in found if isinstance(one, Detected)] == ["llama"]


def found_in(repository: Path, base: str = "main") -> list[Detected | str]:
    return list(detect(repository, base=base, paths=(), allowed=ALLOWED, model=None))


def test_a_manifest_that_cannot_be_read_ends_the_gate(repository: Path) -> None:
    (repository / "deploy/compose.yaml").write_text(COMPOSE.format(more=" --kv-cache-dtype fp8") + "  : [")
    with pytest.raises(UnreadableInput, match=r"deploy/compose\.yaml: no YAML at line 5"):
        found_in(repository)
    result = CliRunner().invoke(main, ["gate", "--detected", "--base", "main"])
    assert result.exit_code == ExitCode.REFUSED


def test_an_old_version_that_cannot_be_read_makes_the_command_a_new_one(repository: Path) -> None:
    commit(repository, {"deploy/compose.yaml": "vllm: ["})
    git(repository, "checkout", "main", "--", "deploy/compose.yaml")
    assert [str(one)[:34] for one in found_in(repository, "HEAD")] == ["taken as new: deploy/compose.yaml,"]


def test_templates_links_and_what_is_too_large_are_passed_over_and_said(repository: Path) -> None:
    (repository / "templates").mkdir()
    (repository / "templates/vllm.yaml").write_text("args: [vllm, {{ .Values.model }}]")
    (repository / "link.yaml").symlink_to("/etc/hostname")
    (repository / "large.sh").write_text("vllm serve org/a\n" + "#" * LARGEST_BYTES)
    passed_over = [one.split()[2] for one in found_in(repository, "HEAD") if isinstance(one, str)]
    assert passed_over == ["large.sh", "link.yaml", "templates/vllm.yaml"]
    commit(repository, {"large.sh": "#" * (LARGEST_BYTES + 1)})
    (repository / "large.sh").write_text("vllm serve org/a\n")
    assert "was larger than 1,000,000 bytes" in str(found_in(repository, "HEAD")[0])


@pytest.mark.parametrize("base", ["nowhere", "--output=x"])
def test_an_unknown_base_is_refused(repository: Path, base: str) -> None:
    with pytest.raises(InvalidInput, match=r"base: unknown .*fetch-depth"):
        list(detect(repository, base=base, paths=(), allowed=ALLOWED, model=None))


def test_change_files_are_printed_or_written_and_name_file_and_commit(repository: Path) -> None:
    printed = CliRunner().invoke(main, ["detect", "--base", "main", "--suite", "smoke"])
    change = yaml.safe_load(printed.stdout)
    assert (printed.exit_code, change["suite"]) == (0, "smoke")
    assert change["ref"]["path"] == "deploy/compose.yaml"
    written = CliRunner().invoke(main, ["detect", "--base", "main", "--output", "found"])
    [path] = written.stdout.splitlines()
    assert parse_change(yaml.safe_load((repository / path).read_text())).model == "org/llama"


def test_a_branch_without_such_a_change_has_nothing_to_gate(repository: Path) -> None:
    assert repository.is_dir()
    result = CliRunner().invoke(main, ["gate", "--detected", "--base", "HEAD", "--format", "markdown"])
    assert (result.exit_code, "nothing to gate" in result.stdout) == (0, True)
