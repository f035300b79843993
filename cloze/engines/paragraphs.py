"""Vectors of new texts under `paragraph_vectors`: each is trained for its text while words and output rows stay.

`cloze.checkpoint.build` makes an `Inferred` when a checkpoint is opened; the network calls it for texts without a paragraph
(Le and Mikolov, 2014, §2.2, the inference stage).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze import kernels, rng
from cloze.batch import Batch
from cloze.batching.collate import collate, one_per_row
from cloze.engines.lock_free import described
from cloze.exercises.noise.subsample import Subsample
from cloze.exercises.targets.predict import Predict
from cloze.exercises.targets.windows import WindowPairs
from cloze.kernels.vectors.arguments import Sigmoid, ThreadBuffers, TrainingLines, aligned, padded
from cloze.networks.static.paragraph_vectors import ParagraphVectors
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.negative_sampling import NegativeSampling
from cloze.rows import Rows

_ONE = Lock()
_CLIP = 20.0  # the longest gradient of a vector in a step of the loop, as `row_clip` of the recipes


class Inferred:
    """Trains vectors for texts: in compiled code word by word, without numba in the loop's way, a step per pass.

    edit, keep: the edits that ask for words and that drop some; rates: the learning rate of each pass. Random numbers are
    drawn by the words of a text, so that a text has one vector, whatever stands around it in a batch.
    """

    def __init__(
        self, network: ParagraphVectors, objective: NegativeSampling | HierarchicalSoftmax, *, edit: WindowPairs | Predict,
        keep: Subsample | None, rates: Sequence[float],
    ) -> None:
        self.network, self.objective = network, objective
        self.edit, self.keep, self.rates = edit, keep, tuple(rates)
        self._inputs: NDArray[np.float32] | None = None

    def __call__(self, tokens: Tensor, block: Tensor | None) -> Tensor:
        """The vectors (B, D) of texts (B, L); `block` is 0 at their padding."""
        length = np.full(len(tokens), tokens.shape[1]) if block is None else (block > 0).sum(1).cpu().numpy()
        ids = tokens.cpu().numpy()
        texts = [row[:size] for row, size in zip(ids, length.tolist(), strict=True)]
        hashes = [zlib.crc32(text.astype(np.int64).tobytes()) for text in texts]
        keys = rng.row_keys("paragraph", items=np.array(hashes, np.int64))
        width = self.network.width
        begin = (2.0 * rng.Draw(keys).uniform("start", width) - 1.0) * self.network.spread / width
        train = self._plain if kernels.find("windows") is None else self._compiled
        vectors = train(texts, keys, begin.astype(np.float32))
        return torch.from_numpy(vectors).to(tokens.device)

    # --- compiled ---------------------------------------------------------------------------------------------------------

    def _compiled(
        self, texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        threads = max(min(torch.get_num_threads(), -(-len(texts) // 16)), 1)
        borders = np.linspace(0, len(texts), threads + 1).astype(int).tolist()
        parts = [slice(a, b) for a, b in zip(borders[:-1], borders[1:], strict=True) if b > a]
        with _ONE:  # all calls train rows of one table
            rows = self._rows(len(texts))[self.network.first :][: len(texts)]
            rows[:, : begin.shape[1]] = begin
            rows[:, begin.shape[1] :] = 0.0
            if threads == 1:
                self._train(texts, keys, 0)
            else:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(lambda part: self._train(list(texts[part]), keys[part], part.start), parts))
            return rows[:, : begin.shape[1]].copy()

    @cached_property
    def _described(self) -> tuple[Any, Any, Any]:
        return described(self.edit, self.keep, self.network, self.objective, frozen=True)

    @cached_property
    def _outputs(self) -> NDArray[np.float32]:
        return _wide(self.objective.head.weight)

    def _rows(self, count: int) -> NDArray[np.float32]:
        """The words, then room for the vectors of `count` texts or more."""
        first = self.network.first
        if self._inputs is None or len(self._inputs) < first + count:
            self._inputs = _wide(self.network.embeddings.weight[:first], more=max(count, 64))
        return self._inputs

    def _train(self, texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], number: int) -> None:
        """Train the vectors of texts, of which the first has the row `number` of those for texts."""
        if not texts:
            return
        (windows, targets, subwords), outputs, passes = self._described, self._outputs, len(self.rates)
        assert self._inputs is not None
        lengths = np.array([len(text) for text in texts], np.int64)
        stored = np.uint16 if self.network.vocab_size <= 1 << 16 else np.uint32
        tokens = np.concatenate(texts).astype(stored)
        tokens.flags.writeable = False  # as those of a store, so that code compiled for training serves
        # One call for all passes, text by text, so that the rows of its words stay in the cache.
        drawn = np.stack([rng.mix_keys(keys, rng.fold("pass", number)) for number in range(passes)], axis=1)
        job = TrainingLines(
            tokens, (np.cumsum(lengths) - lengths).repeat(passes), lengths.repeat(passes),
            np.tile(np.array(self.rates, np.float32), len(texts)), drawn.ravel(),
            (self.network.first + number + np.arange(len(texts))).repeat(passes),
        )
        work, curve = ThreadBuffers.of(windows, targets, outputs.shape[1], subwords), Sigmoid.fine(skip=True)
        train_exact = kernels.find("windows").train_exact
        train_exact(job, windows, targets, subwords, self._inputs, outputs, work, curve, np.zeros(4))

    # --- in the loop's way ------------------------------------------------------------------------------------------------

    def _plain(
        self, texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        rows = [self._in_steps(texts[n], keys[n : n + 1], begin[n : n + 1]) for n in range(len(texts))]
        return np.concatenate(rows) if rows else begin

    def _in_steps(
        self, text: NDArray[Any], key: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The vector (1, D) of one text; its key addresses the negatives, which are drawn by the number of a row."""
        tokens, lengths = np.zeros((1, max(len(text), 1)), np.int32), np.array([len(text)], np.int64)
        tokens[0, : len(text)] = text
        state, clock = self.objective.reads[0] if isinstance(self.edit, Predict) else "context", self.network.clock
        with torch.inference_mode(False), torch.enable_grad():
            vectors = torch.from_numpy(begin.copy())
            for number, rate in enumerate(self.rates):
                clock.set(step=number, first_row=int(key[0] >> np.uint64(2)))  # the clock's numbers are signed
                block = self._exercise(tokens, lengths, rng.Draw(rng.mix_keys(key, rng.fold("pass", number))))
                vectors.requires_grad_()
                fields = {name: block[name] for name in ("tokens", "centers", "contexts") if name in block}
                states = self.network.states(vectors, frozenset({state}), **fields)
                loss = self.objective.loss(self.objective.scores({self.objective.reads[0]: states[state]}, block), block).total
                (slope,) = torch.autograd.grad(loss, vectors)
                slope = slope * (_CLIP / slope.norm(dim=1, keepdim=True).clamp(min=_CLIP))
                vectors = (vectors - rate * slope).detach()
        return vectors.numpy()

    def _exercise(self, tokens: NDArray[np.int32], lengths: NDArray[np.int64], draw: rng.Draw) -> Batch:
        rows = Rows({"tokens": tokens, "length": lengths.astype(np.int32)})
        if self.keep is not None:
            rows = self.keep(rows, draw)
        rows = self.edit(rows, draw)
        width = max(int(rows["length"].max(initial=1)), 1)
        laid = collate(rows, one_per_row(rows["length"].astype(np.int64), width), takes=frozenset({"tokens"}))
        return Batch({name: torch.from_numpy(np.ascontiguousarray(array)).long() for name, array in laid.items()})


def _wide(table: Tensor, more: int = 0) -> NDArray[np.float32]:
    """A copy of a table as kernels read it, rows of whole registers, and `more` rows of zeros."""
    rows = aligned(len(table) + more, padded(table.shape[1]))
    rows[: len(table), : table.shape[1]] = table.detach().float().cpu().numpy()
    return rows
