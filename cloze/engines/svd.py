"""The engine `svd`: a weighted matrix of counts factorised by subspace iteration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloze.batching import Cursor
from cloze.corpus.counting.cooccurrences import BoundCooccurrences
from cloze.corpus.counting.term_documents import BoundTermDocuments
from cloze.engines.conditions import Single, is_for, single, unlike
from cloze.engines.singular import Singular, Sparse, Subspace
from cloze.errors import RunError
from cloze.networks.static.word_vectors import WordVectors
from cloze.objectives import Loss
from cloze.objectives.static.factorisation import Factorisation
from cloze.registry import register
from cloze.training.engine import ProgressUnit, Steps
from cloze.training.run import Run

_SETTLED = 1e-6  # relative change of the singular values below which a further pass changes nothing


@register("engine", "svd")
class FactoriseEngine:
    """Solves `factorisation` of `cooccurrences` or `term_documents` for `word_vectors`, without gradient, rate or optimizer.

    A step is a pass over the whole matrix, whatever `training.batch` says, and counts as an epoch. 300 dimensions of the counts
    of 3,000 words converge in forty passes; after eight, singular values are up to 3 % off. The loss is the squared error over
    the whole matrix, zeros included, per cell or per document. The matrix stays in memory, about sixteen bytes per cell. Needs
    only torch, and trains on any device.
    """

    name = "svd"
    cpu_only = False

    def meant_for(self, run: Run) -> bool:
        """Whether the objective is a factorisation."""
        return is_for(run, Factorisation)

    def fits(self, run: Run) -> str:
        """Why this engine cannot train the run; empty if it can."""
        cells = unlike(run, BoundCooccurrences, Factorisation, any_device=True)
        documents = unlike(run, BoundTermDocuments, Factorisation, any_device=True)
        if cells and documents:
            return cells if "objective" in cells else documents
        objective: Any = next(iter(run.step.objectives.values()))
        network: Any = next(iter(run.step.networks.values()))
        if objective.of != ("cells" if documents else "documents"):
            return f"the objective factorises {objective.of}, which the source does not count"
        return "the network has biases" if network.bias is not None else ""

    def require(self, run: Run) -> str:
        """No hint: only torch is needed."""
        return ""

    def begin(self, steps: Steps) -> FactoriseTrainer:
        """Read the matrix and start."""
        return FactoriseTrainer(steps)


class FactoriseTrainer:
    """A factorisation at work. Every step leaves the best vectors so far in the network."""

    unit = ProgressUnit("cells")

    def __init__(self, steps: Steps) -> None:
        setup = single(steps.run)
        assert isinstance(setup, Single)  # or the engine would not fit
        self.steps = steps
        self.objective: Factorisation = setup.objective
        self.network: WordVectors = setup.network
        self.matrix = self._read(setup.feed.source)
        self.rows = len(self.matrix) if self.objective.of == "cells" else self.matrix.shape[1]
        begin = self.matrix.down.times(self.objective.basis().detach()) if steps.done else None
        rank = min(int(self.network.width), *self.matrix.shape)
        self.subspace = Subspace(self.matrix, rank, seed=steps.run.seed, begin=begin)

    def _read(self, source: Any) -> Sparse:
        """The weighted matrix. The objective also learns the sums over the whole matrix that it needs."""
        device, size = self.steps.device, self.network.vocab_size
        if isinstance(source, BoundTermDocuments):
            entries = source.counts()
            rows, columns, counts = (_tensor(array, device) for array in (entries.terms, entries.documents, entries.counts))
            self.objective.learn_entropy(rows, counts, len(source.start))
            return Sparse(rows, columns, self.objective.values(counts, rows), (size, len(source.start)))
        cells = source.cells
        self.objective.learn_sums(_tensor(cells.row_sums, device), _tensor(cells.column_sums, device))
        rows, columns, counts = (_tensor(array, device) for array in (cells.rows, cells.columns, cells.counts))
        values = self.objective.values(counts, rows, columns)
        mask = values != 0
        return Sparse(rows[mask], columns[mask], values[mask], (size, size))

    @torch.no_grad()
    def train(self) -> None:
        """One pass."""
        decomposition = self.subspace.improve()
        converged = self._converged(decomposition)
        self._keep(decomposition)

        lost = max(self.matrix.squares - float(decomposition.values.double().square().sum()), 0.0)
        cells = float(len(self.matrix))
        flops = 4 * cells * self.subspace.right.shape[1]
        after = Cursor(self.steps.cursor.epoch + 1, 0)
        self.steps.count(after, tokens=cells, examples=float(self.rows), flops=flops)
        if converged:
            self.steps.finish()
        loss = Loss(torch.tensor(lost), {"explained": torch.tensor(self.matrix.squares - lost)})
        self.steps.report(loss, targets=float(self.rows), tokens=cells, flops=flops)

    def sync_parameters(self) -> None:
        """Nothing to do: every pass writes into the parameters."""

    def _converged(self, factors: Singular) -> bool:
        """Whether the last pass left the singular values as they were."""
        old = self.objective.get_buffer("spectrum")[: len(factors.values)]
        return bool(((factors.values - old).abs() <= _SETTLED * factors.values.max()).all())

    def _keep(self, factors: Singular) -> None:
        """Write vectors and singular values into network and objective; dimensions beyond the rank of the matrix stay zero."""
        if not bool(torch.isfinite(factors.values).all()):
            raise RunError("svd: the singular values are not finite. Are there counts of zero in the matrix?")
        size, power = len(factors.values), self.objective.power
        # Values that are only rounding errors have vectors that are only noise.
        real = factors.values > factors.values.max() * max(self.matrix.shape) * torch.finfo(factors.values.dtype).eps
        values = torch.where(real, factors.values, 0.0)
        spectrum = self.objective.get_buffer("spectrum")
        spectrum.zero_()
        spectrum[:size] = values
        sides = [(self.network.embeddings, factors.left, power, self.matrix.across)]
        if self.network.contexts is not None:
            sides.append((self.network.contexts, factors.right, power, self.matrix.down))
        for table, vectors, exponent, entries in sides:
            mask = entries.starts.diff()[:, None] > 0  # words without a cell, such as special tokens, have no vector
            table.weight.zero_()
            table.weight[:, :size] = torch.where(mask, vectors * torch.where(real, values.pow(exponent), 0.0), 0.0)


def _tensor(array: Any, device: torch.device) -> Tensor:
    """A tensor with its own memory, since the array may be a read-only map; ids as int64, for indexing."""
    tensor = torch.from_numpy(array.copy())
    return (tensor.long() if not tensor.is_floating_point() else tensor).to(device)
