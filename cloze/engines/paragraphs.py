"""Vectors of new texts under `paragraph_vectors`: each is trained for its text while words and output rows stay.

`cloze.assembly.inference` makes an `Inferred` when a checkpoint is opened; the network calls it for texts without a paragraph
(Le and Mikolov, 2014, §2.2, the inference stage).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze import rng
from cloze.batch import Batch
from cloze.batching.collate import collate, one_per_row
from cloze.compiled import has_numba
from cloze.engines.lock_free import described
from cloze.exercises.predict import Predict
from cloze.exercises.subsample import Subsample
from cloze.exercises.windows import Windows
from cloze.networks.paragraph_vectors import ParagraphVectors
from cloze.objectives.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.negative_sampling import NegativeSampling
from cloze.rows import Rows

_TOGETHER = 1024  # texts trained at once by a thread
_CLIP = 20.0      # the longest gradient of a vector in a step of the loop, as `row_clip` of the recipes


class Inferred:
    """Trains vectors for texts: in compiled code word by word, without numba in the loop's way, a step per pass.

    asked, keep: the edits that ask for words and that drop some; rates: the learning rate of each pass. Random numbers are
    drawn by the words of a text, so that in compiled code a text has one vector, whatever stands around it in a batch.
    """

    def __init__(
        self, network: ParagraphVectors, objective: NegativeSampling | HierarchicalSoftmax, *, asked: Windows | Predict,
        keep: Subsample | None, rates: Sequence[float],
    ) -> None:
        self.network, self.objective = network, objective
        self.asked, self.keep, self.rates = asked, keep, tuple(rates)

    def __call__(self, tokens: Tensor, block: Tensor | None) -> Tensor:
        """The vectors (B, D) of texts (B, L); `block` is 0 at their padding."""
        length = np.full(len(tokens), tokens.shape[1]) if block is None else (block > 0).sum(1).cpu().numpy()
        ids = tokens.cpu().numpy()
        texts = [row[:size] for row, size in zip(ids, length.tolist(), strict=True)]
        hashes = [zlib.crc32(text.astype(np.int64).tobytes()) for text in texts]
        keys = rng.row_keys("paragraph", items=np.array(hashes, np.int64))
        width = self.network.width
        begin = (2.0 * rng.Draw(keys).uniform("start", width) - 1.0) * self.network.spread / width
        train = self._compiled if has_numba() else self._plain
        found = train(texts, keys, begin.astype(np.float32))
        return torch.from_numpy(found).to(tokens.device)

    # --- compiled ---------------------------------------------------------------------------------------------------------

    def _compiled(
        self, texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        threads = min(torch.get_num_threads(), -(-len(texts) // 16))
        borders = np.linspace(0, len(texts), max(threads, -(-len(texts) // _TOGETHER)) + 1).astype(int).tolist()
        parts = [slice(a, b) for a, b in zip(borders[:-1], borders[1:], strict=True) if b > a]
        outputs = self._outputs
        if threads <= 1:
            done = [self._trained(outputs, list(texts[part]), keys[part], begin[part]) for part in parts]
        else:
            with ThreadPoolExecutor(threads) as pool:
                done = list(pool.map(lambda part: self._trained(outputs, list(texts[part]), keys[part], begin[part]), parts))
        return np.concatenate(done) if done else begin

    @cached_property
    def _outputs(self) -> NDArray[np.float32]:
        return _wide(self.objective.head.weight)

    @cached_property
    def _words(self) -> NDArray[np.float32]:
        return _wide(self.network.embeddings.weight[: self.network.first])

    def _trained(
        self, outputs: NDArray[np.float32], texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        from cloze.engines.kernels import exact, parts

        windows, targets, subwords = described(self.asked, self.keep, self.network, self.objective, frozen=True)
        first, width, padded = self.network.first, self.network.width, outputs.shape[1]
        inputs = parts.aligned(first + len(texts), padded)
        inputs[:first] = self._words
        inputs[first:, :width] = begin
        lengths = np.array([len(text) for text in texts], np.int64)
        stored = np.uint16 if self.network.vocab_size <= 1 << 16 else np.uint32
        tokens = np.concatenate([*texts, np.zeros(0, np.int64)]).astype(stored)
        tokens.flags.writeable = False  # as those of a store, so that code compiled for training serves
        work, curve = parts.Work.of(windows, targets, padded, subwords), parts.Curve.fine(skip=True)
        owners = first + np.arange(len(texts))
        for number, rate in enumerate(self.rates):
            job = parts.Job(
                tokens, np.cumsum(lengths) - lengths, lengths, np.full(len(texts), rate, np.float32),
                rng.mix_keys(keys, rng.fold("pass", number)), owners,
            )
            exact.train_exact(job, windows, targets, subwords, inputs, outputs, work, curve, np.zeros(4))
        return np.ascontiguousarray(inputs[first:, :width])

    # --- in the loop's way ------------------------------------------------------------------------------------------------

    def _plain(
        self, texts: Sequence[NDArray[Any]], keys: NDArray[np.uint64], begin: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        lengths = np.array([len(text) for text in texts], np.int64)
        tokens = np.zeros((len(texts), max(int(lengths.max(initial=1)), 1)), np.int32)
        for row, text in zip(tokens, texts, strict=True):
            row[: len(text)] = text
        state, clock = self.objective.reads[0] if isinstance(self.asked, Predict) else "context", self.network.clock
        with torch.inference_mode(False), torch.enable_grad():
            own = torch.from_numpy(begin.copy())
            for number, rate in enumerate(self.rates):
                clock.set(step=number)
                block = self._exercise(tokens, lengths, rng.Draw(rng.mix_keys(keys, rng.fold("pass", number))))
                own.requires_grad_()
                fields = {name: block[name] for name in ("tokens", "centers", "contexts") if name in block}
                made = self.network.states(own, frozenset({state}), **fields)
                loss = self.objective.loss(self.objective.scores({self.objective.reads[0]: made[state]}, block), block).total
                (slope,) = torch.autograd.grad(loss, own)
                slope = slope * (_CLIP / slope.norm(dim=1, keepdim=True).clamp(min=_CLIP))
                own = (own - rate * slope).detach()
        return own.numpy()

    def _exercise(self, tokens: NDArray[np.int32], lengths: NDArray[np.int64], draw: rng.Draw) -> Batch:
        rows = Rows({"tokens": tokens, "length": lengths.astype(np.int32)})
        if self.keep is not None:
            rows = self.keep(rows, draw)
        rows = self.asked(rows, draw)
        width = max(int(rows["length"].max(initial=1)), 1)
        laid = collate(rows, one_per_row(rows["length"].astype(np.int64), width), takes=frozenset({"tokens"}))
        return Batch({name: torch.from_numpy(np.ascontiguousarray(array)).long() for name, array in laid.items()})


def _wide(table: Tensor) -> NDArray[np.float32]:
    """A copy of a table as kernels read it: rows of whole registers."""
    from cloze.engines.kernels.parts import aligned, padded

    rows = aligned(len(table), padded(table.shape[1]))
    rows[:, : table.shape[1]] = table.detach().float().cpu().numpy()
    return rows
