"""Linear CKA: exact values, what it does not depend on, and the layers of small networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.errors import UserError
from cloze.probes.finding import Subject
from cloze.probes.kinds.layer_similarity import CkaProbe, linear_cka

TEXTS = ["The cat sleeps on the mat.", "A dog sees the cat.", "The mice saw the cat and the garden.", "Rain fell on the garden."]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_cka_is_the_normalised_hilbert_schmidt_criterion_of_the_gram_matrices() -> None:
    x, y = drawn(2, 7, 5), drawn(3, 7, 9, seed=1)
    centring = np.eye(7) - 1 / 7

    def criterion(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.trace(a @ a.T @ centring @ b @ b.T @ centring))

    expected = [[criterion(a, b) / np.sqrt(criterion(a, a) * criterion(b, b)) for b in y] for a in x]
    np.testing.assert_allclose(linear_cka(x, y), expected, rtol=1e-12)


def test_turned_scaled_and_shifted_vectors_are_the_same_and_orthogonal_features_are_not_alike() -> None:
    x, turn = drawn(1, 9, 6), np.linalg.qr(drawn(6, 6, seed=2))[0]
    assert linear_cka(x, 3.0 * x @ turn + 5.0)[0, 0] == pytest.approx(1.0)
    assert linear_cka(x, x * [9.0, 1.0, 1.0, 1.0, 1.0, 1.0])[0, 0] < 0.9  # as in the paper: not every linear map is ignored
    features = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[None]
    assert linear_cka(features[..., :1], features[..., 1:])[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(linear_cka(np.ones((1, 4, 2)), features)[0, 0])


def test_layers_are_compared_within_a_network_and_over_the_words_that_two_networks_read(checkpoint: Callable[..., Any]) -> None:
    bert, modern = (CkaProbe().measure(checkpoint(name), TEXTS) for name in ("bert", "modern"))
    cut = CkaProbe(length=6, batch=1).measure(checkpoint("bert"), TEXTS)
    assert len(cut) < len(bert) == sum(len(text.split()) for text in TEXTS)
    finding = CkaProbe().finding([Subject(name, Path()) for name in ("a", "b", "c")], {"a": cut, "b": modern, "c": bert})
    assert list(finding.data) == ["a", "b", "c", "a, c", "b, c"] and finding.kind == "cka"
    for name in "abc":
        np.testing.assert_allclose(finding.data[name]["cka"].diagonal(), 1.0)
        np.testing.assert_allclose(finding.data[name]["cka"], finding.data[name]["cka"].T)
    assert [finding.data[name]["words"] for name in ("a", "c", "a, c")] == [len(cut), len(bert), len(cut)]
    assert finding.data["b, c"]["cka"].shape == (3, 3) and 0 < finding.data["c"]["shuffled"] < 1
    below, same = finding.plots
    assert below.lines["c"] == [(1.0, finding.data["c"]["cka"][0, 1]), (2.0, finding.data["c"]["cka"][1, 2])]
    assert same.title == "similarity to the same layer of c" and list(same.lines) == ["a", "b"]
    assert [row[0] for row in finding.tables[0].rows] == ["2", "1", "input"]


def test_one_word_cannot_be_compared(checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"cka compares words, and this network read 1\. Give more text with --text\."):
        CkaProbe().measure(checkpoint("bert"), ["cat"])
