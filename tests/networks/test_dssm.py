"""DSSM: a text is what the paper's formulas make of the counts of its letter trigrams, for any spelling."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import torch

from cloze.networks import DSSM
from cloze.networks.spelling import spell, trigrams

WORDS = ("[PAD]", "[UNK]", "good", "goods", "cat")


def network() -> DSSM:
    torch.manual_seed(0)
    return DSSM(width=3, inner=5, trigrams=20, per_word=10, vocab_size=len(WORDS), spellings=WORDS)


def by_the_formulas(own: DSSM, text: str) -> np.ndarray:
    """l₁ counts trigrams, l_i = tanh(W_i l_{i-1} + b_i) (Huang et al., 2013, §3.1)."""
    weights = {name: tensor.detach().numpy() for name, tensor in own.state_dict().items()}
    codes = Counter(int(code) for code in trigrams(spell(text.split(), 10)).ravel() if code >= 0)
    known = weights["embeddings.rows.known"].tolist()
    counts = np.zeros(20)
    for code, count in codes.items():
        counts[known.index(code) if code in known else 19] += count
    x = np.tanh(counts @ weights["embeddings.rows.table.weight"] + weights["embeddings.bias"])
    for layer in ("layers.0", "layers.1"):
        x = np.tanh(weights[f"{layer}.weight"] @ x + weights[f"{layer}.bias"])
    return x


def test_a_text_is_what_the_formulas_make_of_the_counts_of_its_trigrams() -> None:
    own = network()
    torch.nn.init.normal_(own.embeddings.bias)
    tokens, block = torch.tensor([[2, 4, 2], [3, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
    states = own(want=frozenset({"summary", "hidden"}), tokens=tokens, block=block)
    for found, text in zip(states["summary"], ("good cat good", "goods"), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), by_the_formulas(own, text), rtol=1e-5)
    np.testing.assert_allclose(states["hidden"][0, 1].detach().numpy(), by_the_formulas(own, "cat"), rtol=1e-5)


def test_a_word_that_training_lacked_is_read_by_its_trigrams() -> None:
    own = network()
    characters = torch.from_numpy(spell(["goodest"], 10).astype(np.int64))[None]
    (found,) = own(want=frozenset({"summary"}), tokens=torch.tensor([[1]]), characters=characters)["summary"]
    np.testing.assert_allclose(found.detach().numpy(), by_the_formulas(own, "goodest"), rtol=1e-5)


def test_weights_begin_within_the_bounds_of_their_inputs_and_outputs() -> None:
    own = network()
    sizes = {"embeddings.rows.table": 25, "layers.0": 10, "layers.1": 8}
    for name, size in sizes.items():
        largest = own.get_parameter(f"{name}.weight").abs().max().item()
        assert 0.8 * math.sqrt(6 / size) < largest <= math.sqrt(6 / size)
    assert not own.embeddings.bias.any() and not own.layers[0].bias.any()
