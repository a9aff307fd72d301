"""How texts are cut into prompts and references."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.domain.probes import FidelityProbe
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed
from workers.suites.documents import load_at_lengths, load_documents

DOCUMENTS, DECODED = 3, 40
FIDELITY: dict[str, Any] = {"probe": "fidelity", "documents": DOCUMENTS, "decode_tokens": DECODED}


def letters(_path: str, body: dict[str, str]) -> dict[str, list[int]]:
    """A tokenizer whose tokens are letters."""
    return {"tokens": [ord(letter) for letter in body["prompt"]]}


SERVER = cast("Server", SimpleNamespace(post=letters, plan=SimpleNamespace(model=SimpleNamespace(name="m"))))


@given(lengths=st.sets(st.integers(1, 6000), min_size=2, max_size=6))
def test_at_every_length_a_document_has_the_same_reference_and_the_tokens_just_before_it(
    lengths: set[int],
) -> None:
    found = load_at_lengths(SERVER, documents=DOCUMENTS, context_lengths=list(lengths), decode_tokens=DECODED)
    whole = load_documents(SERVER, documents=DOCUMENTS, context_tokens=max(lengths), decode_tokens=DECODED)
    assert len(found) == DOCUMENTS
    for longest, of_one_text in zip(whole, found, strict=True):
        assert {len(document.prompt) for document in of_one_text} == lengths
        for document in of_one_text:
            assert document.item_id == f"{longest.item_id}/{len(document.prompt)}"
            assert (document.cluster, document.reference) == (longest.item_id, longest.reference)
            assert longest.prompt[-len(document.prompt) :] == document.prompt


def test_one_length_gives_the_documents_that_it_always_gave() -> None:
    found = load_at_lengths(SERVER, documents=DOCUMENTS, context_lengths=[64], decode_tokens=DECODED)
    plain = load_documents(SERVER, documents=DOCUMENTS, context_tokens=64, decode_tokens=DECODED)
    assert [document for of_one_text in found for document in of_one_text] == plain
    assert plain[0].item_id == plain[0].cluster == "01_bell_buoy_stories"


def test_a_length_beyond_all_texts_together_is_an_error_with_the_count() -> None:
    with pytest.raises(ProbeFailed, match="tokens together, 1000040 are needed"):
        load_at_lengths(SERVER, documents=3, context_lengths=[8, 10**6], decode_tokens=DECODED)


@pytest.mark.parametrize("lengths", [[], [64, 64], [0], [1, 2, 3, 4, 5, 6, 7]])
def test_lengths_are_one_to_six_and_distinct(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="context_tokens"):
        FidelityProbe.model_validate(FIDELITY | {"context_tokens": lengths})


def test_one_length_is_written_as_it_was_so_that_fingerprints_stay() -> None:
    probe = FidelityProbe.model_validate(FIDELITY | {"context_tokens": 512})
    assert probe.model_dump(mode="json")["context_tokens"] == 512
    several = FidelityProbe.model_validate(FIDELITY | {"context_tokens": [128, 512]})
    assert (several.longest_context, several.sequences) == (512, 2 * DOCUMENTS)
