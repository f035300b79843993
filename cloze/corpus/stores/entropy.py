"""Count-based baselines of a text: the cross-entropy of its tokens under unigram and bigram tables.

A network that has learned anything has a lower loss than the unigram table. Both tables are counted on some blocks of the text
and measured on blocks between them, so that neither is measured on what it has memorised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store

#: Maximum number of tokens to count: enough for bigrams to within a few hundredths of a nat, in about a second.
MOST = 6_000_000
_BLOCK = 2_000  # tokens that are counted or measured together
_MEASURED = 20  # one block in so many is measured at a time
_ENOUGH = 100_000  # measured tokens


@dataclass(frozen=True)
class Entropy:
    """Nats per token: `uniform` over the vocabulary, under unigrams (`single`) and under bigrams (`pairs`).

    `tokens` is the number of tokens counted.
    """

    uniform: float
    single: float
    pairs: float
    tokens: int


def entropy_of(store: Store, *, most: int = MOST) -> Entropy:
    """The entropies of a store's text, from at most `most` of its tokens, spread evenly over it."""
    tokens = _sampled(store.tokens, most)
    return entropy(tokens, vocab_size=store.vocab_size)


def entropy(tokens: NDArray[np.integer], *, vocab_size: int) -> Entropy:
    """The entropies of a sequence of ids, (tokens,).

    Single tokens are counted with one added to every id. Pairs are interpolated with single tokens by Witten and Bell's
    weights (1991, method C): an unseen continuation of `a` has the share u(a) / (n(a) + u(a)), where `a` was continued n(a)
    times in u(a) ways. A twentieth of the blocks is measured with the counts of all others; in a small text, where these would be
    a few places that need not be like the rest, further twentieths are, up to all of them.
    """
    ids = np.asarray(tokens, dtype=np.int64)
    uniform = math.log(max(vocab_size, 1))
    if len(ids) < 2:
        return Entropy(uniform, uniform, uniform, len(ids))
    block = np.arange(len(ids)) // max(1, min(_BLOCK, len(ids) // (2 * _MEASURED) or 1))
    folds = min(_MEASURED, math.ceil(_ENOUGH * _MEASURED / len(ids)))
    places = [(_MEASURED // 2 + fold * _MEASURED // folds) % _MEASURED for fold in range(folds)]
    measured = [mask for place in places if (mask := block % _MEASURED == place).any()]
    if int(block[-1]) < _MEASURED:
        measured = [np.arange(len(ids)) >= len(ids) // 2]
    losses = [_losses(ids, mask, block, vocab_size) for mask in measured]
    single, pairs = (np.concatenate(columns) for columns in zip(*losses, strict=True))
    return Entropy(uniform, float(single.mean()), float((pairs if len(pairs) else single).mean()), len(ids))


def _losses(
    ids: NDArray[np.int64], measured: NDArray[np.bool_], block: NDArray[np.int64], vocab_size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The losses of the tokens `measured`, and of those among them that follow another in their block, by tables of the rest."""
    counts = np.bincount(ids[~measured], minlength=vocab_size) + 1.0
    single = counts / counts.sum()
    inside = block[1:] == block[:-1]  # a pair must not cross a block border
    train_pairs, test_pairs = inside & ~measured[1:], inside & measured[1:]
    pairs, times = np.unique(ids[:-1][train_pairs] * vocab_size + ids[1:][train_pairs], return_counts=True)
    before = pairs // vocab_size
    continued = np.bincount(before, weights=times, minlength=vocab_size)
    ways = np.bincount(before, minlength=vocab_size).astype(float)
    first, second = ids[:-1][test_pairs], ids[1:][test_pairs]
    keys = first * vocab_size + second
    index = np.minimum(np.searchsorted(pairs, keys), max(len(pairs) - 1, 0))
    frequencies = np.where(pairs[index] == keys, times[index], 0) if len(pairs) else np.zeros(len(keys))
    mass = continued[first] + ways[first]
    shares = np.where(mass > 0, (frequencies + ways[first] * single[second]) / np.maximum(mass, 1.0), single[second])
    return -np.log(single[ids[measured]]), -np.log(shares)


def _sampled(tokens: NDArray[np.integer], most: int) -> NDArray[np.integer]:
    """At most `most` tokens in whole blocks, evenly spread."""
    blocks = len(tokens) // _BLOCK
    if len(tokens) <= most or blocks <= 1:
        return np.asarray(tokens)
    chosen = np.linspace(0, blocks - 1, max(1, most // _BLOCK)).astype(np.int64)
    return np.concatenate([tokens[i * _BLOCK : (i + 1) * _BLOCK] for i in chosen])
