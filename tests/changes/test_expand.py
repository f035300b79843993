"""Words that a network was not trained with, and the encoder of a translator: from runs, by functions and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.changes import encoder_only, expand_vocabulary, linear_map
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed
from cloze.errors import CheckpointError
from cloze.interop import Card, Imported, PortableHead, PortableModel, Reading, complete, export_folder, import_folder
from cloze.interop.vectors import Vectors
from cloze.networks import GRU, Clock, LSTMEncoderDecoder
from cloze.text.normalise import Normalise
from cloze.text.words import Words

WORDS = [f"w{number}" for number in range(12)]
NEW = ["sea", "blue", "Sky"]


def vectors(width: int = 3) -> Vectors:
    matrix = np.random.default_rng(0).standard_normal((len(WORDS) - 2 + len(NEW), width)).astype(np.float32)
    return Vectors([*NEW, *WORDS[:-2]], matrix, "v.txt")


def skip_thought(lower: bool = True) -> Imported:
    """A network whose words are a linear map of the vectors, where those know them."""
    tokenizer = Words(min_count=1).of_words(WORDS, Normalise(lower=lower))
    network = GRU(width=4, embedding_width=5, vocab_size=tokenizer.size, clock=Clock())
    with torch.no_grad():
        network.embeddings.tokens.weight[4:14] = torch.from_numpy(_image(vectors().matrix[3:]))
    head = PortableHead("token_prediction", {}, {"head.bias": torch.zeros(tokenizer.size)})
    arguments = complete({"width": 4, "embedding_width": 5}, "gru")
    model = PortableModel(arguments, "left_to_right", network.state_dict(), {"token_prediction": head}, "gru")
    return Imported(Path("run"), None, model, tokenizer, Reading("{A}", None, "last"))


def cove() -> Imported:
    tokenizer = Words(min_count=1).of_words(WORDS, Normalise(lower=True))
    arguments = {"width": 6, "embedding_width": 3, "vectors": "glove"}
    network = LSTMEncoderDecoder(**arguments, vocab_size=tokenizer.size, clock=Clock(), tables=None)  # type: ignore[arg-type]
    model = PortableModel(complete(arguments, "lstm_encoder_decoder"), "open", network.state_dict(), {}, "lstm_encoder_decoder")
    return Imported(Path("run"), None, model, tokenizer, Reading("{A}", None, "last", start="[BOS]"))


def _image(rows: np.ndarray) -> np.ndarray:
    chance = np.random.default_rng(1)
    return (rows @ chance.standard_normal((3, 5)) + chance.standard_normal(5)).astype(np.float32)


def test_a_map_with_an_offset_is_found_again() -> None:
    chance = np.random.default_rng(2)
    x, weights, offset = chance.standard_normal((20, 3)), chance.standard_normal((3, 4)), chance.standard_normal(4)
    found, at = linear_map(x, x @ weights + offset)
    np.testing.assert_allclose(found, weights, atol=1e-10)
    np.testing.assert_allclose(at, offset, atol=1e-10)


def test_new_words_are_mapped_and_trained_ones_keep_their_rows() -> None:
    before = skip_thought()
    after, remarks = expand_vocabulary(before, vectors())
    table, old = (one.model.network["embeddings.tokens.weight"] for one in (after, before))
    assert torch.equal(table[:16], old)  # the words that the vectors lack among them
    np.testing.assert_allclose(table[16:].numpy(), _image(vectors().matrix[:2]), atol=1e-5)
    assert after.tokenizer.size == 18 and after.tokenizer.encode("sea blue w3 Sky").ids.tolist() == [16, 17, 7, 1]
    assert after.model.heads == {} and "10 are known to both" in remarks[0] and "100.0 %" in remarks[1]
    assert "token_prediction" in remarks[-1]


def test_how_much_of_the_variance_the_map_explains_is_told() -> None:
    before = skip_thought()
    table = before.model.network["embeddings.tokens.weight"]
    aims = 5.0 + np.random.default_rng(3).standard_normal((10, 5))
    table[4:14] = torch.from_numpy(aims.astype(np.float32))
    with_one = np.concatenate([vectors().matrix[3:], np.ones((10, 1))], axis=1)
    left = aims - with_one @ np.linalg.lstsq(with_one, aims, rcond=None)[0]
    explained = 1 - np.square(left).sum() / np.square(aims - aims.mean(0)).sum()
    assert f"explains {100 * explained:.1f} % of the variance" in expand_vocabulary(before, vectors())[1][1]
    assert explained < 0.6


def test_a_case_that_the_tokenizer_keeps_is_a_word_of_its_own() -> None:
    after, _ = expand_vocabulary(skip_thought(lower=False), vectors())
    assert after.tokenizer.encode("Sky sky").ids.tolist() == [18, 1]


def test_a_table_that_was_never_trained_takes_the_vectors_as_they_are() -> None:
    after, _ = expand_vocabulary(encoder_only(cove()), vectors())
    assert np.array_equal(after.model.network["embeddings.tokens.weight"][16:].numpy(), vectors().matrix[:2])
    with pytest.raises(CheckpointError, match="width 3"):
        expand_vocabulary(cove(), vectors(4))


def test_what_cannot_be_expanded_is_refused() -> None:
    with pytest.raises(CheckpointError, match="shares no word"):
        expand_vocabulary(skip_thought(), Vectors(["sea"], np.ones((1, 3), np.float32), "v.txt"))
    with pytest.raises(CheckpointError, match="expected lstm_encoder_decoder"):
        encoder_only(skip_thought())
    with pytest.raises(CheckpointError, match="without a decoder"):
        encoder_only(encoder_only(cove()))


def test_the_verb_writes_an_encoder_that_knows_more_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, run, out, file = cove(), tmp_path / "run", tmp_path / "out", tmp_path / "v.txt"
    export_folder(run, model=given.model, tokenizer=given.tokenizer, reading=given.reading, card=Card("cove"))
    (run / "cloze" / "recipe.yaml").write_text((Path(__file__).parents[2] / "cloze" / "recipes" / "cove.yaml").read_text())
    found = vectors()
    rows = zip(found.words, found.matrix.tolist(), strict=True)
    file.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows))
    assert main(["import", str(run), "--encoder", "--words", str(file), "--out", str(out)]) == 0
    assert "2 words were added" in capsys.readouterr().out
    loaded: Any = load_checkpoint(out)
    assert json.loads((out / "cloze" / "network.json").read_text())["arguments"]["words"] is True
    vector = embed(Reader.of(loaded), ["w1 sea"])[0]
    summary = embed(Reader.of(loaded), ["w1 sea"], pooling="summary")[0]  # the network's own, a mean, not one token's state
    np.testing.assert_allclose(summary, vector, atol=1e-6)
    table = loaded.network.token_tables["tokens"].weight.detach().numpy()
    np.testing.assert_allclose(vector[:3], (table[5] + table[16]) / 2, atol=1e-6)
    whole: Any = load_checkpoint(run).network
    np.testing.assert_allclose(table[:16], whole.token_tables["tokens"].weight.detach().numpy())
    hidden = whole(want=frozenset({"hidden"}), tokens=torch.tensor([[5, 6]]))["hidden"]
    encoder = loaded.network(want=frozenset({"hidden"}), tokens=torch.tensor([[5, 6]]))["hidden"]
    torch.testing.assert_close(encoder[..., 3:], hidden)
    assert import_folder(out).tokenizer.size == 18
