"""Vectors of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.cli.use.embed import with_ending
from cloze.decoding.reader import Reader
from cloze.decoding.unknown import vector_remarks
from cloze.decoding.vectors.embedding import as_trained, cut_text_remark, embed, frame_texts, save_vectors
from cloze.errors import UserError
from cloze.interop import Reading
from cloze.networks import Clock, WordVectors
from cloze.objectives.distances.embedding import Embedding
from cloze.text.normalise import Normalise
from cloze.text.words import Words

Make = Callable[..., Any]
TEXTS = ["the cat sleeps", "a dog barks; the cat wakes and runs", "", "rain"]


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "summary"])
@pytest.mark.parametrize("system", ["bert", "gpt2"])
def test_padding_and_batches_change_nothing(checkpoint: Make, system: str, pooling: Any) -> None:
    reader = Reader.of(checkpoint(system))
    texts = TEXTS if system == "bert" else [t for t in TEXTS if t]
    together = embed(reader, texts, pooling=pooling)
    alone = np.concatenate([embed(reader, [text], pooling=pooling) for text in texts])
    assert together.dtype == np.float32 and np.allclose(together, alone, atol=1e-4)


def test_texts_of_unknown_words_alone_are_told(checkpoint: Make) -> None:
    reader = Reader.of(checkpoint("bert"))
    framed = reader.encode(["the cat", "x" * 101, "猫 犬", "the 猫"])
    assert vector_remarks(reader, framed[:1], np.ones((1, 2), np.float32)) == []
    assert vector_remarks(reader, framed, np.ones((4, 2), np.float32)) == [
        "every word of 2 of 4 texts is unknown ([UNK]): their vectors say only how long they are. "
        "A vocabulary of pieces does not know scripts that it was not trained on, nor words of many characters.",
        "half of the tokens or more of 1 of 4 texts are unknown ([UNK]).",
    ]
    assert vector_remarks(reader, reader.encode(["", "the cat"]), np.ones((2, 2), np.float32)) == [
        "1 of 2 texts are empty: their vectors are those of the special tokens alone.",
    ]  # fmt: skip


def test_a_table_of_word_vectors_leaves_unknown_words_out_and_says_so() -> None:
    words = Words(min_count=1).of_words(["the", "cat", "sat"], Normalise(lower=True))
    network = WordVectors(width=3, vocab_size=words.size, clock=Clock())
    reader = Reader(network, words, Reading("{A}", None, "first"))
    framed = reader.encode(["the zzz cat qqq", "the cat", "zzz qqq"])
    vectors = embed(reader, framed)
    row = network.embeddings.weight.detach().numpy()
    assert np.allclose(vectors[0], row[[words.id("the"), words.id("cat")]].mean(0)) and np.array_equal(vectors[0], vectors[1])
    assert not vectors[2].any()
    assert vector_remarks(reader, framed, vectors) == [
        "1 of 3 texts have no known tokens: their vectors are zeros.",
        "4 of 8 words are unknown and left out: the vectors of 1 of 3 texts come from their known words alone.",
    ]


def test_layers_and_pooling_are_what_they_say(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    reader = Reader.of(loaded)
    (row,) = reader.encode(["the cat sleeps"])
    batch = reader.batch([row])
    with torch.inference_mode():
        layers = loaded.network(
            want=frozenset({"layers"}), tokens=batch["tokens"], segments=batch["segments"], order="open"
        )["layers"]
    for layer in (0, 1, 2, -1, -2):
        expected = layers[layer][0]
        assert np.allclose(embed(reader, ["the cat sleeps"], layer=layer), expected.mean(0), atol=1e-5)
        assert np.allclose(embed(reader, ["the cat sleeps"], layer=layer, pooling="max"), expected.amax(0), atol=1e-5)
        assert np.allclose(embed(reader, ["the cat sleeps"], layer=layer, pooling="first"), expected[0], atol=1e-5)


def test_the_summary_is_the_token_that_the_reading_names(checkpoint: Make) -> None:
    reader = Reader.of(checkpoint("gpt2"))
    last = embed(reader, ["The cat", "A dog barks all night"], pooling="summary")
    state = reader.states(reader.batch(reader.encode(["The cat"])), {"hidden"})["hidden"][0, -1].detach()
    assert np.allclose(last[0], state, atol=1e-5)


def test_normalised_vectors_have_length_one(checkpoint: Make) -> None:
    vectors = embed(Reader.of(checkpoint("bert")), TEXTS, normalise=True)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_long_texts_are_cut_and_say_so(checkpoint: Make) -> None:
    reader = Reader.of(checkpoint("bert"))
    (row,) = reader.encode(["the cat sleeps " * 50])
    assert len(row) == 40 and row.cut > 0


def test_the_length_of_a_head_holds_only_for_the_vectors_that_the_head_gives(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    loaded.heads = {"embedding": Embedding(length=5, width=16, clock=Clock())}
    reader, text = Reader.of(loaded), "the cat sleeps on the mat"
    (whole,) = reader.encode([text])

    def read(layer: int, pooling: Any, of: str, **more: Any) -> Any:
        (row,) = frame_texts(loaded, reader, [text], trained=as_trained(layer, pooling, of), **more)
        return row

    assert len(whole) > 5 and len(read(-1, None, "text")) == 5 and len(read(-1, None, "text", length=4)) == 4
    assert {len(read(*asked)) for asked in ((1, None, "text"), (-1, "mean", "text"), (-1, None, "pair"))} == {len(whole)}
    assert cut_text_remark([whole]) is None
    assert cut_text_remark([read(-1, None, "text"), *reader.encode([""])]) == (
        f"1 of 2 texts are longer than 5 tokens and lost their end, {len(whole) - 5} tokens in all "
        "(split them into shorter texts and average the vectors)"
    )


def test_unknown_layer_and_pooling_are_named(checkpoint: Make) -> None:
    reader = Reader.of(checkpoint("bert"))
    with pytest.raises(UserError, match=r"layer 3: this network has the layers 0 to 2"):
        embed(reader, ["x"], layer=3)
    with pytest.raises(UserError, match="unknown pooling 'avg'"):
        embed(reader, ["x"], pooling="avg")  # type: ignore[arg-type]


def test_vectors_are_written_whole(tmp_path: Path) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert save_vectors(tmp_path / "v", vectors) == tmp_path / "v.npy"
    assert np.array_equal(np.load(tmp_path / "v.npy"), vectors)
    assert [p.name for p in tmp_path.iterdir()] == ["v.npy"]


@pytest.mark.parametrize(
    ("name", "ending", "written"), [("v", ".npy", "v.npy"), ("v.1", ".npy", "v.1.npy"), ("v.npz", ".npz", "v.npz")]
)
def test_the_ending_of_a_file_of_vectors_is_added(name: str, ending: str, written: str) -> None:
    assert with_ending(Path(name), ending) == Path(written)


@pytest.mark.parametrize(("name", "ending"), [("v.npz", ".npy"), ("v.csv", ".npy"), ("v.npy", ".npz")])
def test_a_name_of_another_format_is_refused(name: str, ending: str) -> None:
    with pytest.raises(UserError, match=rf"--out {name}: .* writes a {ending} file of numpy. Name one, such as v{ending}"):
        with_ending(Path(name), ending)
