"""How a text and the text to write for it become rows: one form for each kind of network.

An encoder-decoder reads the one and writes the other (`ByDecoder`). A network that fills gaps from source to target has both in
one row and writes gap after gap (`ByGaps`: UniLM). A network that reads from left to right also has both in one row and continues
the first (`ByContinuing`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.generating.search import Continuation
from cloze.decoding.generating.sequence import (
    Manner,
    continue_rows,
    continue_starts,
    end_id,
    end_role,
    has_decoder,
    of_one_length,
    start_id,
    start_role,
    unwritten,
    write,
)
from cloze.decoding.generating.writing import Answering, Filling
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.marks import refuse_marks
from cloze.decoding.reader import Reader
from cloze.decoding.scores.scoring import log_probabilities
from cloze.errors import UserError
from cloze.exercises.companions.answer import Edits, Lesson
from cloze.text.roles import LANGUAGE_ROLES

#: The fields that an encoder reads.
_SOURCE = frozenset({"tokens", "block", "inputs", "items", "item_vectors", "item_length"})


class TextPair(Protocol):
    """A text as it is read, and the tokens of its target, including the end."""

    @property
    def source(self) -> Framed: ...

    @property
    def target(self) -> Ids: ...


class Form(ABC):
    """How a text and its target become rows."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @abstractmethod
    def source(self, ids: Ids, *, max_length: int | None = None, max_new: int = 0) -> Framed:
        """A text's ids as they are read, cut to `max_length` tokens and so that `max_new` tokens can be written.

        If both share a row, `max_length` is that of the row, and a target gets at most half of it.
        """

    @abstractmethod
    def target(self, ids: Ids, *, most: int | None = None, max_length: int | None = None) -> tuple[Ids, int]:
        """The tokens to write for a target's ids, end included, cut to `most`; and the number of ids that did not fit.

        `max_length` is that of `source`.
        """

    @abstractmethod
    def write(self, head: Any, sources: Sequence[Framed], manner: Manner) -> list[Continuation]:
        """The texts written for the texts read."""

    @abstractmethod
    def lesson(self, *, of: str, max_length: int | None, set: str) -> Lesson:
        """The edits that make targets of the companion `of` of a text, cut to `max_length` tokens, as `source` and `target` lay
        them out."""

    @abstractmethod
    def log_probabilities(self, head: Any, rows: Sequence[TextPair]) -> list[float]:
        """Each row's sum of log P(token of the target | the text and the tokens before)."""

    def text(self, ids: Sequence[int]) -> Sequence[int]:
        """The tokens of a written text that are text."""
        return ids

    def readings(self, head: Any, batch: Batch) -> Mapping[str, Tensor]:
        """The states that a head reads."""
        return self.reader.states(batch, head.reads)


class _AtOnce(Form):
    """Every token of a target is scored in one pass, because none sees a later one."""

    @abstractmethod
    def with_targets(self, rows: Sequence[TextPair], set: str) -> Batch:
        """The batch, with every token of the rows as a target of `set`."""

    def log_probabilities(self, head: Any, rows: Sequence[TextPair]) -> list[float]:
        """Each row's sum of log P(token of the target | the text and the tokens before)."""
        batch = self.with_targets(rows, head.set)
        read = self.readings(head, batch)
        log_probs = log_probabilities(
            self.reader, head, read, batch, batch[f"positions/{head.set}"], batch[f"targets/{head.set}"]
        )
        owner = np.repeat(np.arange(len(rows)), [len(row.target) for row in rows])
        sums: list[float] = np.bincount(owner, log_probs.double().cpu().numpy(), len(rows)).tolist()
        return sums


class ByDecoder(_AtOnce):
    """An encoder-decoder: it reads the text, then writes the target after the start token of its decoder.

    A target is laid out as a single text is, which is how transformers' tokenizers make labels: BART also writes the
    first token of the template. If the reading has a template of targets, its first token is always written (mBART-50).
    """

    def source(self, ids: Ids, *, max_length: int | None = None, max_new: int = 0) -> Framed:
        """The template of a single text."""
        return self.reader.lay_out([ids], max_length=least(max_length, self.reader.max_length))

    def target(self, ids: Ids, *, most: int | None = None, max_length: int | None = None) -> tuple[Ids, int]:
        """The same template; closed by the end token if the template is not."""
        bound = least(most, self.reader.max_length)
        if self._ends:
            framed = self.reader.decoder_layout([ids], max_length=bound)
            return framed.ids, framed.cut
        framed = self.reader.decoder_layout([ids], max_length=None if bound is None else bound - 1)
        return np.append(framed.ids, np.int32(end_id(self.reader))), framed.cut

    @property
    def _ends(self) -> bool:
        """Whether the template closes a text by the end token, or there is no such token."""
        end, closing = end_id(self.reader), self.reader.decoder_layout.closing
        return end < 0 or (len(closing) > 0 and int(closing[-1]) == end)

    def write(self, head: Any, sources: Sequence[Framed], manner: Manner) -> list[Continuation]:
        """Write token by token with a cache, or by beam search."""
        reader, start, end = self.reader, start_id(self.reader), end_id(self.reader)
        max_new, opening = manner.max_new(reader, 1), self._opening
        if len(opening) and manner.limits.first is None:
            manner = replace(manner, limits=replace(manner.limits, first=int(opening[0])))
        continuations: dict[int, Continuation] = {}
        for index in by_length([len(row) for row in sources], rows=manner.together):
            with torch.inference_mode():
                batch = [sources[i] for i in index]
                first = torch.full((len(index), 1), start, dtype=torch.int64, device=reader.device)
                drafter = None if manner.draft is None else _answering(manner.draft.reader, manner.draft.head, batch)
                batch_written = write(_answering(reader, head, batch), first, index, max_new, end, manner, drafter)
            continuations.update(zip(index.tolist(), batch_written, strict=True))
            manner.report(len(index))
        return [continuations[number] for number in range(len(sources))]

    @property
    def _opening(self) -> Ids:
        """What is always written first."""
        return self.reader.decoder_layout.opening[: 0 if self.reader.reading.target is None else 1]

    def text(self, ids: Sequence[int]) -> Sequence[int]:
        """Without the tokens of languages, where they tell what to write."""
        tokenizer = self.reader.tokenizer
        hidden = {tokenizer.id(name) for name in tokenizer.languages} if tokenizer.roles.keys() & set(LANGUAGE_ROLES) else set()
        return [number for number in ids if number not in hidden]

    def with_targets(self, rows: Sequence[TextPair], set: str) -> Batch:
        """Every token of the target, predicted where the decoder has read the tokens before it."""
        reader = self.reader
        lengths = np.array([len(row.target) for row in rows])
        shape = len(rows), int(lengths.max())
        real = np.arange(shape[1]) < lengths[:, None]
        targets = np.concatenate([row.target for row in rows]).astype(np.int64)
        read = np.full(shape, reader.tokenizer.roles.get("[PAD]", 0), np.int64)
        read[real] = targets
        read = np.concatenate([np.full((len(rows), 1), start_id(reader), np.int64), read[:, :-1]], axis=1)
        inputs = {"decoder.tokens": read, f"targets/{set}": targets, f"positions/{set}": np.flatnonzero(real)}
        if not real.all():
            inputs["decoder.block"] = real.astype(np.int64)
        return _with(reader.batch([row.source for row in rows]), inputs, reader)

    def readings(self, head: Any, batch: Batch) -> Mapping[str, Tensor]:
        """The states of the decoder instead of the encoder's."""
        state = self.reader.network.writes
        return {head.reads[0]: self.reader.states(batch, (state,))[state]}

    def lesson(self, *, of: str, max_length: int | None, set: str) -> Lesson:
        """The encoder reads the text, the targets of the decoder are the companion."""
        template, target = self.reader.single_layout.template, self.reader.decoder_layout.template
        answer = {
            "of": of, "frame": target if self._ends else f"{target} {end_role(self.reader)}",
            "start": start_role(self.reader), "max_length": least(max_length, self.reader.max_length), "set": set,
        }  # fmt: skip
        return Lesson([("answer", answer), ("frame", {"template": template})])


def _answering(reader: Reader, head: Any, sources: Sequence[Framed]) -> Answering:
    batch = reader.batch(sources)
    names = [name for name in batch if name.partition("/")[0] in _SOURCE or "." in name]
    return Answering(reader, head, Batch({name: batch[name] for name in names}, checked=True))


class _InOneRow(Form):
    """The target follows the text, in the layout of a pair."""

    def source(self, ids: Ids, *, max_length: int | None = None, max_new: int = 0) -> Framed:
        """Everything of a pair before its second text."""
        limit = least(max_length, self.reader.max_length)
        left = None if limit is None else limit - min(max_new, self._half(limit))
        return self.reader.continuation_layout.until_last([ids], max_length=left)

    def target(self, ids: Ids, *, most: int | None = None, max_length: int | None = None) -> tuple[Ids, int]:
        """The ids and the end token."""
        limit = least(max_length, self.reader.max_length)
        bound = least(most, None if limit is None else self._half(limit))
        beginning = ids if bound is None else ids[: bound - 1]
        return np.append(beginning, np.int32(end_id(self.reader))), len(ids) - len(beginning)

    def _half(self, length: int) -> int:
        """The most tokens of a target in a row of `length` tokens: half of what the template leaves."""
        return (length - self.reader.continuation_layout.added + len(self.reader.continuation_layout.closing)) // 2

    def _laid_out(self, of: str, max_length: int | None, segments: list[int] | None) -> Edits:
        """The edits that append the companion, closed by the end token, and restrict targets to it."""
        before, _, _ = self.reader.continuation_layout.template.partition("{B}")
        bound = least(max_length, self.reader.max_length)
        close = {"of": of, "end": str(end_role(self.reader)), **({} if bound is None else {"max_length": bound})}
        frame = {"template": f"{before}{{{of}}}", **({} if segments is None else {"segments": segments})}
        return [("close", close), ("frame", frame), ("only", {"of": of})]

    @cached_property
    def banned(self) -> Tensor | None:
        """What is never written."""
        return unwritten(self.reader, end_id(self.reader))


class ByContinuing(_InOneRow, _AtOnce):
    """A network that reads from left to right: text, separator, target and end are one text, whose targets are the last part
    (Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, §3.3 for the layout).
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(replace(reader, order="left_to_right"))

    def with_targets(self, rows: Sequence[TextPair], set: str) -> Batch:
        """Every token of the target, predicted at the token before it."""
        joined = self.joined(rows)
        width = max(len(row) for row in joined)
        positions = [np.flatnonzero(row.part == 1) - 1 + number * width for number, row in enumerate(joined)]
        targets = np.concatenate([row.target for row in rows]).astype(np.int64)
        return _with(
            self.reader.batch(joined), {f"targets/{set}": targets, f"positions/{set}": np.concatenate(positions)}, self.reader
        )

    def lesson(self, *, of: str, max_length: int | None, set: str) -> Lesson:
        """One segment; every token of the companion is predicted at the token before it."""
        edits: Edits = [("mask", {"rate": 1.0}), ("predict", {"what": "masked", "shift": 1, "set": set})]
        base_reading = self.reader.reading
        reading = {"pair": base_reading.pair, "orders": list(base_reading.orders)}
        return Lesson([*self._laid_out(of, max_length, [0, 0]), *edits], "left_to_right", reading)

    def joined(self, rows: Iterable[TextPair]) -> list[Framed]:
        """Text and target as one, all of one segment, as for continuing a text; `part` is 1 for the target's tokens."""
        framed = []
        for row in rows:
            ids = np.concatenate([row.source.ids, row.target])
            part = np.repeat(np.array([-1, 1], np.int32), [len(row.source), len(row.target)])
            framed.append(Framed(ids, np.zeros_like(ids), part))
        return framed

    def write(self, head: Any, sources: Sequence[Framed], manner: Manner) -> list[Continuation]:
        """Continue the text and the separator."""
        starts, end = [row.ids for row in sources], end_id(self.reader)
        return continue_rows(self.reader, head, starts, self.banned, end, manner)


class ByGaps(_InOneRow):
    """A network that fills gaps from source to target (UniLM; Dong et al., "Unified Language Model Pre-training", 2019, §2.5).

    In training a fraction of a target's tokens, its end included (so that it learns to stop), is masked: shown as [MASK], as a
    random token or unchanged with probabilities 0.8, 0.1 and 0.1, and predicted at its own position. The authors' code masks 0.7
    of them (microsoft/unilm). In writing and scoring the gap is at the end.

    Differs: every token of a target may be masked; the authors' loader limits the number per row.
    """

    share = 0.7

    def lesson(self, *, of: str, max_length: int | None, set: str) -> Lesson:
        """Masked tokens of the companion, predicted at their positions."""
        segments = list(self.reader.reading.segments) or None
        edits: Edits = [("mask", {"rate": self.share}), ("corrupt", {}), ("predict", {"what": "masked", "set": set})]
        return Lesson([*self._laid_out(of, max_length, segments), *edits], "source_to_target")

    def write(self, head: Any, sources: Sequence[Framed], manner: Manner) -> list[Continuation]:
        """A [MASK] at the next position, which the predicted token replaces."""
        starts = [row.ids for row in sources]
        return continue_starts(
            self.reader, starts, lambda index: self._writer(head, sources[index[0]], self.banned), end_id(self.reader), manner
        )

    def log_probabilities(self, head: Any, rows: Sequence[TextPair]) -> list[float]:
        """Each row's sum of log P(token of the target | the text and the tokens before), computed as in writing."""
        sums = np.zeros(len(rows))
        for index in of_one_length([len(row.source) for row in rows], len(rows)):
            batch = [rows[i] for i in index]
            sums[index] = self._sums(self._writer(head, batch[0].source, None), batch)
        return sums.tolist()

    def _sums(self, writer: Filling, rows: Sequence[TextPair]) -> NDArray[np.float64]:
        """The sums of rows whose sources have one length; the writer gets every token after scoring it."""
        lengths = torch.tensor([len(row.target) for row in rows])
        targets = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for number, row in enumerate(rows):
            targets[number, : len(row.target)] = torch.from_numpy(row.target)
        device = self.reader.device
        targets, real = targets.to(device), (torch.arange(targets.shape[1]) < lengths[:, None]).to(device)
        tokens = torch.from_numpy(np.stack([row.source.ids for row in rows])).long().to(device)
        sums = torch.zeros(len(rows), dtype=torch.float64, device=device)
        for column in range(targets.shape[1]):
            right = targets[:, column : column + 1]
            log_probs = writer.scores(tokens).log_softmax(-1).gather(1, right)[:, 0]
            sums += torch.where(real[:, column], log_probs.double(), 0.0)
            tokens = torch.cat([tokens, right], dim=1)
        return sums.cpu().numpy()

    def _writer(self, head: Any, like: Framed, banned: Tensor | None) -> Filling:
        segments = torch.from_numpy(like.segments).long().to(self.reader.device)[None]
        return Filling(self.reader, head, banned, source=segments, segment=self.reader.continuation_layout.last_segment)


def form_of(reader: Reader) -> Form:
    """The form in which a reader writes targets; a `UserError` if it cannot."""
    refuse_marks(reader, "writing a text for another")
    if has_decoder(reader):
        return ByDecoder(reader)
    if reader.order != "source_to_target":
        raise UserError(f"this network reads {reader.order} and cannot write a text for another.")
    return ByContinuing(reader) if "left_to_right" in reader.reading.orders else ByGaps(reader)


def least(*bounds: int | None) -> int | None:
    """The smallest of some bounds; None is no bound."""
    return min((bound for bound in bounds if bound is not None), default=None)


def _with(batch: Batch, arrays: Mapping[str, NDArray[Any]], reader: Reader) -> Batch:
    """The batch with further fields."""
    further = Batch({name: torch.from_numpy(array) for name, array in arrays.items()}, checked=True).to(reader.device)
    return Batch({**batch, **further}, checked=True)
