"""Measures of how vectors lie: self-similarity, similarity within a sentence, and variance explained by one direction.

Ethayarajh, "How Contextual are Contextualized Word Representations?" (2019), §3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
#: The three estimators of the variance that the first direction explains, by name; see `explained`.
ESTIMATORS = ("uncentred", "centred", "truncated")


def unit(vectors: Floats) -> Floats:
    """Vectors (…, D) divided by their lengths; zeros stay zeros."""
    units: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(vectors.dtype).tiny)
    return units


def self_similarity(vectors: Floats) -> float:
    """The mean cosine of two different vectors among (n, D); NaN for fewer than two.

    Over all n (n - 1) pairs: with u of length 1 it is (|Σu|² - n) / (n (n - 1)).
    """
    n = len(vectors)
    if n < 2:
        return float("nan")
    total = unit(np.asarray(vectors, np.float64)).sum(0)
    return float((total @ total - n) / (n * (n - 1)))


def intra_sentence(vectors: Floats) -> float:
    """The mean cosine of the words (n, D) of a sentence with their mean."""
    vectors = np.asarray(vectors, np.float64)
    return float((unit(vectors) @ unit(vectors.mean(0))).mean())


def explained(vectors: Floats) -> dict[str, float]:
    """The share of the variance of (n, D) that one direction explains, by three estimators that published code calls by one name.

    `uncentred`: σ₁² / Σσ² of the vectors as they are, which is the formula of the paper (§3.3). `centred`: the same after their
    mean was subtracted, the first component of PCA. `truncated`: the variance about the mean along the first direction of the
    vectors as they are, over all variance (`TruncatedSVD.explained_variance_ratio_` of scikit-learn). The last two are NaN if
    all vectors are equal.
    """
    vectors = np.asarray(vectors, np.float64)
    about = vectors - vectors.mean(0)
    squares, centred = _squares(vectors), _squares(about)
    variance = (about**2).sum()
    flat = variance <= 1e-12 * (vectors**2).sum()
    along = about @ first_direction(vectors)
    return {
        "uncentred": float(squares[-1] / squares.sum()) if squares.sum() > 0 else float("nan"),
        "centred": float("nan") if flat else float(centred[-1] / centred.sum()),
        "truncated": float("nan") if flat else float((along**2).sum() / variance),
    }


def first_direction(vectors: Floats) -> Floats:
    """The first right singular vector (D,) of (n, D), not centred, with the sign that points to the vectors' mean."""
    vectors = np.asarray(vectors, np.float64)
    if len(vectors) <= vectors.shape[1]:
        values, left = np.linalg.eigh(vectors @ vectors.T)
        direction = left[:, -1] @ vectors / np.sqrt(max(values[-1], 1e-300))
    else:
        direction = np.linalg.eigh(vectors.T @ vectors)[1][:, -1]
    oriented: Floats = direction if direction @ vectors.mean(0) >= 0 else -direction
    return oriented


def _squares(vectors: Floats) -> Floats:
    """The squares of the singular values of (n, D), ascending."""
    small = vectors @ vectors.T if len(vectors) <= vectors.shape[1] else vectors.T @ vectors
    return np.maximum(np.linalg.eigvalsh(small), 0.0)
