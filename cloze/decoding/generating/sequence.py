"""Write whole texts through a `Writer`: by beam search or drawn, under limits, with or without a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.decoding.generating.drafting import Checker, Draft, RandomNumbers, assisted
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Continuation, Limits, Writer, beam_search, sample
from cloze.decoding.generating.writing import Asking, Continuing, asks, spelled_starts
from cloze.decoding.languages import require_language
from cloze.decoding.layout import Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, UserError
from cloze.rng import Draw, row_keys

_STARTS = ("[EOS]", "[SEP]")


@dataclass(frozen=True)
class Manner:
    """How to write: up to `tokens` each, by `beams` or else by `sampling`, `rows` at a time; `report` gets the rows done.

    Random numbers are addressed by `seed`, the number of the text and of the token. A text that is drawn also ends where `stops`
    is true of its tokens. `on_tokens` gets the next token of every row of a batch as soon as it is chosen. A `draft` proposes
    tokens.
    """

    tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    beams: Beams | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    rows: int = 32
    report: Callable[[int], None] = lambda done: None
    stops: Callable[[Sequence[int]], bool] | None = None
    on_tokens: Callable[[list[int]], None] | None = None
    draft: Draft | None = None

    @property
    def together(self) -> int:
        """How many texts are written together; with a draft one, because of each a different number of tokens is accepted."""
        return self.rows if self.draft is None else 1

    def max_new(self, reader: Reader, length: int) -> int:
        """How many tokens can follow `length` ones."""
        return self.tokens if reader.max_length is None else min(self.tokens, reader.max_length - length)


def answers(reader: Reader) -> bool:
    """Whether the network writes a text of its own instead of continuing the one that it reads."""
    return has_decoder(reader) or reader.order == "source_to_target"


def has_decoder(reader: Reader) -> bool:
    """Whether the network reads one text and writes another."""
    return reader.network.writes is not None


def first_ids(reader: Reader, prompt: str) -> Ids:
    """The tokens that a continuation of `prompt` starts from; a prompt that leaves no room is a `UserError`."""
    ids = np.asarray(reader.tokenizer.encode(prompt).ids, np.int32)
    ids = np.concatenate([reader.single_layout.opening, ids])
    if not len(ids):
        ids = np.array([reader.tokenizer.role("[BOS]")], np.int32)
    if reader.max_length is not None and len(ids) >= reader.max_length:
        raise UserError(
            f"{prompt[:60]!r}…: {len(ids)} tokens; this network reads at most {reader.max_length}. Shorten the prompt."
        )
    return ids


def extend(reader: Reader, head: Any, prompts: Sequence[str], manner: Manner) -> list[Continuation]:
    """Continuations by a left-to-right network, or by one that is asked for each token (`writing.Asking`)."""
    end = reader.tokenizer.roles.get("[EOS]", -1)
    banned = unwritten(reader, end)
    starts = [first_ids(reader, prompt) for prompt in prompts]
    if asks(reader, head):
        return continue_starts(reader, starts, lambda index: Asking(reader, head, banned), end, manner)
    return continue_rows(reader, head, starts, banned, end, manner, spelled_starts(reader, prompts, starts))


def continue_rows(
    reader: Reader, head: Any, starts: Sequence[Ids], banned: Tensor | None, end: int, manner: Manner,
    characters: NDArray[np.int16] | None = None,
) -> list[Continuation]:
    """What a left-to-right network puts after each start; `characters` (N, L, C) spell words of the starts."""
    draft = manner.draft
    drafter = None if draft is None else lambda: Continuing(draft.reader, draft.head, banned)

    def writer(index: NDArray[np.int64]) -> Continuing:
        return Continuing(reader, head, banned, None if characters is None else characters[index])

    return continue_starts(reader, starts, writer, end, manner, drafter)


def continue_starts(
    reader: Reader, starts: Sequence[Ids], writer: Callable[[NDArray[np.int64]], Writer], end: int, manner: Manner,
    drafter: Callable[[], Checker] | None = None,
) -> list[Continuation]:
    """What `writer`, made for the numbers of some starts, puts after each; starts of one length are written together, so that
    nothing is padded. `drafter` makes what proposes tokens.
    """
    continuations: dict[int, Continuation] = {}
    for index in of_one_length([len(start) for start in starts], manner.together):
        max_new = manner.max_new(reader, len(starts[index[0]]))
        with torch.inference_mode():
            first = torch.from_numpy(np.stack([starts[i] for i in index])).long().to(reader.device)
            batch_written = write(writer(index), first, index, max_new, end, manner, None if drafter is None else drafter())
        continuations.update(zip(index.tolist(), batch_written, strict=True))
        manner.report(len(index))
    return [continuations[number] for number in range(len(starts))]


def answer_text(reader: Reader, ids: Sequence[int]) -> str:
    """An answer as text; of the special tokens only sentinels are shown, which say what a span stands for."""
    hidden = set(np.asarray(reader.tokenizer.special_ids).tolist()) - set(np.asarray(reader.tokenizer.sentinels).tolist())
    return str(reader.tokenizer.decode([i for i in ids if i not in hidden], skip_special=False))


def start_role(reader: Reader) -> str:
    """The role of the token that the decoder begins with: what the reading says, else the end token."""
    roles = reader.tokenizer.roles
    start = reader.reading.start
    name = start or next((role for role in _STARTS if role in roles), None)
    require_language(reader.tokenizer, str(name))
    if name is None or name not in roles:
        raise CheckpointError(f"the decoder starts with {start or ' or '.join(_STARTS)}, which the tokenizer does not have.")
    return str(name)


def start_id(reader: Reader) -> int:
    """The token that the decoder begins with."""
    return int(reader.tokenizer.roles[start_role(reader)])


def end_role(reader: Reader) -> str | None:
    """The role of the token that ends an answer, None if there is none."""
    return next((role for role in _STARTS if role in reader.tokenizer.roles), None)


def end_id(reader: Reader) -> int:
    """The token that ends an answer, -1 if there is none."""
    role = end_role(reader)
    return -1 if role is None else int(reader.tokenizer.roles[role])


def unwritten(reader: Reader, end: int) -> Tensor | None:
    """The special tokens but the end, which are never written."""
    special = [i for i in np.asarray(reader.tokenizer.special_ids).tolist() if i != end]
    return torch.tensor(special, dtype=torch.int64, device=reader.device) if special else None


def of_one_length(lengths: Sequence[int], rows: int) -> Iterator[NDArray[np.int64]]:
    """Indices of rows in batches of one length, longest first."""
    for index in by_length(lengths, rows=max(1, len(lengths))):
        sizes = np.asarray(lengths)[index]
        for part in np.split(index, np.flatnonzero(np.diff(sizes)) + 1):
            for start in range(0, len(part), rows):
                yield part[start : start + rows]


def write(
    writer: Any, first: Tensor, index: NDArray[np.int64], max_new: int, end: int, manner: Manner, drafter: Checker | None = None
) -> list[Continuation]:
    """Up to `max_new` tokens after each row of `first`, whose numbers are `index`. With a `drafter` there is one row, and
    `writer` is a `Checker`, else a `Writer`."""
    draw, beams = Draw(row_keys(manner.seed, "generate", items=np.asarray(index, np.int64))), manner.beams
    if beams is not None:
        uniform = None
        if beams.sampled:
            draws = draw.uniform("beams", max_new * beams.candidates).reshape(len(index), max_new, beams.candidates)
            uniform = torch.from_numpy(draws).to(first.device)
        return beam_search(
            writer, first, new=max_new, end=end, beams=beams, limits=manner.limits, sampling=manner.sampling, uniform=uniform
        )
    numbers = torch.from_numpy(draw.uniform("token", max(1, max_new))).to(first.device)
    if drafter is not None and manner.draft is not None:
        uniforms = (draw.uniform(name, max_new)[0] for name in ("propose", "accept"))
        proposing, accepting = (torch.from_numpy(values).to(first.device) for values in uniforms)
        continuation = assisted(
            writer, drafter, first, draft=manner.draft, new=max_new, end=end, sampling=manner.sampling,
            numbers=RandomNumbers(proposing, accepting, numbers[0]), limits=manner.limits, stops=manner.stops,
            on_tokens=manner.on_tokens,
        )
        return [continuation]
    return sample(
        writer, first, new=max_new, end=end, sampling=manner.sampling, uniform=numbers, limits=manner.limits, stops=manner.stops,
        on_tokens=manner.on_tokens,
    )
