"""The class of a record from all of its rows together, such as a sentence with each of two pictures (NLVR2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import initialise
from cloze.networks.blocks.projections import Across
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.choices import Normal
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import ClassHead, dense
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.objectives.summary import Read, read_texts, reading_of, records_of
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


class JointRows(Objective):
    """Sum over the records of the cross-entropy of their class, from scores of all rows of an `owner`.

    Every record has as many rows; `targets/<set>` (R,) is the same in all of them. Metric: `correct`.
    """

    def __init__(self, *, set: str, rows: int) -> None:
        super().__init__()
        self.set, self.rows = set, rows
        self.targets_field = f"targets/{set}"
        self.takes = frozenset({self.targets_field, "owner"})
        self.optional = frozenset({"block"})

    def count(self, batch: Batch) -> Tensor:
        """The records."""
        return torch.tensor(float(records_of(batch["owner"])))

    @abstractmethod
    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The scores of the classes of every record, (records, C)."""

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; no rows give a zero connected to the parameters."""
        targets = batch[self.targets_field][: len(batch["owner"])][:: self.rows].long()  # padding follows the targets
        total, correct = cross_entropy_sum(scores, targets, None)
        return Loss(total, {"correct": correct})

    def head_rows(self, batch: Batch) -> float:
        """One for every row."""
        return batch["owner"].shape[0]


class JointClassification(JointRows):
    """`JointRows` whose head reads the summaries of the rows side by side."""

    fittable = True

    def __init__(self, head: ClassHead, *, set: str, rows: int, reading: Read, pool: nn.Linear | None) -> None:
        super().__init__(set=set, rows=rows)
        self.head, self.pool, self.reading = head, pool, reading
        self.reads: tuple[str, ...] = (reading_of(reading),)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(records, C)."""
        texts = read_texts(states, batch, self.reading)
        texts = texts if self.pool is None else torch.tanh(self.pool(texts))
        scores: Tensor = self.head(texts.reshape(-1, self.rows * texts.shape[1]))
        return scores


@register("objective", "joint_classification")
def joint_classification(
    *,
    set: str = "label",
    classes: Count = 2,
    rows: Count = 2,
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> JointClassification:
    """Cross-entropy over `classes` of a record, from the summaries of its `rows` rows side by side.

    UNITER's form `paired` (ChenRocks/UNITER, `model/nlvr2.py`) has `pool`, a dense map and tanh for each row; LXMERT
    (airsplay/lxmert, `src/tasks/nlvr2_model.py`) a `transform` of both rows. Parameters, those that it has: `pool.*`,
    `head.dense.*`, `head.norm.*`, `head.output.*`.
    """
    row_width = 3 * width if reading == "concat" else width
    head = ClassHead(width=rows * row_width, classes=classes, transform=transform, dropout=Dropout(dropout, clock))
    return JointClassification(head, set=set, rows=rows, reading=reading, pool=dense(row_width, row_width) if pool else None)


class AttentionPool(nn.Module):
    """The mean of states (B, L, D) by the softmax of one energy ReLU(w · h + b) each; (B, D)."""

    def __init__(self, width: int, dropout: Dropout) -> None:
        super().__init__()
        self.energy, self.dropout = dense(width, 1), dropout

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """(B, L, D) to (B, D), of the states that are `real` (B, L)."""
        energies = at_least_float32(self.energy(states).squeeze(-1).relu()).masked_fill(~real, -torch.inf)
        shares = self.dropout(energies.softmax(-1)).to(states.dtype)
        return (shares[:, None] @ states).squeeze(1)


class PairHead(nn.Module):
    """Two sequences read each other, each is pooled, and both vectors are classified (UNITER's `paired-attn`).

    Parameters: the attention of the first to the second `first.*` and of the second to the first `second.*`, the map of what was
    read next to the states `join.*`, that of the pools `pool.*`, and `output.*`. Queries, keys and values start from Xavier's
    uniform distribution over the three maps together, all other maps from a normal distribution; biases are zero
    (ChenRocks/UNITER: `_reset_parameters` in `model/attention.py`, `init_weights` in `model/model.py`).
    """

    def __init__(self, *, width: int, heads: int, classes: int, dropout: float, clock: Clock) -> None:
        super().__init__()
        self.first, self.second = (
            Attention(width=width, heads=heads, projections=Across(), dropout=Dropout(dropout, clock)) for _ in range(2)
        )
        self.join, self.dropout = dense(2 * width, width), Dropout(dropout, clock)
        self.pool = AttentionPool(width, Dropout(dropout, clock))
        self.output = dense(2 * width, classes)
        initialise(self, Normal(std=0.02))
        bound = (6 / (width + 3 * width)) ** 0.5
        for attention in (self.first, self.second):
            for projection in (attention.query, attention.memory):
                nn.init.uniform_(projection.weight, -bound, bound)

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """Rows (2 B, L, D), the two of a record one after another, to (B, C)."""
        pair, shown = (states[::2], states[1::2]), (real[::2], real[1::2])
        pooled = []
        for attention, number, source in zip((self.first, self.second), (0, 1), (1, 0), strict=True):
            inputs = AttentionInputs(Visibility("mask", shown[source][:, None, None]), source=pair[source])
            attended = attention(pair[number], inputs)
            joined = self.dropout(self.join(torch.cat([attended, pair[number]], -1)).relu())
            pooled.append(self.pool(joined, shown[number]))
        scores: Tensor = self.output(torch.cat(pooled, -1))
        return scores


class PairedAttention(JointRows):
    """`JointRows` whose head reads the states of the tokens and of the items `items` of both rows."""

    def __init__(self, head: PairHead, *, set: str, items: str) -> None:
        super().__init__(set=set, rows=2)
        self.head, self.lengths = head, f"item_length/{items}"
        self.takes |= {self.lengths}
        self.reads: tuple[str, ...] = ("hidden", "item_hidden")

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(records, C)."""
        text, items = states["hidden"], states["item_hidden"]
        if text.shape[-1] != items.shape[-1]:
            raise RecipeError(
                f"paired_attention: the states of items have {items.shape[-1]} numbers and those of tokens {text.shape[-1]}, and "
                "they stand in one row.\n  Use joint_classification, or a network whose states are equally wide."
            )
        everywhere = torch.ones(text.shape[:2], dtype=torch.bool, device=text.device)
        real = batch["block"] > 0 if "block" in batch else everywhere
        is_item = torch.arange(items.shape[1], device=text.device) < batch[self.lengths][:, None]
        scores: Tensor = self.head(torch.cat([text, items], 1), torch.cat([real, is_item], 1))
        return scores


@register("objective", "paired_attention")
def paired_attention(
    *,
    set: str = "label",
    classes: Count = 2,
    items: str = "regions",
    heads: Count = 12,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> PairedAttention:
    """Cross-entropy over `classes` of a record with two rows of tokens and items, which read each other by attention of `heads`
    heads before each is pooled (Chen et al., UNITER, 2020, §4.2; ChenRocks/UNITER, `UniterForNlvr2PairedAttn`)."""
    head = PairHead(width=width, heads=heads, classes=classes, dropout=dropout, clock=clock)
    return PairedAttention(head, set=set, items=items)
