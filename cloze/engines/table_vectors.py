"""Vectors of token ids from counts of their neighbours, which the rows of a token table may start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.bounds import Count, Share
from cloze.corpus.counting.word_chunks import WordChunk, chunks
from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.store import Store
from cloze.registry import register

CHUNK = 1 << 20  # tokens that are read at once
CELLS = 1 << 26  # of the matrix of counts, 4 bytes each
OVERSAMPLE, PASSES = 32, 2  # of the randomised decomposition (Halko et al., 2011, alg. 4.4)


@register("start", "vectors")
@dataclass(frozen=True, kw_only=True)
class StartFromVectors:
    """The rows of a token table start from vectors that counts of neighbours give, before anything is learned.

    For each distance up to `radius`, to the left and to the right, the positive pointwise mutual information of every id with the
    `contexts` most frequent ids is counted; contexts count by their frequency to the power `smoothing`. The vectors are the left
    singular vectors of all these numbers, times the square root of the singular values (Levy, Goldberg and Dagan, 2015, whose
    matrix does not tell distances apart). They are centred, and each gets the length of an average row as it was drawn.
    At most `tokens` of the training text are counted, from its beginning. Special tokens, and ids that were not counted, keep
    their drawn rows. A vocabulary of more than 8,000 ids has fewer contexts, so that the counts take 256 MB.
    """

    radius: Count = 2
    contexts: Count = 2000
    smoothing: Share = 0.75
    tokens: Count = 100_000_000

    def of(self, store: Store, documents: Int64, *, width: int, seed: int) -> tuple[Tensor, Tensor]:
        """Vectors (V, width) of the ids of a store, and which ids (V,) have one."""
        size = store.vocab_size
        contexts = max(1, min(self.contexts, size, CELLS // (size * 2 * self.radius)))
        frequent = torch.from_numpy(store.counts()).argsort(descending=True, stable=True)[:contexts]
        column = torch.full((size,), -1, dtype=torch.int64)
        column[frequent] = torch.arange(contexts)
        counts = torch.zeros(size, 2 * self.radius, contexts)
        read = 0
        for words in chunks(store, documents, unit="document", radius=self.radius, chunk=min(CHUNK, self.tokens)):
            _count(words, counts, column)
            read += len(words.ids) - words.new
            if read >= self.tokens:
                break
        has_vector = counts.sum((1, 2)) > 0
        return _decomposed(_information(counts, self.smoothing).flatten(1), width, seed=seed), has_vector


def _count(words: WordChunk, counts: Tensor, column: Tensor) -> None:
    """Add the pairs of a chunk to `counts` (V, 2 * radius, contexts): by distance, first the left neighbours."""
    ids, left = torch.from_numpy(words.ids).long(), torch.from_numpy(words.left)
    sides, contexts = counts.shape[1:]
    cells = counts.view(-1)
    for distance in range(1, sides // 2 + 1):
        second = torch.nonzero(left[words.new :] >= distance).flatten() + words.new
        pair = ids[second - distance], ids[second]
        for side, (context, centre) in enumerate((pair, pair[::-1])):
            at = (centre * sides + 2 * (distance - 1) + side) * contexts + column[context]
            at = at[column[context] >= 0]
            cells.index_add_(0, at, torch.ones(()).expand(len(at)))


def _information(counts: Tensor, smoothing: float) -> Tensor:
    """The positive pointwise mutual information of rows and contexts, for each side (V, sides, contexts), in place."""
    smoothed = counts.sum(0).pow(smoothing)
    chance = smoothed / smoothed.sum(1, keepdim=True).clamp(min=1e-12)
    counts /= counts.sum(2, keepdim=True).clamp(min=1.0)
    counts /= chance.clamp(min=1e-30)
    return counts.log_().clamp_(min=0.0)


def _decomposed(matrix: Tensor, width: int, *, seed: int) -> Tensor:
    """The `width` largest left singular vectors (V, width) of a dense matrix, times the roots of the singular values.

    A matrix of a lower rank leaves the last columns at zero.
    """
    size = min(width + OVERSAMPLE, *matrix.shape)
    generator = torch.Generator().manual_seed(seed)
    left = torch.linalg.qr(matrix @ torch.randn(matrix.shape[1], size, generator=generator)).Q
    for _ in range(PASSES):
        left = torch.linalg.qr(matrix @ (matrix.T @ left)).Q
    inner, values, _ = torch.linalg.svd(left.T @ matrix, full_matrices=False)
    vectors = torch.zeros(len(matrix), width)
    rank = min(width, size)
    vectors[:, :rank] = (left @ inner[:, :rank]) * values[:rank].sqrt()
    return vectors
