"""Dependency trees: the head of each word and the relation to it, by deep biaffine attention (Dozat and Manning, 2017)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count, Width
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.heads import dense
from cloze.objectives.labels.chain import chains_of
from cloze.objectives.objective import SEQUENCES, Loss, TargetsAtPositions, at_least_float32
from cloze.registry import Given, register

_LEAK = 0.1  # of the leaky rectifier


class ArcHead(nn.Module):
    """Four views of every word, as dependent and as head, for arcs and for relations, and the bilinear scores of pairs.

    Parameters: `root` (D), the state of the root; `views.*`; `arc` (A + 1, A); `relation` (C, R + 1, R + 1).
    """

    def __init__(
        self, *, width: int, classes: int, arc_width: int, relation_width: int, dropout: float, clock: Clock
    ) -> None:
        super().__init__()
        self.sizes = (arc_width, arc_width, relation_width, relation_width)
        self.root = nn.Parameter(torch.zeros(width))
        self.views = dense(width, sum(self.sizes))
        self.states_dropout, self.views_dropout = Dropout(dropout, clock), Dropout(dropout, clock)
        self.arc = nn.Parameter(torch.zeros(arc_width + 1, arc_width))
        self.relation = nn.Parameter(torch.zeros(classes, relation_width + 1, relation_width + 1))
        nn.init.normal_(self.root, std=0.02)

    def forward(self, states: Tensor) -> Tensor:
        """States (B, L, D) to views (B, L, V)."""
        views: Tensor = self.views_dropout(F.leaky_relu(self.views(self.states_dropout(states)), _LEAK))
        return views

    def arcs(self, views: Tensor, sizes: Tensor) -> Tensor:
        """(N, T, T + 1): the score of each head (the root first) for each word, from views (N, T, V) of sentences of `sizes`
        words.

        A word cannot be its own head, and positions after the sentence are no heads: they score -inf.
        """
        dependent, head = self._parts(views)[:2]
        head = torch.cat([self._root(views)[0].expand(len(views), 1, -1), head], 1)
        # (N, T, A + 1) by (A + 1, A) by (N, A, T + 1).
        scores = _with_one(dependent) @ self.arc.to(views.dtype) @ head.transpose(1, 2)
        column = torch.arange(scores.shape[2], device=views.device)
        # (N, 1, T + 1): after the sentence; (T, T + 1): the word itself, which is head number word + 1.
        absent = (column > sizes[:, None])[:, None] | (column == column[1:, None])
        return scores.masked_fill(absent, -torch.inf)

    def relations(self, views: Tensor, heads: Tensor) -> Tensor:
        """(N, T, C): the score of each relation for each word and its head (N, T), 0 for the root."""
        dependent, head = self._parts(views)[2:]
        head = torch.cat([self._root(views)[1].expand(len(views), 1, -1), head], 1)
        chosen = head.gather(1, heads[:, :, None].expand(-1, -1, head.shape[2]))  # (N, T + 1, R) to (N, T, R)
        return torch.einsum("nti,cij,ntj->ntc", _with_one(dependent), self.relation.to(views.dtype), _with_one(chosen))

    def _parts(self, views: Tensor) -> tuple[Tensor, ...]:
        return views.split(self.sizes, dim=-1)

    def _root(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The root as a head, of arcs and of relations."""
        views = F.leaky_relu(F.linear(self.root, self.views.weight, self.views.bias), _LEAK).to(like.dtype)
        _, arc, _, relation = self._parts(views)
        return arc, relation


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones((*x.shape[:-1], 1))], -1)


class ArcPrediction(TargetsAtPositions):
    """Sum over words of the cross-entropies of their head, `targets/<heads>`, and of the relation to it, `targets/<set>`.

    The targets of a row are the words of one sentence, in order. The scores are the views (M, V) of the words, from which
    `ArcHead` scores pairs. Metric `correct`: the words whose highest-scoring head is right, without a search for a tree.
    """

    head: ArcHead
    by_row = True

    def __init__(self, head: ArcHead, *, set: str, heads: str) -> None:
        super().__init__(set=set)
        self.head = head
        self.heads = f"targets/{heads}"
        self.reads: tuple[str, ...] = ("hidden",)
        self.takes |= {self.heads}
        self.optional |= SEQUENCES

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, V)."""
        views: Tensor = self.head(states["hidden"])
        return views.flatten(0, 1).index_select(0, batch[self.positions_field].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32 or float64; words of weight 0 may be heads, but have no target."""
        views = at_least_float32(scores)
        positions = batch[self.positions_field].long()
        if not len(positions):
            return Loss(sum((part.sum() for part in self.parameters()), views.sum()) * 0.0, {"correct": views.sum() * 0.0})
        real = torch.cat([positions.new_ones(1) > 0, positions[1:] > positions[:-1]])  # targets that pad a batch have position 0
        weights = batch[self.weights_field][real] if self.weights_field in batch else torch.ones_like(positions[real])
        # From words (M, …) to sentences (N, T, …): `laid` has V columns; the others are (N, T).
        chains = chains_of(positions[real] // sequence(batch).shape[1])
        laid = chains.laid(views[real])
        heads, relations = (chains.laid(batch[name][real].long()) for name in (self.heads, self.targets_field))
        counted = chains.laid(weights.to(views.dtype))
        arcs = self.head.arcs(laid, chains.sizes)  # (N, T, T + 1)
        losses = [_entropies(arcs, heads), _entropies(self.head.relations(laid, heads), relations)]
        inside = torch.arange(laid.shape[1], device=laid.device) < chains.sizes[:, None]
        total = sum(torch.where(inside & (counted > 0), entropies * counted, 0.0).sum() for entropies in losses)
        right = torch.where(inside, (arcs.detach().argmax(2) == heads).to(counted.dtype) * counted, 0.0)
        assert isinstance(total, Tensor)
        return Loss(total, {"correct": right.sum()})


def _entropies(scores: Tensor, targets: Tensor) -> Tensor:
    """(N, T) from scores (N, T, C); impossible targets get a finite loss that is not counted."""
    losses = -scores.log_softmax(2).gather(2, targets[:, :, None]).squeeze(2)
    return torch.where(losses.isfinite(), losses, 0.0)


@register("objective", "arcs")
def arcs(
    *,
    classes: Count = 2,
    set: str = "label",
    heads: str = "head",
    arc_width: Width = 500,
    relation_width: Width = 100,
    dropout: BelowOne = 0.33,
    width: Given[int],
    clock: Given[Clock],
) -> ArcPrediction:
    """The head of each word and the relation to it (Dozat and Manning, 2017, §2.2; widths and dropout are those of §3.1).

    A linear map and a leaky rectifier make four views of a word, as dependent and as head, of `arc_width` or `relation_width`; a
    bilinear form scores pairs of words. The root has a state of its own. The forms start at 0, so that all heads and relations
    are equally likely. `dropout` acts on the states and on the views.

    Differs: every number is dropped independently; the authors drop the same numbers in all words of a sentence.
    """
    head = ArcHead(
        width=width, classes=classes, arc_width=arc_width, relation_width=relation_width, dropout=dropout, clock=clock
    )
    return ArcPrediction(head, set=set, heads=heads)
