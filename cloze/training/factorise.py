"""The engine `svd`: a weighted matrix of counts factorised by subspace iteration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloze.batching import Cursor
from cloze.corpus.cooccurrences import BoundCooccurrences
from cloze.corpus.term_documents import BoundTermDocuments
from cloze.errors import RunError
from cloze.networks.word_vectors import WordVectors
from cloze.objectives import Loss
from cloze.objectives.factorisation import Factorisation
from cloze.registry import register
from cloze.training.cell_engine import unlike
from cloze.training.interrupt import Interrupt
from cloze.training.lone import Lone, lone
from cloze.training.run import Run
from cloze.training.session import Session
from cloze.training.singular import Singular, Sparse, Subspace

_SETTLED = 1e-6  # relative change of the singular values below which further passes change nothing


@register("engine", "svd")
class FactoriseEngine:
    """Solves `factorisation` over `cooccurrences` or `term_documents` into `word_vectors`: no gradient, no rate, no optimiser.

    A step is a pass over the whole matrix, whatever `training.batch` says, and counts as an epoch. Forty settle 300 dimensions
    of counts of 3,000 words; after eight of them singular values are up to 3 % off. The loss is the squared error of the whole
    matrix, zeros included, per cell or per document. The matrix is held in memory, about sixteen bytes for each cell. Needs no
    package but torch, on any device.
    """

    name = "svd"
    processor_only = False

    def meant_for(self, run: Run) -> bool:
        """Whether it is a factorisation."""
        found = lone(run)
        return not isinstance(found, str) and isinstance(found.objective, Factorisation)

    def fits(self, run: Run) -> str:
        """Why this run cannot be trained so; empty if it can."""
        cells = unlike(run, BoundCooccurrences, Factorisation, anywhere=True)
        documents = unlike(run, BoundTermDocuments, Factorisation, anywhere=True)
        if cells and documents:
            return cells if "objective" in cells else documents
        objective: Any = next(iter(run.step.objectives.values()))
        network: Any = next(iter(run.step.networks.values()))
        if objective.of != ("cells" if documents else "documents"):
            return f"the objective is of {objective.of}, the source of the other"
        return "the network has biases" if network.bias is not None else ""

    def require(self, run: Run) -> str:
        """Nothing but torch is needed."""
        return ""

    def begin(self, session: Session) -> FactoriseWorker:
        """The worker of a session: reads the matrix."""
        return FactoriseWorker(session)


class FactoriseWorker:
    """A factorisation under way. Every step leaves the best table so far in the network."""

    def __init__(self, session: Session) -> None:
        found = lone(session.run)
        assert isinstance(found, Lone)  # or the engine would not fit
        self.session, self.entry = session, found.entry
        self.objective_name = session.name(self.entry, found.weighted.name)
        self.objective: Factorisation = found.objective
        self.network: WordVectors = found.network
        self.matrix = self._read(found.feed.source)
        self.rows = len(self.matrix) if self.objective.of == "cells" else self.matrix.shape[1]
        begin = self.matrix.down.times(self.objective.basis().detach()) if session.step else None
        rank = min(int(self.network.width), *self.matrix.shape)
        self.subspace = Subspace(self.matrix, rank, seed=session.run.seed, begin=begin)

    def _read(self, source: Any) -> Sparse:
        """The weighted matrix; what the objective needs to know of the whole of it, it is told."""
        device, size = self.session.ranks.device, self.network.vocab_size
        if isinstance(source, BoundTermDocuments):
            found = source.counts()
            rows, columns, counts = (_tensor(array, device) for array in (found.terms, found.documents, found.counts))
            self.objective.learn_entropy(rows, counts, len(source.start))
            return Sparse(rows, columns, self.objective.values(counts, rows), (size, len(source.start)))
        cells = source.cells
        self.objective.learn_sums(_tensor(cells.row_sums, device), _tensor(cells.column_sums, device))
        rows, columns, counts = (_tensor(array, device) for array in (cells.rows, cells.columns, cells.counts))
        values = self.objective.values(counts, rows, columns)
        kept = values != 0
        return Sparse(rows[kept], columns[kept], values[kept], (size, size))

    @torch.no_grad()
    def step(self, interrupt: Interrupt) -> None:
        """One pass, and whatever is due after it."""
        session = self.session
        if not session.ready(interrupt):
            return
        found = self.subspace.turn()
        settled = self._settled(found)
        self._keep(found)

        lost = max(self.matrix.squares - float(found.values.double().square().sum()), 0.0)
        cells = float(len(self.matrix))
        flops = 4 * cells * self.subspace.right.shape[1]
        after = Cursor(session.progress.cursors[self.entry].epoch + 1, 0)
        before, share = session.advance({self.entry: after}, tokens=cells, examples=float(self.rows), flops=flops)
        budget = session.run.budget
        if settled and budget.kind == "seconds":  # nothing is left to do with the rest of the time
            session.progress.spent.seconds, session.progress.share = budget.amount, 1.0
            share = 1.0
        explained = torch.tensor(self.matrix.squares - lost)
        session.meter.add_losses({self.objective_name: Loss(torch.tensor(lost), {"explained": explained})})
        session.meter.add_step(
            session.step, torch.tensor(lost).sqrt(), {self.objective_name: float(self.rows)}, {self.objective_name: 1.0},
            tokens=cells, cells=cells, flops=flops,
        )
        session.attend(before, share)

    def settle(self) -> None:
        """Nothing: every pass writes into the parameters."""

    def _settled(self, found: Singular) -> bool:
        """Whether the singular values are as they were after the pass before."""
        old = self.objective.get_buffer("spectrum")[: len(found.values)]
        return bool(((found.values - old).abs() <= _SETTLED * found.values.max()).all())

    def _keep(self, found: Singular) -> None:
        """Write vectors and singular values into network and objective; what the matrix has no rank for stays zero."""
        if not bool(torch.isfinite(found.values).all()):
            raise RunError("svd: the singular values are not finite. Are there counts of zero in the matrix?")
        size, power = len(found.values), self.objective.power
        # Values that are nothing but rounding have vectors that are nothing but noise.
        real = found.values > found.values.max() * max(self.matrix.shape) * torch.finfo(found.values.dtype).eps
        values = torch.where(real, found.values, 0.0)
        spectrum = self.objective.get_buffer("spectrum")
        spectrum.zero_()
        spectrum[:size] = values
        sides = [(self.network.embeddings, found.left, power, self.matrix.across)]
        if self.network.contexts is not None:
            sides.append((self.network.contexts, found.right, 1 - power, self.matrix.down))
        for table, vectors, exponent, entries in sides:
            there = entries.starts.diff()[:, None] > 0  # words without a cell, roles among them, have no vector at all
            table.weight.zero_()
            table.weight[:, :size] = torch.where(there, vectors * torch.where(real, values.pow(exponent), 0.0), 0.0)


def _tensor(array: Any, device: torch.device) -> Tensor:
    """A tensor of its own over what may be a read-only map; ids as torch's indexing wants them."""
    made = torch.from_numpy(array.copy())
    return (made.long() if not made.is_floating_point() else made).to(device)
