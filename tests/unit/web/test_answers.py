"""Two answers side by side."""

from __future__ import annotations

from gatekeeper.domain.answer import first_difference
from gatekeeper.services.items import AnswersView, SaidView
from gatekeeper.web.answers import AnswersPanel, answers_panel
from tests.unit.web import samples


def panel(metric: str) -> AnswersPanel:
    """Of an item of this metric that the baseline got right and the candidate wrong."""
    row = next(item for item in samples.items() if item.metric == metric)
    measured = [samples.measured_as(row, value) for value in (1.0, 0.0)]
    before, after = (samples.said([one])[0] for one in measured)
    sides = [SaidView(pieces=tuple(a.pieces), options=a.options, chances=a.places) for a in (before, after)]
    return answers_panel(
        AnswersView(
            prompt=before.prompt, expected=before.expected, baseline=sides[0], candidate=sides[1],
            differ_at=first_difference(before, after),
        )
    )  # fmt: skip


def spoken(text: str) -> SaidView:
    return SaidView(pieces=tuple(text.split(" ")), options=(), chances=())


def test_a_recalled_answer_shows_the_token_at_which_it_goes_wrong() -> None:
    shown = panel("retrieved")
    assert (shown.baseline.before, shown.baseline.differing, shown.candidate.differing) == (" 41", "7", "9")
    assert shown.chances_of == "token 4, where the answers part"
    assert [(c.text, c.baseline, c.candidate) for c in shown.chances if c.is_expected] == [
        ("7", "93.0%", "33.0%")
    ]


def test_a_chosen_answer_shows_how_probable_each_option_was() -> None:
    shown = panel("correct")
    assert shown.chances_of == "each option"
    assert [c.text for c in shown.chances if c.is_expected] == ["Amazon"]
    assert (shown.baseline.differing, shown.candidate.differing) == ("Amazon", "Nile")


def test_a_long_text_is_cut_around_the_first_word_that_differs() -> None:
    words = ["word"] * 500
    answers = AnswersView(
        prompt="p", expected=None, baseline=spoken(" ".join([*words, "one", *words])),
        candidate=spoken(" ".join([*words, "two", *words])), differ_at=500,
    )  # fmt: skip
    shown = answers_panel(answers).candidate
    assert shown.differing == "two"
    assert (len(shown.before), len(shown.after)) == (241, 481)


def test_an_arm_that_stopped_early_has_nothing_to_mark() -> None:
    answers = AnswersView(
        prompt="p", expected=None, baseline=spoken("a b"), candidate=spoken("a"), differ_at=1
    )
    shown = answers_panel(answers)
    assert (shown.baseline.differing, shown.candidate.differing, shown.chances) == ("b", "", ())
