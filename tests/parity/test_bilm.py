"""ELMo's network with weights as its authors store them gives their vectors: characters, highways, clips, state, order.

A plain loop in NumPy over the authors' arrays (allenai/bilm-tf: `bilm/model.py` and `bilm/data.py` for the spelling) is the
oracle that always runs, on small random weights in files of their layout. The authors' own fixture is a second one:
CLOZE_BILM_FIXTURE names a copy of tests/fixtures/model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.interop.released import import_released
from cloze.networks import BiLSTM, Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from tests.making import network_of

OPTIONS: dict[str, Any] = {
    "char_cnn": {
        "embedding": {"dim": 4}, "filters": [[1, 3], [2, 4], [3, 5]], "n_highway": 2, "max_characters_per_token": 50,
        "activation": "relu",
    },
    "lstm": {
        "n_layers": 2, "dim": 7, "projection_dim": 5, "use_skip_connections": True, "cell_clip": 3.0, "proj_clip": 3.0,
    },
}
SPECIAL = ["[PAD]", "[UNK]", "[BOS]", "[EOS]"]


def built(folder: Path, words: Sequence[str]) -> BiLSTM:
    """The network of the authors' two files, as `cloze import` reads them, over a vocabulary of some words."""
    arguments = dict(import_released(folder).model.arguments)
    cnn, arguments["reuse"] = arguments["embedding"]["char_cnn"], 0  # rows here bring no token again
    arguments["embedding"] = CharCNN(**{**cnn, "vocab_size": len(words), "spellings": words})
    network: BiLSTM = network_of("bilstm", **arguments, vocab_size=len(words), clock=Clock())
    network.load_state_dict(import_released(folder).model.network)
    return network.eval()


def written(folder: Path, weights: dict[str, Any]) -> Path:
    """`options.json` and `lm_weights.hdf5` as the authors' `dump_weights` lays them out."""
    h5py = pytest.importorskip("h5py")
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    with h5py.File(folder / "lm_weights.hdf5", "w") as file:
        for name, values in weights.items():
            for inner, array in values.items() if isinstance(values, dict) else [("", values)]:
                file[f"{name}/{inner}".rstrip("/")] = array
    return folder


def random_weights() -> dict[str, Any]:
    """Arrays in the shapes and under the names of the authors' files, large enough that cells and projections are clipped."""
    draw = np.random.default_rng(5)

    def array(*shape: int, scale: float = 1.0) -> Any:
        return (scale * draw.standard_normal(shape)).astype(np.float32)

    cnn, lstm = OPTIONS["char_cnn"], OPTIONS["lstm"]
    dim, total, inner, width = cnn["embedding"]["dim"], sum(n for _, n in cnn["filters"]), lstm["dim"], lstm["projection_dim"]
    made: dict[str, Any] = {"char_embed": array(261, dim)}
    for n, (span, count) in enumerate(cnn["filters"]):
        made |= {f"CNN/W_cnn_{n}": array(1, span, dim, count, scale=0.5), f"CNN/b_cnn_{n}": array(count)}
    for n in range(cnn["n_highway"]):
        for name in ("carry", "transform"):
            made |= {f"CNN_high_{n}/W_{name}": array(total, total, scale=0.4), f"CNN_high_{n}/b_{name}": array(total)}
    made |= {"CNN_proj/W_proj": array(total, width, scale=0.5), "CNN_proj/b_proj": array(width)}
    for way in (0, 1):
        for n in range(lstm["n_layers"]):
            made[f"RNN_{way}/RNN/MultiRNNCell/Cell{n}/LSTMCell"] = {
                "W_0": array(2 * width, 4 * inner), "B": array(4 * inner), "W_P_0": array(inner, width, scale=1.2)
            }
    return made


class Plain:
    """The authors' model word by word, in float64."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights, self.clipped = weights, 0
        size = OPTIONS["lstm"]["dim"], OPTIONS["lstm"]["projection_dim"]
        self.states = [[[np.zeros(n) for n in size] for _ in range(OPTIONS["lstm"]["n_layers"])] for _ in (0, 1)]

    def word(self, word: str) -> Any:
        """One word's vector, from its bytes between two marks; what stands for a sentence's border is one character."""
        marks = {"[BOS]": [256], "[EOS]": [257]}
        ids = [258, *marks.get(word, list(word.encode()))[:48], 259]
        read = self.weights["char_embed"].astype(float)[ids + [260] * (50 - len(ids))]
        found = []
        for n, (span, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
            kernel = self.weights[f"CNN/W_cnn_{n}"][0].astype(float)
            each = [np.einsum("se,sec->c", read[at : at + span], kernel) for at in range(50 - span + 1)]
            found.append(np.maximum(np.max(each, axis=0) + self.weights[f"CNN/b_cnn_{n}"], 0.0))
        x = np.concatenate(found)
        for n in range(OPTIONS["char_cnn"]["n_highway"]):
            gate, change = (
                x @ self.weights[f"CNN_high_{n}/W_{name}"] + self.weights[f"CNN_high_{n}/b_{name}"]
                for name in ("carry", "transform")
            )
            share = sigmoid(gate)
            x = share * np.maximum(change, 0.0) + (1 - share) * x
        return x @ self.weights["CNN_proj/W_proj"] + self.weights["CNN_proj/b_proj"]

    def read(self, words: Sequence[str], way: int) -> Any:
        """The last layer's output at every word, in the order read; the state stays for the next sentence."""
        found = []
        for word in words:
            x = self.word(word)
            for n, state in enumerate(self.states[way]):
                cell = self.weights[f"RNN_{way}/RNN/MultiRNNCell/Cell{n}/LSTMCell"]
                i, g, f, o = np.split(np.concatenate([x, state[1]]) @ cell["W_0"] + cell["B"], 4)
                free = sigmoid(f + 1.0) * state[0] + sigmoid(i) * np.tanh(g)
                c = np.clip(free, -3.0, 3.0)
                out = (sigmoid(o) * np.tanh(c)) @ cell["W_P_0"]
                h = np.clip(out, -3.0, 3.0)
                self.clipped += int((np.abs(out) > 3).any()) + 1000 * int((np.abs(free) > 3).any())
                self.states[way][n] = [c, h]
                x = h + x if n else h
            found.append(x)
        return np.array(found)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def read_in_turn(network: BiLSTM, sentences: Sequence[Sequence[int]], way: int, carry: Any) -> tuple[list[Tensor], Any]:
    """`forward_hidden` of some rows of ids, as they are or from their ends, in the order read; and what is carried on."""
    shown = [list(row)[::-1] if way else list(row) for row in sentences]
    longest = max(map(len, shown))
    block = torch.tensor([[int(n < len(row)) for n in range(longest)] for row in shown])
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in shown])
    with torch.no_grad():
        states = network(
            want=frozenset({"forward_hidden", "carry"}), tokens=tokens, block=block,
            reversed=torch.full((len(shown),), bool(way)), carry=carry,
        )
    return [found[: len(row)] for found, row in zip(states["forward_hidden"], shown, strict=True)], states["carry"]


def test_sentences_with_the_state_carried_equal_a_plain_loop_over_the_authors_arrays(tmp_path: Path) -> None:
    sentences = [
        [["the", "cat", "sleeps"], ["rain"], ["über", "x" * 60, "the", "garden"]],
        [["a", "dog", "barks", "in", "the", "rain"], ["cat", "cat"], ["nobody"]],
    ]
    words = [*SPECIAL, *sorted({word for texts in sentences for text in texts for word in text})]
    weights = random_weights()
    network, plain = built(written(tmp_path, weights), words), [Plain(weights), Plain(weights)]
    for way in (0, 1):
        carry = None
        for turn in range(3):
            texts = [["[BOS]", *sentences[lane][turn], "[EOS]"] for lane in (0, 1)]
            found, carry = read_in_turn(network, [[words.index(word) for word in text] for text in texts], way, carry)
            for lane, text in enumerate(texts):
                expected = plain[lane].read(text[::-1] if way else text, way)
                np.testing.assert_allclose(found[lane].numpy(), expected, atol=2e-5)
    clipped = sum(one.clipped for one in plain)
    assert clipped % 1000 > 5 and clipped // 1000 > 5  # projections and cells reached their bounds


@pytest.mark.parity
def test_thirty_sentences_of_the_authors_fixture_in_ten_batches() -> None:
    h5py, named = pytest.importorskip("h5py"), os.environ.get("CLOZE_BILM_FIXTURE")
    if not named:
        pytest.skip("CLOZE_BILM_FIXTURE does not name the folder tests/fixtures/model of allenai/bilm-tf")
    folder = Path(named)
    sentences = [[s.split() for s in group] for group in json.loads((folder / "lm_embeddings_sentences.json").read_text())]
    words = [*SPECIAL, *sorted({w for group in sentences for s in group for w in s})]
    ids = {word: number for number, word in enumerate(words)}
    network = built(folder, words)
    expected = [h5py.File(folder / f"lm_embeddings_{k}.hdf5", "r") for k in range(3)]
    carries: list[Any] = [None, None]
    for i in range(10):
        rows = [[2, *(ids[w] for w in sentences[k][i]), 3] for k in range(3)]
        for way in (0, 1):
            read, carries[way] = read_in_turn(network, rows, way, carries[way])
            for k, found in enumerate(read):
                found = found.flip(0) if way else found
                np.testing.assert_allclose(found[1:-1].numpy(), expected[k][str(i)][way], atol=1e-6)
