"""Words that the vocabulary lacks reach a network by their characters; vectors of every token go into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.decoding.marks import marks_around
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed
from cloze.decoding.vectors.features import chosen_layers, save_features, token_features
from cloze.errors import UserError
from cloze.networks import Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from cloze.networks.spelling import spell
from cloze.reading import Reading
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import network_of

TEXTS = ["the cat saw a dog", "a", "", "the zebrafish saw the cat"]


@pytest.fixture(scope="module", params=[False, True], ids=["as it stands", "lower"])
def reader(request: Any) -> Reader:
    tokenizer = Words(min_count=1).train(["the cat saw a dog ; a cat sleeps"], Normalise(lower=request.param))
    torch.manual_seed(0)
    part = CharCNN(filters=[(1, 4), (2, 8)], per_word=10, vocab_size=tokenizer.size, spellings=tokenizer.spellings)
    network = network_of("bilstm", layers=2, width=8, inner=6, embedding=part, vocab_size=tokenizer.size, clock=Clock()).eval()
    reading = Reading(single="[EOS] {A} [EOS]", pair="[EOS] {A} [EOS] {B} [EOS]", summary="last")
    return Reader(network, tokenizer, reading)


def test_unknown_words_are_spelled_where_they_stand(reader: Reader) -> None:
    (row,) = reader.encode(["the Zebra saw the zebu"])
    word = "zebra" if reader.tokenizer.lower else "Zebra"
    assert row.characters is not None and row.characters.any(1).tolist() == [False, False, True, False, False, True, False]
    assert row.characters[2].tolist() == spell([word], 10)[0].tolist()
    batch = reader.batch([row, *reader.encode(["a cat"])])
    assert tuple(batch["characters"].shape) == (2, 7, 10) and batch["characters"][1].eq(0).all()
    assert reader.encode(["the cat"])[0].characters is None


def test_unknown_words_of_pairs_and_of_texts_that_are_cut(reader: Reader) -> None:
    (row,) = reader.encode(["zebra the"], ["cat yak"])
    assert row.characters is not None and row.characters.any(1).tolist() == [False, True, False, False, False, True, False]
    (cut,) = reader.encode(["zebra the cat yak"], max_length=4)
    assert cut.characters is not None and cut.characters.any(1).tolist() == [False, True, False, False]


def test_unknown_words_beside_a_mask_are_spelled_too() -> None:
    special = {"[PAD]": "[PAD]", "[UNK]": "[UNK]", "[MASK]": "[MASK]", "[EOS]": "[EOS]"}
    tokenizer = Words(min_count=1, special=special).train(["the cat saw a dog"], Normalise(lower=True))
    part = CharCNN(filters=[(1, 4)], per_word=10, vocab_size=tokenizer.size, spellings=tokenizer.spellings, mask=True)
    network = network_of("bilstm", layers=1, width=8, inner=6, embedding=part, vocab_size=tokenizer.size, clock=Clock())
    reader = Reader(network, tokenizer, Reading(single="[EOS] {A} [EOS]", pair="[EOS] {A} [EOS] {B} [EOS]", summary="last"))
    text = "the zebra [MASK] a yak"
    ids = np.asarray(tokenizer.encode_template(text).ids, np.int32)
    row = reader.single_layout([ids]).marked([marks_around(reader, ids, text)])
    assert row.characters is not None
    assert row.characters.any(1).tolist() == [False, False, True, False, False, True, False]
    assert row.characters[2].tolist() == spell(["zebra"], 10)[0].tolist()


def test_unknown_words_get_vectors_of_their_own(reader: Reader) -> None:
    one, other, same = embed(reader, ["the zebra", "the yak", "the zebra"])
    assert not np.allclose(one, other) and np.allclose(one, same, atol=1e-6)


def test_each_text_gets_its_layers_token_by_token(reader: Reader) -> None:
    framed = reader.encode(TEXTS)
    found = dict(token_features(reader, framed, rows=2))
    assert sorted(found) == [0, 1, 2, 3]
    assert [found[n].shape for n in range(4)] == [(3, 5, 8), (3, 1, 8), (3, 0, 8), (3, 5, 8)]
    batch = reader.batch([framed[0]])
    whole = reader.states(batch, {"layers"})["layers"].detach()[:, 0, 1:-1]
    np.testing.assert_allclose(found[0], whole.numpy(), atol=1e-6)
    np.testing.assert_allclose(found[0][0, 1], found[3][0, 4], atol=1e-6)  # layer 0 knows the word alone
    top = dict(token_features(reader, framed, "-1"))
    np.testing.assert_allclose(top[0][0], found[0][2], atol=1e-6)


def test_layers_are_named_by_numbers() -> None:
    assert chosen_layers("all", 3) == [0, 1, 2] and chosen_layers("0,-1", 3) == [0, 2]
    for said in ("3", "-4", "top", "0,,1"):
        with pytest.raises(UserError, match="--layers"):
            chosen_layers(said, 3)


def test_the_file_holds_an_array_for_each_text_and_appears_whole(reader: Reader, tmp_path: Path) -> None:
    written = save_features(tmp_path / "f", token_features(reader, reader.encode(TEXTS)), TEXTS)
    assert written == tmp_path / "f.npz"
    with np.load(written) as archive:
        assert archive["texts"].tolist() == TEXTS and archive["3"].shape == (3, 5, 8) and archive["3"].dtype == np.float32

    def failing() -> Any:
        yield 0, np.zeros((1, 1, 1), np.float32)
        raise UserError("no more")

    with pytest.raises(UserError, match="no more"):
        save_features(tmp_path / "other.npz", failing(), TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]
