"""Asking the items: what is stored of each, and what happens where an engine can't be asked."""

import math
from pathlib import Path

import pytest

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.probes import RetrievalProbe
from tests.fakes.engine import MemoryArm, fake_plan
from tests.fakes.word_server import Think, WordServer, certain
from workers.engines.errors import ProbeFailed
from workers.suites import code_files, run_probe
from workers.suites.base import Bench
from workers.suites.context.items import Item
from workers.suites.context.retrieval import forced, measured

ITEM = Item(
    item_id="needle/256/0.50/0",
    family="needle",
    prompt=(1, 2, 3),
    forced=(7, 8, 9),
    scored=(True, False, True),
    question="Where?",
    answer="Here.",
)
PROBE = RetrievalProbe(
    probe="retrieval", families=("needle", "chat"), context_tokens=(256, 400), items_per_cell=2, seed=3
)


def asked(think: Think) -> tuple[Measurement, Measurement]:
    return measured(ITEM, forced(WordServer(think=think), ITEM))  # type: ignore[arg-type]


def bench(server: WordServer, sink: MemoryArm) -> Bench:
    return Bench(
        server=server,  # type: ignore[arg-type]
        sink=sink, run_id="r", workdir=Path("/nowhere"), deployment=Deployment(concurrency=4), modes=("cold",),
        tasks_dir=None, advance=lambda _done, _total: None, settled=lambda _suite, _mode, _batches: None,
        references=lambda _mode: {},
    )  # fmt: skip


def run(server: WordServer, probe: RetrievalProbe = PROBE) -> MemoryArm:
    sink = MemoryArm(role="baseline", plan=fake_plan().baseline)
    run_probe(probe, bench(server, sink))
    return sink


def test_an_item_is_right_if_every_token_of_its_answer_is_the_greedy_choice() -> None:
    right, probability = asked(certain)
    assert (right.metric, right.value, right.item_id, right.cluster) == (
        "retrieved",
        1.0,
        ITEM.item_id,
        "needle",
    )
    assert probability.value == pytest.approx(math.exp(-0.1))
    assert right.context_tokens == probability.context_tokens == 6


def test_one_token_that_is_not_the_greedy_choice_makes_it_wrong_and_lowers_the_probability() -> None:
    right, probability = asked(lambda place: (-2.0, -0.5) if place == 2 else (-0.1, -0.1))
    assert right.value == 0.0
    assert probability.value == pytest.approx((math.exp(-0.1) + math.exp(-2.0)) / 2)


def test_what_is_forced_between_answers_counts_for_nothing() -> None:
    right, probability = asked(lambda place: (-9.0, -0.1) if place == 1 else (-0.1, -0.1))
    assert right.value == 1.0
    assert probability.value == pytest.approx(math.exp(-0.1))


def test_a_tie_is_right() -> None:
    assert asked(lambda _place: (-0.7, -0.7))[0].value == 1.0


@pytest.mark.parametrize("thought", [(None, -0.1), (-0.1, None), (math.nan, -0.1), (-math.inf, -0.1)])
def test_a_token_without_a_finite_probability_is_no_value(thought: tuple[float, float]) -> None:
    rows = asked(lambda _place: thought)
    assert [row.value for row in rows] == [None, None]
    assert all(row.reason for row in rows)


def test_an_engine_that_cannot_write_its_logprobs_down_gives_no_value() -> None:
    rows = measured(ITEM, forced(WordServer(refusal=500), ITEM))  # type: ignore[arg-type]
    assert [row.value for row in rows] == [None, None]


def test_every_item_of_every_family_and_length_is_stored_with_its_length() -> None:
    sink = run(WordServer())
    right = [row for row in sink.rows if row.metric == "retrieved"]
    assert len(right) == sum(PROBE.items.values()) == 8
    assert {row.cluster for row in right} == {"needle", "chat"}
    assert {row.item_id.split("/")[1] for row in right} == {"256", "400"}
    lengths = [(int(row.item_id.split("/")[1]), row.context_tokens or 0) for row in right]
    assert all(length - 110 < tokens <= length for length, tokens in lengths)
    assert [proof.happened for proof in sink.proofs] == [True]


def test_what_the_arm_said_is_stored_with_its_question_and_the_likeliest_tokens_at_each_place() -> None:
    sink = run(WordServer(think=lambda place: (-2.0, -0.5) if place == 0 else (-0.1, -0.1)))
    right = {row.item_id: row.value for row in sink.rows if row.metric == "retrieved"}
    assert {answer.item_id for answer in sink.said} == right.keys()
    needle = next(answer for answer in sink.said if answer.item_id.startswith("needle"))
    assert needle.expected is not None
    assert needle.expected in needle.prompt
    assert needle.text != needle.expected
    assert needle.text.endswith("".join(chances[0][0] for chances in needle.places[1:]))
    assert [round(share, 4) for _, share in needle.places[0]] == [0.6065, 0.1353]


def test_an_engine_that_cannot_write_its_logprobs_down_said_nothing() -> None:
    assert run(WordServer(refusal=500)).said == []


def test_batches_cut_the_same_items_in_the_same_order() -> None:
    whole, parts = run(WordServer()), run(WordServer(), PROBE.model_copy(update={"batches": 4}))
    assert {row.item_id for row in whole.rows} == {row.item_id for row in parts.rows}
    assert {row.batch for row in whole.rows} == {0}
    assert [sum(row.batch == batch for row in parts.rows) for batch in range(4)] == [4] * 4


def test_a_model_without_a_chat_template_is_asked_everything_else() -> None:
    sink = run(WordServer(has_template=False))
    assert {row.cluster for row in sink.rows} == {"needle"}
    assert sink.left_out == [("retrieval/chat", "no chat template")]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (WordServer(forces=False), "did not force the reference tokens"),
        (WordServer(refusal=400), "the words of the engine"),
    ],
)
def test_an_engine_that_cannot_force_leaves_the_probe_out(server: WordServer, words: str) -> None:
    ((probe, reason),) = run(server).left_out
    assert probe == "retrieval"
    assert words in reason


def test_a_family_that_cannot_be_asked_alone_leaves_the_probe_out() -> None:
    sink = run(WordServer(has_template=False), PROBE.model_copy(update={"families": ("chat",)}))
    assert sink.left_out == [("retrieval/chat", "no chat template"), ("retrieval", "no chat template")]
    assert sink.rows == []


def test_an_engine_that_breaks_is_an_error() -> None:
    with pytest.raises(ProbeFailed, match="the words of the engine"):
        run(WordServer(refusal=503, completes=False))


def test_the_families_are_part_of_the_workers_fingerprint() -> None:
    names = [name for name, _ in code_files()]
    assert "workers.suites.context/needle.py" in names
