"""Adds words to a trained network: their rows are mapped linearly from a larger table of word vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.errors import CheckpointError
from cloze.interop import Imported
from cloze.interop.released.words import findable
from cloze.interop.vectors import Vectors
from cloze.text import Tokenizer

_TABLE = "tokens.weight"  # how the name of a table of words ends
_TOGETHER = 1 << 15  # words mapped in one product


def expand_vocabulary(imported: Imported, vectors: Vectors) -> tuple[Imported, list[str]]:
    """The same network with rows for all words of `vectors` after its own, and remarks.

    A new row is a linear map of the word's vector, with a bias and without regularisation, fitted by least squares to the rows of
    the words that both have (Kiros et al., 2015, §2.2; the authors' code, `training/tools.py`). Trained words keep their rows. If
    the table consists of such vectors and was never trained (CoVe), the row of a new word is its vector. Left out are words that
    the tokenizer can never find in a text, and heads with a row for every word, because they have no rows for the new ones.

    Raises `CheckpointError` for a tokenizer of another kind than `words`, a network without a table of words, vectors whose width
    differs from an untrained table's, and vectors that share no word with the network.
    """
    tokenizer, network = imported.tokenizer, imported.model.network
    if tokenizer.kind != "words":
        raise CheckpointError(
            f"{imported.folder}: its tokenizer is {tokenizer.kind}; --words extends vocabularies of whole words. Omit --words."
        )
    names = [name for name, tensor in network.items() if name.endswith(_TABLE) and len(tensor) == tokenizer.size]
    if not names:
        raise CheckpointError(f"{imported.folder}: {imported.model.part} has no table with a row for every word; expected one.")
    shared, rows = _shared(tokenizer, vectors)
    if not len(shared):
        raise CheckpointError(
            f"{vectors.place}: shares no word with {imported.folder}; expected vectors of the same language, cased alike."
        )
    new = _new_words(tokenizer, vectors)
    if not new:
        return imported, [f"{vectors.place}: has no word that {imported.folder} lacks; nothing was added."]
    added = np.array([vectors.ids[word] for word in new], np.int64)
    remarks = [f"{len(new):,} words were added to {tokenizer.size:,} ids; {len(shared):,} are known to both."]
    tables = dict(network)
    arguments = imported.model.arguments
    untrained = arguments.get("vectors") is not None and not arguments.get("tune")
    for name in names:
        table = network[name].float().numpy()
        if name == "embeddings.tokens.weight" and untrained:
            if table.shape[1] != vectors.width:
                raise CheckpointError(
                    f"{vectors.place}: vectors of width {vectors.width}; {imported.folder} was trained over vectors of width "
                    f"{table.shape[1]}, and its words are those themselves. Give the file that it was trained with."
                )
            new_rows = np.asarray(vectors.matrix[added], np.float32)
        else:
            new_rows, error = _mapped(vectors.matrix, rows, table[shared], added)
            remarks.append(f"{name}: the map explains {100 * (1 - error):.1f} % of the variance of the words known to both.")
            if len(shared) <= vectors.width:
                remarks.append(f"  {len(shared):,} words are too few for a map from {vectors.width} numbers: it fits anything.")
        tables[name] = torch.from_numpy(np.concatenate([table, new_rows])).to(network[name].dtype)
    heads = {
        name: head for name, head in imported.model.heads.items()
        if not any(tensor.dim() and len(tensor) == tokenizer.size for tensor in head.state.values())
    }
    if left := imported.model.heads.keys() - heads.keys():
        remarks.append(f"left out, because it has no row for new words: {', '.join(sorted(left))}.")
    model = replace(imported.model.plain, network=tables, heads=heads)
    return replace(imported, model=model, tokenizer=tokenizer.with_words(new)), remarks


def linear_map(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """W (D, E) and b (E,) that bring x W + b nearest to y by least squares; x is (N, D), y is (N, E)."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    middle, aim = x.mean(0), y.mean(0)
    weights, *_ = np.linalg.lstsq(x - middle, y - aim, rcond=None)
    return weights, aim - middle @ weights


def _mapped(
    matrix: NDArray[np.float32], rows: NDArray[np.int64], aims: NDArray[np.float32], added: NDArray[np.int64]
) -> tuple[NDArray[np.float32], float]:
    """Rows (M, E) of the added words, and the fraction of the variance of the known words that the map does not explain."""
    weights, offset = linear_map(matrix[rows], aims)
    left = float(np.square(matrix[rows] @ weights + offset - aims).sum() / max(np.square(aims - aims.mean(0)).sum(), 1e-30))
    parts = [matrix[added[start : start + _TOGETHER]] @ weights + offset for start in range(0, len(added), _TOGETHER)]
    return np.concatenate(parts).astype(np.float32), left


def _shared(tokenizer: Tokenizer, vectors: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids of the words that both have, and their rows in the table of vectors."""
    special = set(tokenizer.special_ids.tolist())
    matches = [
        (number, vectors.ids[word])
        for number, word in enumerate(tokenizer.spellings) if number not in special and word in vectors.ids
    ]
    pairs = np.array(matches, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _new_words(tokenizer: Tokenizer, vectors: Vectors) -> list[str]:
    """Words that only the vectors have and that the tokenizer will find in a text."""
    vocabulary = set(tokenizer.spellings) | set(tokenizer.literals.values())
    return findable(tokenizer, [word for word in vectors.words if word not in vocabulary])
