"""Bits per byte and tokens per word of running text, for every kind of network."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import pytest

from cloze.decoding.reader_and_head import to_score
from cloze.decoding.scores.scoring import score
from cloze.decoding.scores.text_figures import figures_of, first_bytes, units_of

Make = Callable[..., Any]
DOCUMENTS = [["the cat sleeps in the garden", "a größe sleeps"], ["the garden"]]
BYTES = sum(len(sentence.encode()) for document in DOCUMENTS for sentence in document)


def bits(loaded: Any, texts: list[str]) -> float:
    reader, head, method = to_score(loaded)
    found = score(reader, head, texts, method=method, whole_words=method == "pseudo_log_likelihood")
    return -sum(one.score for one in found) / log(2) / sum(len(text.encode()) for text in texts)


def test_a_left_to_right_network_is_measured_on_whole_documents(checkpoint: Make) -> None:
    loaded = checkpoint("gpt2")
    found = figures_of(loaded, DOCUMENTS)
    assert found.method == "log_probability"
    assert found.bits_per_byte == pytest.approx(bits(loaded, ["the cat sleeps in the garden a größe sleeps", "the garden"]))
    tokens = [len(loaded.tokenizer.encode(sentence).ids) for document in DOCUMENTS for sentence in document]
    assert (found.tokens, found.bytes) == (sum(tokens), BYTES)
    spaced = figures_of(loaded, [["the cat sleeps", " in the garden"]])  # as the reader of a line leaves it
    assert spaced.bits_per_byte == pytest.approx(bits(loaded, ["the cat sleeps in the garden"]))


def test_a_masked_network_is_measured_by_the_pseudo_likelihood_of_sentences(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    found = figures_of(loaded, DOCUMENTS)
    assert found.method == "pseudo_log_likelihood"
    assert found.bits_per_byte == pytest.approx(bits(loaded, [sentence for document in DOCUMENTS for sentence in document]))
    assert found.record()["tokens_per_word"] == found.tokens / found.words >= 1


@pytest.mark.parametrize(("system", "why"), [
    ("tagger", "nowhere: cloze score needs a head that predicts or labels tokens; this checkpoint has: tags."),
    ("electra", "nowhere: this network judges tokens and predicts none."),
])  # fmt: skip
def test_a_network_that_gives_texts_no_probability_has_its_fertility_alone(checkpoint: Make, system: str, why: str) -> None:
    found = figures_of(checkpoint(system), DOCUMENTS)
    assert (found.bits_per_byte, found.method) == (None, None) and found.why.startswith(why) and found.tokens >= found.words > 0


@pytest.mark.parametrize(("system", "units"), [
    ("gpt2", (2, "documents")), ("bert", (3, "sentences")), ("tagger", (3, "sentences")),
])  # fmt: skip
def test_progress_counts_the_texts_that_are_scored(checkpoint: Make, system: str, units: tuple[int, str]) -> None:
    loaded, reports = checkpoint(system), []
    assert units_of(loaded, DOCUMENTS) == units
    figures_of(loaded, DOCUMENTS, report=reports.append)
    assert sum(reports) in (0, units[0])


def test_text_is_cut_between_sentences_before_too_many_bytes() -> None:
    texts = [["abcd", "ef"], ["ghi", "j"]]
    assert first_bytes(iter(texts), None) == texts
    assert first_bytes(iter(texts), 6) == [["abcd", "ef"]]
    assert first_bytes(iter(texts), 9) == [["abcd", "ef"], ["ghi"]]
    assert first_bytes(iter(texts), 1) == [["abcd"]]
