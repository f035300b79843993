"""Coreference chains from the first and last words of mentions alone ("s2e", Kirstain et al., 2021, arXiv 2101.00434)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count, NonNegative, Share, Width
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.heads import dense
from cloze.objectives.objective import SEQUENCES, Loss, TargetsAtPositions, at_least_float32
from cloze.registry import Given, register

_BLOCK = 512  # words, or mentions, that are scored together
_RARE = -2.0  # the bias of either end of a mention where mentions are learned as such: few spans are mentions


class CandidateSpans(NamedTuple):
    """The spans of a document that may be mentions, by first and then by last word: their first and last words (K,), their scores
    (K,), and their places among all spans (K,)."""

    first: Tensor
    last: Tensor
    scores: Tensor
    places: Tensor


class SpanHead(nn.Module):
    """Four views of every word, as the first and the last word of a mention, for mentions and for pairs of them, and bilinear
    scores of them (§3).

    Parameters: `views` (4 A, D), `scale` and `shift` (4, A), of the norms of the views; `first`, `last` (1, A) and `pair` (A, A),
    which score a mention; `antecedent` (2 A, 2 A), which holds the four forms of the paper between the ends of two mentions.
    """

    def __init__(
        self, *, width: int, inner: int, longest: int, candidates: float, singletons: bool, rare: bool, dropout: float,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.inner, self.longest, self.candidates, self.singletons = inner, longest, candidates, singletons
        self.views = dense(width, 4 * inner)
        self.scale, self.shift = nn.Parameter(torch.ones(4, inner)), nn.Parameter(torch.zeros(4, inner))
        self.dropout = Dropout(dropout, clock)
        self.first, self.last = dense(inner, 1), dense(inner, 1)
        self.pair, self.antecedent = dense(inner, inner, 1 / inner), dense(2 * inner, 2 * inner, 0.5 / inner)
        for end in (self.first, self.last) if rare else ():
            nn.init.constant_(end.bias, _RARE)

    @property
    def view_width(self) -> int:
        """How many numbers the views of a word have."""
        return 4 * self.inner

    def forward(self, states: Tensor) -> Tensor:
        """States (B, L, D) to views (B, L, 4 A)."""
        views = F.gelu(self.views(states)).unflatten(-1, (4, self.inner))
        views = F.layer_norm(views, (self.inner,)) * self.scale + self.shift
        dropped: Tensor = self.dropout(views.flatten(-2))
        return dropped

    def mentions(self, views: Tensor) -> Tensor:
        """(T, S): the score of the span of each first word and each number of words from 1 on, from views (T, 4 A) of the words
        of a document; -inf beyond its end. S is at most `longest`."""
        first, last = views.split(self.inner, dim=1)[:2]
        sizes = min(self.longest, len(views))
        form, begins = self.pair(first), self.first(first)
        ends = F.pad(self.last(last).squeeze(1), (0, sizes - 1), value=-torch.inf)
        last = F.pad(last, (0, 0, 0, sizes - 1))
        blocks = []
        for begin in range(0, len(views), _BLOCK):
            of_block = form[begin : begin + _BLOCK]
            stop = begin + len(of_block) + sizes - 1
            band = torch.arange(len(of_block), device=views.device)[:, None] + torch.arange(sizes, device=views.device)
            pairs = (of_block @ last[begin:stop].T).gather(1, band)
            blocks.append(begins[begin : begin + _BLOCK] + ends[begin:stop][band] + pairs)
        return torch.cat(blocks)

    def prune(self, scores: Tensor) -> CandidateSpans:
        """The spans with the highest scores (T, S), as many as a share of the words."""
        words, sizes = scores.shape
        spans = sizes * words - sizes * (sizes - 1) // 2  # within the document
        places = scores.flatten().topk(min(math.ceil(self.candidates * words), spans)).indices.sort().values
        first = places // sizes
        return CandidateSpans(first, first + places % sizes, scores.flatten()[places], places)

    def antecedents(self, views: Tensor, candidates: CandidateSpans, begin: int, end: int) -> Tensor:
        """(N, K + 1): how well each candidate fits before those from `begin` to `end`; -inf for itself and later ones. The last
        column, 0, stands for none."""
        firsts, lasts = views.split(self.inner, dim=1)[2:]
        mentions = torch.cat([firsts[candidates.first], lasts[candidates.last]], dim=1)
        scores = self.antecedent(mentions[begin:end]) @ mentions.T
        scores = scores + candidates.scores[begin:end, None] + candidates.scores
        number = torch.arange(len(mentions), device=views.device)
        return F.pad(scores.masked_fill(number >= number[begin:end, None], -torch.inf), (0, 1))

    def resolve(self, views: Tensor) -> list[list[tuple[int, int]]]:
        """The chains of a document from views (T, 4 A) of its words: each mention is in a chain with its best antecedent, if this
        scores above 0. Where singletons were marked, a span that scores above 0 by itself is a mention, too."""
        if not len(views):
            return []
        candidates = self.prune(self.mentions(views))
        best = torch.cat([
            self.antecedents(views, candidates, begin, begin + _BLOCK).argmax(1)
            for begin in range(0, len(candidates.first), _BLOCK)
        ]).tolist()  # fmt: skip
        spans = list(zip(candidates.first.tolist(), candidates.last.tolist(), strict=True))
        alone = (candidates.scores > 0).tolist()
        chain_of: dict[int, list[tuple[int, int]]] = {}
        for number, antecedent in enumerate(best):
            if antecedent < len(spans):
                chain = chain_of.setdefault(antecedent, [spans[antecedent]])
                chain.append(spans[number])
                chain_of[number] = chain
            elif self.singletons and alone[number]:
                chain_of[number] = [spans[number]]
        return sorted({id(chain): chain for chain in chain_of.values()}.values())


class Coreference(TargetsAtPositions):
    """Sum over the candidate mentions of a row of the negative marginal log-likelihood of their right antecedents (Lee et al.,
    2017).

    The words of a row are at `positions/<set>`; its mentions begin at `positions/<set>_first` and end at `positions/<set>_last`,
    and `targets/<set>_first` is their chain. A candidate that is no mention, or the first of its chain, has no antecedent.
    `mentions` times the binary cross-entropies of all spans being mentions is added. The loss is per word. The scores are the
    views (M, V) of the words, from which `SpanHead` scores spans and pairs.
    """

    head: SpanHead
    likelihood = False
    by_row = True

    def __init__(self, head: SpanHead, *, set: str, mentions: float) -> None:
        super().__init__(set=set)
        self.head, self.mentions = head, mentions
        self.first_field, self.last_field = f"positions/{set}_first", f"positions/{set}_last"
        self.chain_field = f"targets/{set}_first"
        self.reads: tuple[str, ...] = ("hidden",)
        self.takes |= {self.first_field, self.last_field, self.chain_field, f"targets/{set}_last"}
        self.optional |= SEQUENCES | {f"weights/{set}_first", f"weights/{set}_last"}

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, V)."""
        views: Tensor = self.head(states["hidden"])
        return views.flatten(0, 1).index_select(0, batch[self.positions_field].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32 or float64."""
        views = at_least_float32(scores)
        total = sum((parameter.sum() for parameter in self.parameters()), views.sum()) * 0.0
        for document, spans, chains in self._documents(views, batch):
            total = total + self._of_document(document, spans, chains)
        return Loss(total, {})

    def _documents(self, views: Tensor, batch: Batch) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each row, the views of its words (T, V), the numbers of the first and last words of its mentions (N, 2), and their
        chains (N,), from 1."""
        words = _real(batch[self.positions_field].long(), batch.get(self.weights_field))
        weights = batch.get(f"weights/{self.set}_first")
        first, last = (_real(batch[name].long(), weights) for name in (self.first_field, self.last_field))
        chains = batch[self.chain_field].long()[: len(first)] + 1
        width = sequence(batch).shape[1]
        spans = torch.stack([torch.searchsorted(words, first), torch.searchsorted(words, last)], dim=1)
        rows, owners = words // width, first // width
        begin = 0
        for row, size in zip(*(part.tolist() for part in torch.unique_consecutive(rows, return_counts=True)), strict=True):
            of_row = owners == row
            yield views[begin : begin + size], spans[of_row] - begin, chains[of_row]
            begin += size

    def _of_document(self, views: Tensor, spans: Tensor, chains: Tensor) -> Tensor:
        scores = self.head.mentions(views)
        first, size = spans[:, 0], spans[:, 1] - spans[:, 0]
        short = size < scores.shape[1]
        chain_of = chains.new_zeros(scores.shape).index_put((first[short], size[short]), chains[short])
        candidates = self.head.prune(scores)
        chain = chain_of.flatten()[candidates.places]
        antecedents = self.head.antecedents(views, candidates, 0, len(chain))
        right = (chain[:, None] == chain) & (chain > 0)
        right = F.pad(right.tril(-1), (0, 1))
        right[:, -1] = ~right.any(1)
        loss = (antecedents.logsumexp(1) - antecedents.masked_fill(~right, -torch.inf).logsumexp(1)).sum()
        if not self.mentions:
            return loss
        real = scores > -torch.inf
        return loss + self.mentions * F.binary_cross_entropy_with_logits(
            scores[real], (chain_of[real] > 0).to(scores.dtype), reduction="sum"
        )


def _real(positions: Tensor, weights: Tensor | None) -> Tensor:
    """Positions without those that pad a batch, which have weight 0 and follow the others."""
    return positions if weights is None else positions[: int((weights > 0).sum())]


@register("objective", "coreference")
def coreference(
    *,
    set: str = "chains",
    inner: Width = 512,
    longest: Count = 30,
    candidates: Share = 0.4,
    mentions: NonNegative = 1.0,
    singletons: bool = False,
    dropout: BelowOne = 0.3,
    width: Given[int],
    clock: Given[Clock],
) -> Coreference:
    """Coreference chains by the start-to-end model (Kirstain et al., 2021, §3), above any states of tokens.

    A linear map, GELU and a norm make four views of a word, of `inner` numbers each: as the first and as the last word of a
    mention, to score mentions and to score pairs. Of the spans of at most `longest` words, as many become candidates as
    `candidates` times the words; each chooses an antecedent before it, or none. `singletons`: whether the training text marks
    chains of one mention.

    Differs: a word stands at its first token; the authors score spans of tokens. The authors (yuvalkirstain/s2e-coref) train
    mentions by the antecedents alone (`mentions: 0`); the cross-entropy of mentions is as in Maverick (Martinelli et al., 2024;
    SapienzaNLP/maverick-coref), which first chooses first words, while here all spans count. Bilinear forms start with a
    deviation of 1 / inputs, so that all pairs score about the same.
    """
    head = SpanHead(
        width=width, inner=inner, longest=longest, candidates=candidates, singletons=singletons, rare=mentions > 0,
        dropout=dropout, clock=clock,
    )
    return Coreference(head, set=set, mentions=mentions)
