"""`gatekeeper presets`: the bundled ones hold together, and the operator's are shown too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from gatekeeper.catalog import get_policy, get_preset, get_suite, list_names
from gatekeeper.domain.change import Scenario
from gatekeeper.domain.coverage import gaps_of_deployment, gaps_of_features
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.engine_choice import choose_engine
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.metric import METRICS
from tests.fakes.engine import SHAPE

Run = Callable[..., Result]
PRESETS = list_names("presets", None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_candidate_is_a_change_that_its_suite_covers(name: str) -> None:
    preset = get_preset(name)
    suite, policy = get_suite(preset.suite), get_policy(preset.policy)
    assert preset.deployment.scenario == name
    for change in preset.changes("smollm2-135m").values():
        parsed = parse_change(change)
        assert [*gaps_of_deployment(parsed.deployment, suite, policy)] == []
        gaps = gaps_of_features(
            parsed.resolved_baseline,
            parsed.resolved_candidate,
            suite,
            concurrency=parsed.deployment.requests_in_flight,
            layers=SHAPE.layers,
        )
        assert [*gaps] == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_candidate_has_an_engine_that_runs_all_of_it_on_cpu(name: str) -> None:
    for change in get_preset(name).changes("smollm2-135m").values():
        parsed = parse_change(change)
        configs = {"baseline": parsed.resolved_baseline, "candidate": parsed.resolved_candidate}
        choice = choose_engine(parsed.engine, configs, device="cpu", shape=SHAPE)
        assert choice.problems == ()


@pytest.mark.parametrize("name", PRESETS)
def test_every_blocking_rule_speaks_of_what_the_suite_measures(name: str) -> None:
    preset = get_preset(name)
    probes = {probe.probe for probe in get_suite(preset.suite).probes}
    cold: tuple[Mode, ...] = ("cold",)
    wanted = {
        METRICS[rule.metric].suite
        for rule in get_policy(preset.policy).rules
        if METRICS[rule.metric].modes_of(cold)
    }
    assert wanted <= probes


def test_there_is_a_preset_for_every_scenario() -> None:
    assert set(PRESETS) == set(Scenario.__args__) - {"default"}  # type: ignore[attr-defined]  # a Literal has them


def test_they_are_listed_with_suite_and_policy(run: Run) -> None:
    text = run("presets").stdout
    assert "rag  (suite rag, policy retrieval)" in text
    assert "tries: FP8; H2O and FP8; StreamingLLM and FP8; window and FP8; window with H2O and FP8" in text


def test_a_candidate_is_a_change_file_that_can_be_gated(run: Run, tmp_path: Path) -> None:
    shown = run("presets", "show", "chat", "--candidate", "H2O and FP8", "--model", "m").stdout
    assert shown.startswith("# Recent turns")
    change = yaml.safe_load(shown)
    assert (change["model"], change["suite"], change["policy"]) == ("m", "chat", "deep")
    assert change["candidate"]["eviction"] == {"policy": "h2o", "evicted_fraction": 0.5}
    path = tmp_path / "change.yaml"
    path.write_text(run("presets", "show", "edge", "--candidate", "window of 128").stdout)
    assert run("plan", path).exit_code == 0
    assert len(list(yaml.safe_load_all(run("presets", "show", "edge").stdout))) == 4


def test_an_unknown_name_is_refused_with_the_known_ones(run: Run) -> None:
    assert "chat, documents, edge" in run("presets", "show", "nothing").stderr
    result = run("presets", "show", "edge", "--candidate", "nothing")
    assert result.exit_code == 4
    assert "window of 128" in result.stderr


def test_the_operators_presets_are_known_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "catalog" / "presets"
    folder.mkdir(parents=True)
    candidate = "{name: a, candidate: {quantization: {scheme: int8}}}"
    (folder / "ours.yaml").write_text(f"name: ours\ncandidates: [{candidate}]\n")
    (folder / "broken.yaml").write_text(f"name: broken\ncandidates: [{candidate}, {candidate}]\n")
    monkeypatch.setenv("GATEKEEPER_CATALOG_DIR", str(tmp_path / "catalog"))
    text = run("presets").stdout
    assert "ours  (suite standard, policy default)" in text
    assert "presets/broken.yaml: document: candidates: a name is there twice: a" in " ".join(text.split())
