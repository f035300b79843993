"""The compiled encoder of words: the ids of the tokenizer, line by line, whatever the text and however small the dictionary."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.text import ChunkEncoder, Normalise, TextSpec, Tokenizer, WordPiece, Words, train
from cloze.text.encoding.word_encoder import WordEncoder, encoder_for
from tests.text.conftest import CHINESE, ENGLISH
from tests.text.test_chunks import assert_exact, line

numba = pytest.importorskip("numba")


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    text = ENGLISH * 2 + CHINESE + ["İx ﬁ the [PAD] [UNK]"]
    return {
        "punctuation": train(TextSpec(Normalise(lower=True), Words(min_count=1)), text),
        "cased": train(TextSpec(Normalise(), Words(min_count=2)), text),
        "accents": train(TextSpec(Normalise(lower=True, strip_accents=True), Words(min_count=1)), text),
        "whitespace": train(TextSpec(Normalise(lower=True), Words(min_count=1, split="whitespace")), text),
        "bare": train(TextSpec(Normalise(clean=False), Words(min_count=1, split="whitespace")), text),
    }


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(line, max_size=8))
def test_any_lines_give_the_ids_of_the_tokenizer(trained: dict[str, Tokenizer], lines: list[str]) -> None:
    for tokenizer in trained.values():
        assert_exact(tokenizer, lines, WordEncoder(tokenizer, memory_mb=1).encode_lines(lines))
        assert_exact(tokenizer, lines, ChunkEncoder(tokenizer, memory_mb=1).encode_lines(lines))


@pytest.mark.parametrize("name", ["punctuation", "whitespace"])
def test_a_full_dictionary_is_cleared_without_changing_an_id(trained: dict[str, Tokenizer], name: str) -> None:
    encoder = WordEncoder(trained[name], memory_mb=0)  # the smallest dictionary there is
    rng = np.random.default_rng(0)
    for _ in range(3):
        lines = [" ".join(f"n{i}{'y' * (i % 19)}é"[: 3 + i % 23] for i in rng.integers(0, 4000, 40)) for _ in range(60)]
        lines += [*ENGLISH, *CHINESE, "", "x\ny"]
        assert_exact(trained[name], lines, encoder.encode_lines(lines))
    assert encoder.cleared > 2


def test_it_travels_to_another_process_and_is_taken_only_where_it_fits(
    trained: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = trained["punctuation"]
    encoder = pickle.loads(pickle.dumps(WordEncoder(words, memory_mb=1)))
    assert_exact(words, ENGLISH, encoder.encode_lines(ENGLISH))
    spaced = train(TextSpec(Normalise(cjk_spacing=True), Words(min_count=1)), CHINESE)
    pieces = train(TextSpec(Normalise(), WordPiece(size=100)), ENGLISH)
    kinds = [type(encoder_for(t, memory_mb=1, compiled=True)) for t in (words, spaced, pieces)]
    assert kinds == [WordEncoder, ChunkEncoder, ChunkEncoder]
    assert isinstance(encoder_for(words, memory_mb=1, compiled=False), ChunkEncoder)
    monkeypatch.setattr("cloze.kernels.find", lambda name: None)
    assert isinstance(encoder_for(words, memory_mb=1, compiled=True), ChunkEncoder)


def test_nothing_in_nothing_out(trained: dict[str, Tokenizer]) -> None:
    for lines in ([], [""], ["", " \t", ""]):
        assert_exact(trained["punctuation"], lines, WordEncoder(trained["punctuation"], memory_mb=1).encode_lines(lines))
