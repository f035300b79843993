"""ELMo's network with the weights of the authors' fixture gives their vectors: characters, highways, clips, state, order.

The fixture is in allenai/bilm-tf, tests/fixtures/model; CLOZE_BILM_FIXTURE names a copy of that folder, and h5py reads it.
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

from cloze.networks import BiLSTM, Clock
from cloze.networks.blocks.characters import CharCNN

h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def folder() -> Path:
    found = os.environ.get("CLOZE_BILM_FIXTURE")
    if not found:
        pytest.skip("CLOZE_BILM_FIXTURE does not name the folder tests/fixtures/model of allenai/bilm-tf")
    return Path(found)


def gates(theirs: Any) -> Tensor:
    """TensorFlow's gates i, g, f, o, the last axis, as our i, f, g, o, the first one."""
    i, g, f, o = np.split(theirs, 4, axis=-1)
    return torch.from_numpy(np.concatenate([i, f, g, o], axis=-1).T.copy())


def translated(weights: Any, options: dict[str, Any]) -> dict[str, Tensor]:
    """The file's arrays under our names."""
    table = weights["char_embed"][...]
    part = "embeddings.characters.part"
    made = {f"{part}.table.weight": torch.from_numpy(np.concatenate([np.zeros_like(table[:1]), table]))}
    for n in range(len(options["char_cnn"]["filters"])):
        made[f"{part}.filters.{n}.weight"] = torch.from_numpy(weights[f"CNN/W_cnn_{n}"][0].transpose(2, 1, 0).copy())
        made[f"{part}.filters.{n}.bias"] = torch.from_numpy(weights[f"CNN/b_cnn_{n}"][...])
    for n in range(options["char_cnn"]["n_highway"]):
        for ours, theirs in (("gate", "carry"), ("change", "transform")):
            made[f"{part}.highways.{n}.{ours}.weight"] = torch.from_numpy(weights[f"CNN_high_{n}/W_{theirs}"][...].T.copy())
            made[f"{part}.highways.{n}.{ours}.bias"] = torch.from_numpy(weights[f"CNN_high_{n}/b_{theirs}"][...])
    made["embeddings.characters.project.weight"] = torch.from_numpy(weights["CNN_proj/W_proj"][...].T.copy())
    made["embeddings.characters.project.bias"] = torch.from_numpy(weights["CNN_proj/b_proj"][...])
    width = options["lstm"]["projection_dim"]
    for way, name in enumerate(("forwards", "backwards")):
        for n in range(options["lstm"]["n_layers"]):
            cell = weights[f"RNN_{way}/RNN/MultiRNNCell/Cell{n}/LSTMCell"]
            bias = gates(cell["B"][...])
            size = len(bias) // 4
            bias[size : 2 * size] += 1.0  # TensorFlow adds it while it runs
            made[f"layers.{n}.{name}.input.weight"] = gates(cell["W_0"][...][:width])
            made[f"layers.{n}.{name}.recurrent.weight"] = gates(cell["W_0"][...][width:])
            made[f"layers.{n}.{name}.bias"] = bias
            made[f"layers.{n}.{name}.projection.weight"] = torch.from_numpy(cell["W_P_0"][...].T.copy())
    return made


def built(folder: Path, words: Sequence[str]) -> BiLSTM:
    options = json.loads((folder / "options.json").read_text())
    size = len(words)
    characters = CharCNN(
        embedding_width=options["char_cnn"]["embedding"]["dim"], filters=[tuple(f) for f in options["char_cnn"]["filters"]],
        highways=options["char_cnn"]["n_highway"], vocab_size=size, spellings=words,
    )
    lstm = options["lstm"]
    network = BiLSTM(
        layers=lstm["n_layers"], width=2 * lstm["projection_dim"], inner=lstm["dim"], skip=lstm["use_skip_connections"],
        cell_clip=lstm["cell_clip"], projection_clip=lstm["proj_clip"], characters=characters, vocab_size=size, clock=Clock(),
    )
    with h5py.File(folder / "lm_weights.hdf5", "r") as weights:
        network.load_state_dict(translated(weights, options))
    return network.eval()


def test_thirty_sentences_in_ten_batches_with_the_state_carried(folder: Path) -> None:
    sentences = [[s.split() for s in group] for group in json.loads((folder / "lm_embeddings_sentences.json").read_text())]
    words = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", *sorted({w for group in sentences for s in group for w in s})]
    ids = {word: number for number, word in enumerate(words)}
    network = built(folder, words)
    expected = [h5py.File(folder / f"lm_embeddings_{k}.hdf5", "r") for k in range(3)]
    carries: list[Any] = [None, None]
    for i in range(10):
        rows = [[2, *(ids[w] for w in sentences[k][i]), 3] for k in range(3)]
        longest = max(map(len, rows))
        block = torch.tensor([[int(n < len(row)) for n in range(longest)] for row in rows])
        for way in (0, 1):
            shown = [row[::-1] if way else row for row in rows]
            tokens = torch.tensor([row + [0] * (longest - len(row)) for row in shown])
            with torch.no_grad():
                states = network(
                    want=frozenset({"forward_hidden", "carry"}), tokens=tokens, block=block,
                    reversed=torch.full((3,), bool(way)), carry=carries[way],
                )
            carries[way] = states["carry"]
            for k, row in enumerate(rows):
                found = states["forward_hidden"][k, : len(row)]
                found = found.flip(0) if way else found
                np.testing.assert_allclose(found[1:-1].numpy(), expected[k][str(i)][way], atol=1e-6)
