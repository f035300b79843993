"""A network together with what it needs to read text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed, Ids, Layout
from cloze.errors import CheckpointError, UserError
from cloze.objectives.adaptive import AdaptiveHead
from cloze.objectives.heads import VocabularyHead


class Reading(Protocol):
    """How a system reads text once trained (`reading:` of its recipe)."""

    @property
    def single(self) -> str: ...

    @property
    def pair(self) -> str | None: ...

    @property
    def summary(self) -> str: ...


class Checkpoint(Protocol):
    """The part of a loaded checkpoint that a `Reader` uses (`cloze.assembly.build.Loaded` is one)."""

    @property
    def network(self) -> Any: ...

    @property
    def heads(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def reading(self) -> Any: ...

    @property
    def order(self) -> str: ...

    @property
    def folder(self) -> Any: ...

    @property
    def network_arguments(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Reader:
    """Reads texts with a network: tokenise, lay out, pad, run. The network stays in the mode it is in."""

    network: Any
    tokenizer: Any
    reading: Reading
    order: str = "open"
    precision: torch.dtype | None = None

    @classmethod
    def of(cls, loaded: Checkpoint, *, precision: torch.dtype | None = None) -> Reader:
        """The reader of a loaded checkpoint."""
        return cls(loaded.network, loaded.tokenizer, loaded.reading, loaded.order, precision)

    @cached_property
    def single(self) -> Layout:
        """The layout of one text."""
        return Layout(self.reading.single, self.tokenizer)

    @cached_property
    def pair(self) -> Layout:
        """The layout of two texts; a `CheckpointError` if the system cannot read two."""
        if not self.reading.pair:
            raise CheckpointError(
                f"this checkpoint reads single texts only ({self.reading.single!r}); its recipe gives no reading.pair."
            )
        return Layout(self.reading.pair, self.tokenizer)

    @property
    def longest(self) -> int | None:
        """The most tokens the network can read, None if it has no limit."""
        found: int | None = getattr(self.network, "longest", None) if "positions" in self.network.takes else None
        return found

    @property
    def device(self) -> torch.device:
        """Where the network's parameters are."""
        return next(self.network.parameters()).device

    def encode(
        self, texts: Sequence[str], others: Sequence[str] | None = None, *, longest: int | None = None
    ) -> list[Framed]:
        """Texts (or pairs of texts) as framed examples, cut to `longest` or to what the network can read."""
        bound = min((n for n in (longest, self.longest) if n is not None), default=None)
        first = self.ids(texts)
        if others is None:
            return [self.single([a], longest=bound) for a in first]
        return [self.pair([a, b], longest=bound) for a, b in zip(first, self.ids(others), strict=True)]

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without a frame."""
        return [np.asarray(encoded.ids, np.int32) for encoded in self.tokenizer.encode_batch(list(texts))]

    def batch(self, rows: Sequence[Framed]) -> Batch:
        """Framed rows padded to one length. `block` is absent when nothing is padded; `summaries` names flat places."""
        lengths = np.array([len(row) for row in rows])
        width = max(1, int(lengths.max()))
        tokens = np.full((len(rows), width), self.tokenizer.roles.get("[PAD]", 0), np.int64)
        segments = np.zeros((len(rows), width), np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = row.ids
            segments[number, : len(row)] = row.segments
        made = {"tokens": tokens, "segments": segments, "summaries": self._summaries(lengths, width)}
        if lengths.min() < width:
            made["block"] = (np.arange(width) < lengths[:, None]).astype(np.int64)
        return Batch({name: torch.from_numpy(array) for name, array in made.items()}).to(self.device)

    def _summaries(self, lengths: Ids, width: int) -> Any:
        if self.reading.summary not in ("first", "last"):
            raise CheckpointError(f"this checkpoint's summary is {self.reading.summary!r}; known: 'first', 'last'.")
        column = np.maximum(lengths - 1, 0) if self.reading.summary == "last" else np.zeros_like(lengths)
        return np.arange(len(lengths), dtype=np.int64) * width + column

    def states(
        self, batch: Batch, want: Iterable[str], *, asked: Tensor | None = None, cache: Any = None
    ) -> dict[str, Any]:
        """The network's states for a batch; `want` names them.

        `asked` (M,) are the flat places that will be read, where only some are: a network that can leaves out the others.
        `cache` holds what was read before.
        """
        fields: dict[str, Any] = {}
        for name in self.network.takes & batch.keys():
            field, _, chosen = name.partition("/")
            if chosen:
                fields.setdefault(field, {})[chosen] = batch[name]  # fields with a set go in as one mapping
            else:
                fields[name] = batch[name]
        if asked is not None and self._takes_asked and 2 * len(asked) <= batch["tokens"].numel():
            fields["asked"] = asked
        if cache is not None:
            fields["cache"] = cache
        with self.autocast():
            return dict(self.network(want=frozenset(want), order=self.order, **fields))

    def autocast(self) -> torch.autocast:
        """Automatic casting to `precision`; none where that is None or fp32."""
        cast = self.precision not in (None, torch.float32)
        return torch.autocast(self.device.type, dtype=self.precision if cast else torch.bfloat16, enabled=cast)

    @cached_property
    def _takes_asked(self) -> bool:
        return "asked" in signature(self.network.forward).parameters

    def continued(self, tokens: Tensor, start: int) -> Batch:
        """A batch of tokens (B, L) that stand at the positions from `start` on."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device).expand_as(tokens)
        return Batch({"tokens": tokens, "positions": positions, "segments": torch.zeros_like(tokens)})

    def scores(self, head: Any, states: Mapping[str, Tensor], batch: Batch, places: Tensor) -> Tensor:
        """A head's scores (M, classes) in fp32 at flat places of the batch."""
        asked = Batch({**batch, f"places/{getattr(head, 'set', 'main')}": places}, checked=True)
        with self.autocast():
            scores: Tensor = head.scores({name: states[name] for name in head.reads}, asked).float()
        return scores

    def token_scores(self, head: Any, states: Mapping[str, Tensor], batch: Batch, places: Tensor) -> Tensor:
        """Scores (M, V) of a head over the vocabulary; rows that only pad the table can never be chosen."""
        scores = self.scores(head, states, batch, places)
        if scores.shape[1] > self.tokenizer.size:
            scores[:, self.tokenizer.size :] = -torch.inf
        return scores


def heads_by_kind(loaded: Checkpoint) -> dict[str, Any]:
    """The first head of each kind, whatever the recipe calls it: token_prediction, token_labelling, relation_prediction."""
    found: dict[str, Any] = {}
    for head in loaded.heads.values():
        if isinstance(head.head, (VocabularyHead, AdaptiveHead)):
            kind = "token_prediction"
        else:
            kind = "relation_prediction" if tuple(head.reads) == ("summary",) else "token_labelling"
        found.setdefault(kind, head)
    return found


def prediction_head(loaded: Checkpoint, *, verb: str) -> Any:
    """The head that predicts tokens; without one a `CheckpointError` names the heads there are and what to do."""
    kinds = heads_by_kind(loaded)
    if verb != "generate":
        refuse_answering(loaded, verb=verb)
    if "token_prediction" in kinds:
        return kinds["token_prediction"]
    way_out = "Use a checkpoint that was trained with token_prediction."
    generators = [path for path in sorted(Path(loaded.folder).glob("cloze/networks/*")) if path.is_dir()]
    if "token_labelling" in kinds and generators:
        way_out = f"A discriminator predicts no words, the generator beside it does: {generators[0]}"
    raise CheckpointError(
        f"{loaded.folder}: cloze {verb} needs a head that predicts tokens; this checkpoint has: "
        f"{', '.join(sorted(kinds)) or 'none'}.\n  {way_out}"
    )


def refuse_answering(loaded: Checkpoint, *, verb: str) -> None:
    """A `UserError` for an encoder-decoder, whose predictions are about another sequence than the one it reads."""
    if "decoder_hidden" in loaded.network.gives:
        raise UserError(
            f"{loaded.folder}: cloze {verb} predicts tokens of the text it reads; this network reads one text and writes "
            f"another.\n  To have it answer a text: cloze generate {loaded.folder} TEXT"
        )


def require_order(loaded: Checkpoint, order: str, *, verb: str, instead: str) -> None:
    """A `UserError` unless the checkpoint's network was trained in this order."""
    if loaded.order != order:
        raise UserError(
            f"{loaded.folder}: cloze {verb} needs a network of order {order}, this one is {loaded.order}.\n  {instead}"
        )
