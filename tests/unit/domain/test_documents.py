"""Changes from text: every refusal names the field and what is allowed."""

import pytest

from gatekeeper.domain.change import Change
from gatekeeper.domain.documents import parse_change, parse_document
from gatekeeper.domain.errors import InvalidInput, UnreadableInput


def refused(text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(InvalidInput) as raised:
        parse_change(parse_document(text))
    return {problem.field: (problem.problem, problem.allowed) for problem in raised.value.problems}


def test_the_smallest_change_is_held_against_a_full_16_bit_cache_without_reuse() -> None:
    change = parse_change(parse_document("model: m\ncandidate: {quantization: {scheme: fp8_e4m3}}"))
    assert change.resolved_baseline.label == "16-bit full cache"
    assert change.resolved_baseline.reuse.prefix_caching is False
    assert change.resolved_candidate.reuse.prefix_caching is False


def test_what_the_candidate_leaves_out_is_taken_from_the_baseline() -> None:
    change = Change.model_validate(
        {
            "model": "m",
            "baseline": {"reuse": {"prefix_caching": True}, "scheduling": {"block_size": 32}},
            "candidate": {"quantization": {"scheme": "fp8_e5m2"}, "scheduling": {"max_num_seqs": 4}},
        }
    )
    resolved = change.resolved_candidate
    assert resolved.reuse.prefix_caching is True
    assert (resolved.scheduling.block_size, resolved.scheduling.max_num_seqs) == (32, 4)


def test_a_change_without_a_name_is_named_by_what_differs() -> None:
    def label(baseline: str, candidate: str) -> str:
        text = f"model: m\nbaseline: {{{baseline}}}\ncandidate: {{{candidate}}}"
        return parse_change(parse_document(text)).label

    common = "scheduling: {max_num_seqs: 8}"
    assert label(common, f"{common}, reuse: {{prefix_caching: true}}") == "prefix caching"
    assert label(common, "scheduling: {block_size: 32}") == "block_size=32"
    assert label("reuse: {prefix_caching: true}", "reuse: {prefix_caching: false}") == "no prefix caching"
    assert (
        label(common, "quantization: {scheme: fp8_e4m3, scales: checkpoint}")
        == "fp8_e4m3 (checkpoint scales)"
    )


def test_what_a_caller_sent_is_repeated_in_part_only() -> None:
    long = "x" * 5_000
    for text in (
        f'{{"model": "m", "{long}": 1}}',
        f'{{"model": "m", "candidate": {{"quantization": {{"scheme": "{long}"}}}}}}',
        f'{{"model": "m", "candidate": {{}}, "deployment": {{"scenario": "{long}"}}}}',
    ):
        problems = refused(text)
        assert max(len(field) + len(problem) for field, (problem, _) in problems.items()) < 700


def test_every_wrong_field_is_named_with_what_is_allowed() -> None:
    problems = refused(
        "model: m\nspeed: 1\ncandidate:\n  quantization: {scheme: fp9}\n"
        "  eviction: {policy: sliding_window, window: -1}\n  reuse: {prefix_cache: true}"
    )
    assert "fp8_e4m3" in problems["candidate.quantization.scheme"][1]
    assert problems["candidate.eviction.window"][0] == "got -1"
    assert set(problems) == {
        "speed", "candidate.quantization.scheme", "candidate.eviction.window", "candidate.reuse.prefix_cache",
    }  # fmt: skip


def test_a_budget_is_one_figure_not_two() -> None:
    problems = refused(
        "model: m\ncandidate: {eviction: {policy: h2o, evicted_fraction: 0.5, budget_tokens: 9}}"
    )
    assert "exactly one" in problems["candidate.eviction"][0]


def test_a_candidate_equal_to_the_baseline_has_nothing_to_judge() -> None:
    assert "nothing to judge" in refused("model: m\ncandidate: {}")["document"][0]


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x",
        "a: 1\na: 2",
        "[" * 400 + "]" * 400,
        "- 1\n- 2",
        "a: [1, 2",
        "{" + ",".join(f'"k{i}": {i}' for i in range(5000)) + "}",
        "",
    ],
)
def test_bombs_duplicates_and_broken_documents_are_unreadable(text: str) -> None:
    with pytest.raises(UnreadableInput):
        parse_document(text)


@pytest.mark.parametrize(
    "value",
    [
        "!!bool x", "!!timestamp x", "!!int x", "!!float x", "0x_", "2026-99-99", "2026-01-01T99:00:00Z",
        "0x" + "f" * 5_000, ":".join(["1"] + ["59"] * 5_000), ":".join(["1"] + ["59"] * 5_000) + ".5", "9" * 500,
    ],
)  # fmt: skip
def test_a_scalar_that_is_not_what_it_claims_to_be_is_unreadable_and_its_place_is_named(value: str) -> None:
    for text in (f"model: m\ncandidate: {{a: {value}}}", f"model: m\na:\n- {value}"):
        with pytest.raises(UnreadableInput, match=r"line [23], column") as raised:
            parse_document(text)
        assert len(str(raised.value)) < 500


def test_an_engine_argument_that_is_no_value_is_one_problem_with_what_is_allowed() -> None:
    for value in ("[1]", "{a: 1}", "null", ".nan", "2026-01-01"):
        found = refused(f"model: m\ncandidate: {{engine_args: {{dtype: {value}}}}}")
        assert list(found) == ["candidate.engine_args.dtype"]
        assert "allowed: text, a finite number, true or false" in found["candidate.engine_args.dtype"][0]


@pytest.mark.parametrize("value", [".nan", ".inf", "true", "'7'", "1.5"])
def test_a_window_is_a_whole_number(value: str) -> None:
    text = f"model: m\ncandidate: {{eviction: {{policy: sliding_window, window: {value}}}}}"
    assert "candidate.eviction.window" in refused(text)


@pytest.mark.parametrize("value", [2**31, 2**63, 10**30])
def test_counts_beyond_what_databases_and_engines_hold_are_refused(value: int) -> None:
    text = (
        f"model: m\ncandidate: {{quantization: {{scheme: fp8_e4m3}}}}\ndeployment: {{concurrency: {value}}}"
    )
    assert "deployment.concurrency" in refused(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("model: m\ncandidate: {reuse: {offload_gib: yes}}", "candidate.reuse.offload_gib"),
        (
            "model: m\ncandidate: {scheduling: {gpu_memory_utilization: true}}",
            "candidate.scheduling.gpu_memory_utilization",
        ),
        (
            "model: m\ncandidate: {quantization: {scheme: kvquant, outlier_fraction: no}}",
            "candidate.quantization.outlier_fraction",
        ),
        ("model: m\ncandidate: {}\ndeployment: {slo: {ttft_ms: yes}}", "deployment.slo.ttft_ms"),
        ("model: m\ncandidate: {}\ndeployment: {request_rate: on}", "deployment.request_rate"),
    ],
)
def test_yes_and_no_are_no_numbers(text: str, field: str) -> None:
    problem, _ = refused(text)[field]
    assert problem.startswith("is a number, not ")


def test_a_missing_tag_says_what_it_may_be() -> None:
    found = refused("model: m\nbaseline: {quantization: {}}\ncandidate: {eviction: {window: 3}}")
    problem, allowed = found["candidate.eviction.policy"]
    assert (problem, "streaming_llm" in allowed, "fp8_e4m3" in allowed) == ("is missing", True, False)
    assert "fp8_e4m3" in found["baseline.quantization.scheme"][1]
