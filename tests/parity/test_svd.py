"""Truncated singular values against scikit-learn's ARPACK, on a sparse matrix the size of a small vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloze.engines.singular import Sparse, truncated_svd
from cloze.recipe.load import load_recipe

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-6), ("float32", 1e-4)])
def test_singular_vectors_are_those_of_scikit_learn(dtype: str, tolerance: float) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    scipy = pytest.importorskip("scipy.sparse")
    generator = np.random.default_rng(3)
    # Zipf-like rows and columns, so that the spectrum falls as that of counts of words does.
    odds = 1 / np.arange(1, 801)
    rows, columns = (generator.choice(800, 40_000, p=odds / odds.sum()) for _ in range(2))
    dense = np.zeros((800, 800))
    np.add.at(dense, (rows, columns), 1.0)
    dense = np.log1p(dense)
    reference = decomposition.TruncatedSVD(20, algorithm="arpack").fit(scipy.csr_matrix(dense))
    place = np.nonzero(dense)
    rows, columns, values = (torch.from_numpy(array) for array in (*place, dense[place].astype(dtype)))
    matrix = Sparse(rows, columns, values, (800, 800))
    found = truncated_svd(matrix, 20, passes=40)
    np.testing.assert_allclose(found.values.numpy(), reference.singular_values_, rtol=tolerance)
    projection = reference.components_.T @ reference.components_  # whatever signs and rotations
    np.testing.assert_allclose((found.right @ found.right.T).numpy(), projection, atol=30 * tolerance)


@pytest.mark.parametrize("recipe", ["lsa", "ppmi-svd"])
def test_the_passes_of_a_recipe_find_the_subspace_of_counts_of_words(recipe: str) -> None:
    """Against numpy, for as large a share of the vocabulary as the recipes ask for: 100 of 1,000 words."""
    passes = load_recipe(recipe).training.steps
    generator = np.random.default_rng(3)
    odds = 1 / np.arange(1, 1001)
    dense = np.zeros((1000, 1000))
    np.add.at(dense, tuple(generator.choice(1000, 60_000, p=odds / odds.sum()) for _ in range(2)), 1.0)
    dense = np.log1p(dense)
    _, values, right = np.linalg.svd(dense)
    place = np.nonzero(dense)
    rows, columns, entries = (torch.from_numpy(array) for array in (*place, dense[place].astype(np.float32)))
    found = truncated_svd(Sparse(rows, columns, entries, dense.shape), 100, passes=passes)
    np.testing.assert_allclose(found.values.numpy(), values[:100], rtol=1e-4)
    overlap = np.linalg.norm(right[:100] @ found.right.numpy()) ** 2 / 100
    assert overlap > 0.9999
