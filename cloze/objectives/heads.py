"""Heads: the small networks between a state and the classes."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law, draw
from cloze.networks.cost import Operations, SequenceSize
from cloze.objectives.transforms import Nonlinearity, Transform, transformed

#: The standard deviation of a standard normal distribution truncated at two standard deviations.
CUT = 0.8796256610342398


def dense(inputs: int, outputs: int, init_std: float = 0.02, *, bias: bool = True, initial: Law = "truncated") -> nn.Linear:
    """A linear map with normal weights, by default truncated as in BERT's heads, and a bias of zero."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    draw(linear.weight, initial, init_std)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def dense_and_norm(width: int, transform: Transform, initial: Law = "truncated") -> tuple[nn.Linear | None, nn.LayerNorm | None]:
    """The dense map of a transform and the norm behind it, if it has one; nothing without a transform."""
    if transform is None:
        return None, None
    epsilon, biases, inner = transform.norm_epsilon, transform.biases, transform.times * width
    first = dense(width, inner, bias=biases, initial=initial)
    return first, None if epsilon is None else nn.LayerNorm(inner, eps=epsilon, bias=biases)


class ClassHead(nn.Module):
    """[dense, transform, [norm,]] dropout, output: (M, D) to (M, classes). With `pool` the dense map is named `pool`.

    Without a `transform` there is neither a dense map nor a norm. With `pooled`, a dense map `pool` and tanh come before all.
    """

    def __init__(
        self, *, width: int, classes: int, transform: Transform, dropout: Dropout, pool: bool = False, pooled: bool = False,
        initial: Law = "truncated",
    ) -> None:
        super().__init__()
        self.transform = None if transform is None else transform.kind
        first, self.norm = dense_and_norm(width, transform, initial)
        further = dense(width, width, initial=initial) if pooled and not pool else None
        self.dense, self.pool = (None, first) if pool else (first, further)
        self.dropout = dropout
        self.output = dense(width if transform is None else transform.times * width, classes, initial=initial)

    @property
    def first(self) -> nn.Linear | None:
        """The dense map, if there is one."""
        return self.dense or self.pool

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) to (M, classes)."""
        first = self.first
        if self.pool is not None and first is not self.pool:
            x = torch.tanh(self.pool(x))
        if first is not None and self.transform is not None:
            x = transformed(first(x), self.transform)
        x = x if self.norm is None else self.norm(x)
        return self.output(self.dropout(x))


class TurnedHead(nn.Module):
    """[dense, transform, [norm,]] times the transpose of a linear map of the network, plus a bias: (M, D) to (M, C).

    `source` (C to D) belongs to the network, which stores it.
    """

    def __init__(self, source: nn.Linear, transform: Transform, initial: Law = "truncated") -> None:
        super().__init__()
        self.transform = None if transform is None else transform.kind
        self.dense, self.norm = dense_and_norm(source.out_features, transform, initial)
        self.bias = nn.Parameter(torch.zeros(source.in_features))
        self._tied = (source,)

    @property
    def weight(self) -> Tensor:
        """(D, C)."""
        return self._tied[0].weight

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The products of rows with its own map and the network's."""
        counted.add(size, self.dense, self.norm)
        counted.add_weight_products(size.tokens * self.weight.numel(), trained=self.weight.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) to (M, C)."""
        if self.dense is not None and self.transform is not None:
            x = transformed(self.dense(x), self.transform)
        x = x if self.norm is None else self.norm(x)
        return F.linear(x, self.weight.t(), self.bias)


class VocabularyHead(nn.Module):
    """[dense, transform, norm,] times the vocabulary table, plus a bias: (M, D) to (M, V).

    `table` is an embedding of another module to tie to. It is not registered here: a tied weight is stored once, by the
    network that owns it. A `widened` table has `extra` (V, D - E), further numbers for each id, behind its own, so that rows are
    as wide as x. `scale` divides the rows by the root of the table's width before the product (T5's tied table). With
    `biases: false` the dense map and its norm have no biases, with `biases: map` the norm has no weights. All numbers of its own
    start with standard deviation `init_std`, truncated at two, or not with `initial: normal`; with `initial: fan_in` untied rows
    start with 1/√E after truncation (`logits_dense` in google-research/t5x).
    """

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        transform: Nonlinearity | None,
        table: nn.Embedding | None,
        bias: bool,
        norm_epsilon: float,
        widened: bool = False,
        scale: bool = False,
        biases: bool | Literal["map"] = True,
        init_std: float = 0.02,
        initial: Law | Literal["fan_in"] = "truncated",
    ) -> None:
        super().__init__()
        inner = width if table is None or widened else table.embedding_dim
        law: Law = "normal" if initial == "normal" else "truncated"
        if transform is None and inner != width:
            raise ValueError(f"a head without a transform cannot go from width {width} to a table of width {inner}")
        self.transform = transform
        self.scale = inner**-0.5 if scale else 1.0
        self.dense = dense(width, inner, init_std, bias=bool(biases), initial=law) if transform is not None else None
        self.norm = None
        if transform is not None:
            self.norm = nn.LayerNorm(inner, eps=norm_epsilon, bias=biases is True, elementwise_affine=biases != "map")
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.output = None
        if table is None:
            self.output = nn.Linear(inner, vocab_size, bias=False)
            draw(self.output.weight, law, inner**-0.5 / CUT if initial == "fan_in" else init_std)
        self.extra = None
        if table is not None and inner > table.embedding_dim:
            self.extra = nn.Parameter(torch.empty(vocab_size, inner - table.embedding_dim))
            draw(self.extra, law, init_std)
        self._tied = (table,)

    @property
    def weight(self) -> Tensor:
        """The vocabulary's rows, (V, E): the tied table's, those with further numbers behind them, or its own."""
        table = self._tied[0]
        if table is not None:
            return table.weight if self.extra is None else torch.cat([table.weight, self.extra], dim=1)
        assert self.output is not None  # built whenever there is no table
        return self.output.weight

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The products of rows with the map and the vocabulary, tied or not."""
        counted.add(size, self.dense, self.norm)
        counted.add_weight_products(size.tokens * self.weight.numel(), trained=self.weight.requires_grad)

    def transform_rows(self, x: Tensor) -> Tensor:
        """(M, D) to (M, E): everything before the vocabulary."""
        if self.dense is not None and self.norm is not None and self.transform is not None:
            x = self.norm(transformed(self.dense(x), self.transform))
        return x if self.scale == 1.0 else x * self.scale

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) to (M, V)."""
        return F.linear(self.transform_rows(x), self.weight, self.bias)
