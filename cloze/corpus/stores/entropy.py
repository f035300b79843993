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
_MEASURED = 20  # one block in so many is measured


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
    times in u(a) ways.
    """
    ids = np.asarray(tokens, dtype=np.int64)
    if len(ids) < 2:
        uniform = math.log(max(vocab_size, 1))
        return Entropy(uniform, uniform, uniform, len(ids))
    block = np.arange(len(ids)) // max(1, min(_BLOCK, len(ids) // (2 * _MEASURED) or 1))
    measured = block % _MEASURED == _MEASURED // 2
    if not measured.any():
        measured[len(ids) // 2 :] = True
    counts = np.bincount(ids[~measured], minlength=vocab_size) + 1.0
    single = counts / counts.sum()
    inside = block[1:] == block[:-1]  # a pair must not cross a block border
    train_pairs, test_pairs = inside & ~measured[1:], inside & measured[1:]
    if not test_pairs.any():
        loss = float(-np.log(single[ids[measured]]).mean())
        return Entropy(math.log(vocab_size), loss, loss, len(ids))
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
    return Entropy(
        math.log(vocab_size), float(-np.log(single[ids[measured]]).mean()), float(-np.log(shares).mean()), len(ids)
    )


def _sampled(tokens: NDArray[np.integer], most: int) -> NDArray[np.integer]:
    """At most `most` tokens in whole blocks, evenly spread."""
    blocks = len(tokens) // _BLOCK
    if len(tokens) <= most or blocks <= 1:
        return np.asarray(tokens)
    chosen = np.linspace(0, blocks - 1, max(1, most // _BLOCK)).astype(np.int64)
    return np.concatenate([tokens[i * _BLOCK : (i + 1) * _BLOCK] for i in chosen])
