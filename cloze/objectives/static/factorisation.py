"""Factorise a weighted matrix of counts into two thin ones: PPMI with singular vectors, and latent semantic analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import NonNegative, Positive
from cloze.errors import RecipeError
from cloze.objectives.objective import Loss, Objective
from cloze.registry import Given, register

Weighting = Literal["ppmi", "log_entropy", "log", "count"]


@register("objective", "factorisation")
class Factorisation(Objective):
    """The squared error of a matrix M of weighted counts and its approximation of rank `width`.

    `ppmi` (Levy, Goldberg and Dagan, 2015): max(0, ln(x · N / (X_i · X'_j)) - ln `shift`), where contexts count by
    X_j^`smoothing`. `log_entropy` (Dumais, 1991): ln(1 + x) · (1 + Σ_d p ln p / ln D), p the document's share of
    the word. `log`: ln(1 + x). `count`: x.

    Of `cells` it reads `association`: (w_i · c_j - M_ij)², one count per cell; zeros of the matrix are skipped. Of
    `documents` it reads `hidden` at `positions/main`: |x - U Uᵀ x|² of each document's weighted counts x, whole, where U is
    the table without the singular values; one count per document. Default: documents for log_entropy, otherwise cells.

    The engine `svd` solves this at once: table U S^`power` and contexts V S^`power`, whose sum is an option of the authors' code
    (hyperwords, `representation_factory.py`); w · c approximates M where the power is 0.5. Powers of 0 and 0.5 are good, 1 is
    worse for words (ibid.). Statistics of the whole matrix and the singular values are buffers:
    `row_factor`, `row_offset`, `column_offset` (V,) and `spectrum` (width,). The training loop cannot compute them.
    """

    def __init__(
        self, *, weighting: Weighting = "ppmi", of: Literal["cells", "documents"] | None = None, shift: Positive = 1.0,
        smoothing: NonNegative = 0.75, power: float = 0.5, width: Given[int], vocab_size: Given[int],
        table: Given[nn.Embedding | None] = None,
    ) -> None:
        super().__init__()
        self.weighting, self.shift, self.smoothing, self.power = weighting, shift, smoothing, power
        self.of = of or ("documents" if weighting == "log_entropy" else "cells")
        _check(weighting, self.of, shift, smoothing, power)
        self.reads = ("association",) if self.of == "cells" else ("hidden",)
        documents = {"targets/main", "positions/main", "weights/main"}
        self.takes = frozenset({"cell", "cell_count"} if self.of == "cells" else documents)
        self.table = [table]  # in a list: the table's parameters are the network's
        self.head = nn.Identity()
        self.register_buffer("row_factor", torch.ones(vocab_size))
        self.register_buffer("row_offset", torch.zeros(vocab_size))
        self.register_buffer("column_offset", torch.full((vocab_size,), math.log(2.0)))
        self.register_buffer("spectrum", torch.ones(width))
        self.register_buffer("known", torch.zeros((), dtype=torch.bool))

    def count(self, batch: Batch) -> Tensor:
        """The number of cells, or of documents with a word."""
        rows = batch["cell_count"] if self.of == "cells" else (batch["positions/main"] // sequence(batch).shape[1]).unique()
        return torch.tensor(float(len(rows)))

    def values(self, counts: Tensor, rows: Tensor, columns: Tensor | None = None) -> Tensor:
        """The weighted value of each count, in the dtype of the counts; `columns` are needed for `ppmi` alone."""
        if self.weighting == "count":
            return counts
        if self.weighting != "ppmi" or columns is None:
            return counts.log1p() * self._buffer("row_factor", counts)[rows]
        offsets = self._buffer("row_offset", counts)[rows] + self._buffer("column_offset", counts)[columns]
        return (counts.log() + offsets - math.log(self.shift)).clamp(min=0)

    @torch.no_grad()
    def learn_sums(self, row_sums: Tensor, column_sums: Tensor) -> None:
        """Store what `ppmi` needs of the whole matrix: the sums of its rows and columns (V,), zero where they are empty."""
        smooth = column_sums.double().pow(self.smoothing) * (column_sums > 0)
        offset = smooth.sum().log() - smooth.log()
        for name, value, mask in (("row_offset", -row_sums.double().log(), row_sums > 0),
                                  ("column_offset", offset, column_sums > 0)):
            self.get_buffer(name).copy_(torch.where(mask, value, 0.0))
        self.get_buffer("known").fill_(True)

    @torch.no_grad()
    def learn_entropy(self, rows: Tensor, counts: Tensor, documents: int) -> None:
        """Store 1 + Σ p ln p / ln D of every word, from the counts (N,) of all documents in words `rows` (N,)."""
        size = len(self.get_buffer("row_factor"))
        counts = counts.double()
        total = torch.zeros(size, dtype=torch.float64, device=counts.device).index_add(0, rows, counts)
        share = counts / total[rows]
        entropy = torch.zeros_like(total).index_add(0, rows, share * share.log())
        factor = 1 + entropy / math.log(documents) if documents > 1 else torch.ones_like(total)
        self.get_buffer("row_factor").copy_(factor if self.weighting == "log_entropy" else torch.ones_like(factor))
        self.get_buffer("known").fill_(True)

    def basis(self) -> Tensor:
        """U (V, width): the table without the singular values; zero where a singular value is zero."""
        table = self.table[0]
        if table is None:
            raise RecipeError("factorisation: documents need a network with a token table, such as word_vectors without n-grams.")
        scale = self._buffer("spectrum", table.weight).pow(self.power)
        return table.weight * torch.where(scale > 0, 1 / scale, 0.0)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The associations (P,), or the rows of U at the positions (M, width)."""
        if self.training and not bool(self.get_buffer("known")):
            raise RecipeError(
                "factorisation: its weights depend on the whole matrix, which the training loop does not see. "
                "Write `training: {engine: auto}`; the engine `svd` then solves it, in one process."
            )
        if self.of == "cells":
            if self.power != 0.5:
                raise RecipeError(
                    f"factorisation: power is {self.power}; w · c approximates the matrix, and has a loss, only with 0.5."
                )
            return states["association"]
        scale = self._buffer("spectrum", states["hidden"]).pow(self.power)
        rows = states["hidden"].flatten(0, 1)[batch["positions/main"]]
        return rows * torch.where(scale > 0, 1 / scale, 0.0)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The squared errors of the cells, or of the documents. Metric `explained`: the part of the squares that is explained."""
        output = scores if scores.dtype == torch.float64 else scores.float()
        if self.of == "cells":
            value = self.values(batch["cell_count"].to(output.dtype), *batch["cell"].unbind(1))
            total, square_sum = (output - value).square().sum(), value.square().sum()
        else:
            value = self.values(batch["weights/main"].to(output.dtype), batch["targets/main"])
            document = batch["positions/main"] // sequence(batch).shape[1]
            projections = output.new_zeros(len(sequence(batch)), output.shape[1]).index_add(0, document, output * value[:, None])
            basis = self.basis().to(output.dtype)
            square_sum = value.square().sum()
            total = square_sum - 2 * projections.square().sum() + ((projections @ (basis.T @ basis)) * projections).sum()
        return Loss(total, {"explained": (square_sum - total).detach()})

    def fold_in(self, counts: Tensor, terms: Tensor) -> Tensor:
        """The vector (width,) of a new document of these words and counts: qᵀ U S⁻¹, the weighted counts q."""
        spectrum = self._buffer("spectrum", counts)
        inverse = torch.where(spectrum > 0, 1 / spectrum, 0.0)
        return self.values(counts, terms) @ self.basis()[terms].to(counts.dtype) * inverse

    def _buffer(self, name: str, like: Tensor) -> Tensor:
        return self.get_buffer(name).to(like.dtype)


def _check(weighting: str, of: str, shift: float, smoothing: float, power: float) -> None:
    if weighting == "ppmi" and of == "documents":
        raise RecipeError("factorisation: ppmi is of cells; for documents write `weighting: log_entropy`, `log` or `count`.")
    if weighting == "log_entropy" and of == "cells":
        raise RecipeError("factorisation: log_entropy is of documents; for cells write `weighting: ppmi`, `log` or `count`.")
    if not shift > 0:
        raise RecipeError(f"factorisation.shift: {shift}; expected a number above 0, 1 for no shift.")
    if not 0 < smoothing <= 1:
        raise RecipeError(f"factorisation.smoothing: {smoothing}; expected an exponent above 0 and at most 1 (no smoothing).")
    if not 0 <= power <= 1:
        raise RecipeError(f"factorisation.power: {power}; expected an exponent of the singular values from 0 to 1.")
