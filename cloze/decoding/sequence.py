"""Write whole texts through a `Writer`: answers of an encoder-decoder, continuations by beam search or under limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader
from cloze.decoding.sampling import Sampling
from cloze.decoding.search import Beams, Limits, Writer, Written, beam_search, sample
from cloze.decoding.writing import Answering, Continuing, Filling
from cloze.errors import CheckpointError, UserError
from cloze.rng import Draw, row_keys

_STARTS = ("[EOS]", "[SEP]")


@dataclass(frozen=True)
class Manner:
    """How to write: up to `tokens` each, by `beams` or, without, by `sampling`; `rows` together; `report` is told of rows done.

    Random numbers are addressed by `seed`, the number of the text and of the token.
    """

    tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    beams: Beams | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    rows: int = 32
    report: Callable[[int], None] = lambda done: None

    def room(self, reader: Reader, taken: int) -> int:
        """How many tokens can follow `taken` ones."""
        return self.tokens if reader.longest is None else min(self.tokens, reader.longest - taken)


def answers(reader: Reader) -> bool:
    """Whether what is written is a text of its own, and no continuation of the one that is read."""
    return has_decoder(reader) or reader.order == "source_to_target"


def has_decoder(reader: Reader) -> bool:
    """Whether the network reads one text and writes another."""
    return "decoder_hidden" in reader.network.gives


def first_ids(reader: Reader, prompt: str) -> Ids:
    """The tokens that a continuation of `prompt` begins with; a prompt that leaves no room is a `UserError`."""
    ids = np.asarray(reader.tokenizer.encode(prompt).ids, np.int32)
    ids = np.concatenate([reader.single.opening, ids])
    if not len(ids):
        ids = np.array([reader.tokenizer.role("[BOS]")], np.int32)
    if reader.longest is not None and len(ids) >= reader.longest:
        raise UserError(
            f"{prompt[:60]!r}…: {len(ids)} tokens; this network reads at most {reader.longest}. Shorten the prompt."
        )
    return ids


def answer(reader: Reader, head: Any, texts: Sequence[str], manner: Manner) -> list[Written]:
    """What an encoder-decoder writes for each text, laid out as its reading says; [MASK] and other literals have their
    meaning. A text longer than the network can read loses its end.
    """
    framed = [
        reader.single([np.asarray(reader.tokenizer.encode_template(text).ids, np.int32)], longest=reader.longest)
        for text in texts
    ]
    return answer_framed(reader, head, framed, manner)


def answer_framed(reader: Reader, head: Any, framed: Sequence[Framed], manner: Manner) -> list[Written]:
    """The same for texts that are laid out."""
    start, end = start_id(reader), end_id(reader)
    room = manner.room(reader, 1)
    made: dict[int, Written] = {}
    for index in by_length([len(row) for row in framed], rows=manner.rows):
        with torch.inference_mode():
            batch = reader.batch([framed[i] for i in index])
            kept = [name for name in batch if name in ("tokens", "block") or name.startswith("inputs/")]
            source = Batch({name: batch[name] for name in kept}, checked=True)
            first = torch.full((len(index), 1), start, dtype=torch.int64, device=reader.device)
            writer = Answering(reader, head, source)
            found = _write(writer, first, index, room, end, manner)
        made.update(zip(index.tolist(), found, strict=True))
        manner.report(len(index))
    return [made[number] for number in range(len(framed))]


def extend(reader: Reader, head: Any, prompts: Sequence[str], manner: Manner) -> list[Written]:
    """Continuations by a left-to-right network; prompts of one length are written together, so that nothing is padded."""
    starts = [first_ids(reader, prompt) for prompt in prompts]
    end = reader.tokenizer.roles.get("[EOS]", -1)
    banned = _banned(reader, end)
    made: dict[int, Written] = {}
    for index in _of_one_length([len(start) for start in starts], manner.rows):
        length = len(starts[index[0]])
        room = manner.room(reader, length)
        with torch.inference_mode():
            first = torch.from_numpy(np.stack([starts[i] for i in index])).long().to(reader.device)
            writer = Continuing(reader, head, banned)
            found = _write(writer, first, index, room, end, manner)
        made.update(zip(index.tolist(), found, strict=True))
        manner.report(len(index))
    return [made[number] for number in range(len(prompts))]


def respond(reader: Reader, head: Any, texts: Sequence[str], manner: Manner) -> list[Written]:
    """What a network that fills gaps from source to target writes behind each text; see `Filling`.

    A text is cut where it leaves less room than `tokens`, or than half of what the network can read.
    """
    end, longest = end_id(reader), reader.longest
    bound = None if longest is None else longest - min(manner.tokens, longest // 2)
    ids = [np.asarray(reader.tokenizer.encode_template(text).ids, np.int32) for text in texts]
    framed = [reader.writing.until_last([one], longest=bound) for one in ids]
    banned = _banned(reader, end)
    made: dict[int, Written] = {}
    for index in _of_one_length([len(row) for row in framed], manner.rows):
        length = len(framed[index[0]])
        room = manner.room(reader, length)
        with torch.inference_mode():
            first = torch.from_numpy(np.stack([framed[i].ids for i in index])).long().to(reader.device)
            source = torch.from_numpy(framed[index[0]].segments).long().to(reader.device)[None]
            writer = Filling(reader, head, banned, source=source, segment=reader.writing.last_segment)
            found = _write(writer, first, index, room, end, manner)
        made.update(zip(index.tolist(), found, strict=True))
        manner.report(len(index))
    return [made[number] for number in range(len(texts))]


def answer_text(reader: Reader, ids: Sequence[int]) -> str:
    """An answer as text; of the special tokens only sentinels are shown, which say what a span stands for."""
    hidden = set(np.asarray(reader.tokenizer.special_ids).tolist()) - set(np.asarray(reader.tokenizer.sentinels).tolist())
    return str(reader.tokenizer.decode([i for i in ids if i not in hidden], skip_special=False))


def start_id(reader: Reader) -> int:
    """The token that the decoder begins with: what the reading says, else the end token."""
    roles = reader.tokenizer.roles
    given = getattr(reader.reading, "start", None)
    name = given or next((role for role in _STARTS if role in roles), None)
    if name is None or name not in roles:
        raise CheckpointError(f"the decoder starts with {given or ' or '.join(_STARTS)}, which the tokenizer does not have.")
    return int(roles[name])


def end_id(reader: Reader) -> int:
    """The token that ends an answer, -1 if there is none."""
    return int(next((reader.tokenizer.roles[role] for role in _STARTS if role in reader.tokenizer.roles), -1))


def _banned(reader: Reader, end: int) -> Tensor | None:
    """The special tokens but the end, which are never written."""
    special = [i for i in np.asarray(reader.tokenizer.special_ids).tolist() if i != end]
    return torch.tensor(special, dtype=torch.int64, device=reader.device) if special else None


def _of_one_length(lengths: Sequence[int], rows: int) -> Iterator[NDArray[np.int64]]:
    """Indices of rows in batches of one length, longest first."""
    for index in by_length(lengths, rows=max(1, len(lengths))):
        sizes = np.asarray(lengths)[index]
        for part in np.split(index, np.flatnonzero(np.diff(sizes)) + 1):
            for start in range(0, len(part), rows):
                yield part[start : start + rows]


def _write(
    writer: Writer, first: Tensor, index: NDArray[np.int64], room: int, end: int, manner: Manner
) -> list[Written]:  # fmt: skip
    if manner.beams is not None:
        return beam_search(writer, first, new=room, end=end, beams=manner.beams, limits=manner.limits)
    uniform = Draw(row_keys(manner.seed, "generate", items=np.asarray(index, np.int64))).uniform("token", max(1, room))
    numbers = torch.from_numpy(uniform).to(first.device)
    return sample(writer, first, new=room, end=end, sampling=manner.sampling, uniform=numbers, limits=manner.limits)
