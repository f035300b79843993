"""Continue texts, or answer them with a network that reads one text and writes another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.decoding.generating.drafting import Draft
from cloze.decoding.generating.forms import ByGaps, form_of
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Continuation, Limits
from cloze.decoding.generating.sequence import Manner, answer_text, answers, end_id, extend, first_ids, has_decoder, start_id
from cloze.decoding.generating.writing import asks, spelled_starts
from cloze.decoding.layout import Ids
from cloze.decoding.lengths import by_length, cut_remark
from cloze.decoding.marks import refuse_marks
from cloze.decoding.reader import Reader
from cloze.errors import UserError, argument
from cloze.rng import Draw, row_keys

Stopped = Literal["end", "count", "max_length", "stop"]


@dataclass(frozen=True)
class Generated:
    """A generated text.

    Attributes:
        prompt: What the model read.
        text: What it generated.
        ids: The token ids of the text.
        stopped: Why it ends: the end token, the number of tokens, the limit of the network, or a stop string.
        score: The log-probability of a beam search, divided by the length penalty.
        cut: How many tokens of the prompt did not fit into what the network reads.
    """

    prompt: str
    text: str
    ids: tuple[int, ...]
    stopped: Stopped
    score: float | None = None
    cut: int = 0


def remark_on_cut(texts: Sequence[Generated]) -> str | None:
    """A sentence on prompts that lost their ends; None if all were read whole."""
    return cut_remark(list({text.prompt: text.cut for text in texts}.values()))


def generate(
    reader: Reader,
    head: Any,
    prompts: Sequence[str],
    *,
    tokens: int = 64,
    sampling: Sampling | None = None,
    beams: Beams | None = None,
    limits: Limits | None = None,
    stop: Sequence[str] = (),
    on_tokens: Callable[[list[int]], None] | None = None,
    draft: Draft | None = None,
    seed: int = 0,
    rows: int = 32,
    cache: bool = True,
    report: Callable[[int], None] = lambda done: None,
) -> list[Generated]:
    """Up to `tokens` new tokens for every prompt; an empty prompt starts at the beginning of a text.

    An encoder-decoder reads the prompt and writes an answer, and so does a network that reads from source to target; others
    continue it. With `beams` the best texts of a beam search are taken instead of a drawn one, `beams.best` for each prompt;
    `limits` are obeyed either way. A drawn text ends after the first of the strings `stop`; `on_tokens` gets the next token of
    each row as soon as it is drawn. A `draft` proposes tokens, which changes the time that it takes and not what is
    written: the tokens at temperature 0, their distribution otherwise.

    Random numbers are addressed by (seed, number of the prompt, number of the token), so a continuation does not depend
    on the batch it was made in. A row stops at the end token [EOS], which is not part of the text. A prompt that fills
    the network's `max_length` is a `UserError`. `cache=False` reads everything again for each token, with the same result.
    """
    if tokens < 1:
        raise UserError(f"{tokens} tokens: expected at least 1.")
    if limits is not None and limits.min_tokens > tokens:
        least, most = argument("min_tokens", str(limits.min_tokens)), argument("tokens", str(tokens))
        raise UserError(least, " is more than ", most, ", the longest text allowed. Raise ", argument("tokens"), ".")
    refuse_marks(reader, "generation")
    if beams is not None and stop:
        raise UserError(argument("stop"), " does not work with beam search. Leave out one of them.")
    if draft is not None:
        _require_draft(draft, reader, head, beams)
    if asks(reader, head) or answers(reader) or beams or limits is not None or stop or on_tokens is not None or draft is not None:
        stops = (lambda ids: _end_of(reader.tokenizer.decode(list(ids)), stop) is not None) if stop else None
        manner = Manner(tokens, sampling or Sampling(), beams, limits or Limits(), seed, rows, report, stops, on_tokens, draft)
        cuts = [0] * len(prompts)
        if answers(reader):
            sequences, cuts = _answer(reader, head, prompts, manner)
        else:
            sequences = extend(reader, head, prompts, manner)
        return [
            _as_generated(reader, prompt, candidate, tokens, stop, cut)
            for prompt, best, cut in zip(prompts, sequences, cuts, strict=True) for candidate in (best, *best.others)
        ]  # fmt: skip
    starts = [first_ids(reader, prompt) for prompt in prompts]
    characters = spelled_starts(reader, prompts, starts)
    continuations: dict[int, tuple[list[int], Stopped]] = {}
    for index in by_length([len(start) for start in starts], rows=rows):
        letters = None if characters is None else characters[index]
        lane = Lanes(reader, head, [starts[i] for i in index], tokens, characters=letters)
        keys = row_keys(seed, "generate", items=np.asarray(index, np.int64))
        uniform = Draw(keys).uniform("token", max(1, tokens))
        lane.run(sampling or Sampling(), torch.from_numpy(uniform).to(reader.device), cache=cache)
        continuations.update(zip(index.tolist(), lane.results(), strict=True))
        report(len(index))
    results = []
    for number, prompt in enumerate(prompts):
        ids, stopped = continuations[number]
        results.append(Generated(prompt, _continuation(reader, starts[number], prompt, ids), tuple(ids), stopped))
    return results


def _answer(reader: Reader, head: Any, texts: Sequence[str], manner: Manner) -> tuple[list[Continuation], list[int]]:
    """What is written for each text, and how many tokens at the end of each did not fit; [MASK] and other literals have their
    meaning."""
    form = form_of(reader)
    ids = [np.asarray(reader.tokenizer.encode_template(text).ids, np.int32) for text in texts]
    sources = [form.source(text_ids, max_new=manner.tokens) for text_ids in ids]
    return form.write(head, sources, manner), [source.cut for source in sources]


def _as_generated(
    reader: Reader, prompt: str, continuation: Continuation, tokens: int, stop: Sequence[str], cut: int
) -> Generated:
    stopped: Stopped = "end" if continuation.ended else "count" if len(continuation.ids) == tokens else "max_length"
    if answers(reader):
        text = answer_text(reader, continuation.ids)
    else:
        text = _continuation(reader, first_ids(reader, prompt), prompt, list(continuation.ids))
    end = _end_of(text, stop)
    return Generated(prompt, text[:end], continuation.ids, stopped if end is None else "stop", continuation.score, cut)


def _require_draft(draft: Draft, reader: Reader, head: Any, beams: Beams | None) -> None:
    """A `UserError` if `draft` cannot propose tokens for what `reader` writes."""
    drafter, what = draft.reader, "Leave --draft out."
    if beams is not None:
        raise UserError(f"--draft: a draft proposes one text, and a beam search writes several at once. {what}")
    if asks(reader, head) or asks(drafter, draft.head):
        raise UserError(f"--draft: XLNet reads the whole text again for each token, so it cannot check several at once. {what}")
    if answers(reader) and not has_decoder(reader) and isinstance(form_of(reader), ByGaps):
        raise UserError(f"--draft: this network writes by filling one gap after another and cannot check several at once. {what}")
    if drafter.tokenizer.hash != reader.tokenizer.hash:
        raise UserError(
            f"--draft: its vocabulary of {drafter.tokenizer.size:,} tokens is not that of the network that writes "
            f"({reader.tokenizer.size:,}).\n  Train it on a corpus that is encoded with the same tokenizer: cloze corpus build "
            "TEXT --out STORE --tokenizer CHECKPOINT"
        )
    if _way(drafter) != _way(reader):
        raise UserError(
            f"--draft: the network that writes {_way(reader)[0]}, its draft {_way(drafter)[0]}, or they lay out texts "
            "differently.\n  Give a draft of the same kind."
        )
    for side, name in ((reader, "the network that writes"), (drafter, "the draft")):
        if not side.new_cache().forgets:
            raise UserError(
                f"--draft: {name} ({type(side.network).__name__}) reads token after token and takes none back, so a draft would "
                f"save nothing. {what}"
            )


def _way(reader: Reader) -> tuple[Any, ...]:
    """How a network writes: what it does with a text, and how this is laid out."""
    if has_decoder(reader):
        layouts = reader.single_layout, reader.decoder_layout
        return "answers by a decoder", *(layout.template for layout in layouts), start_id(reader), end_id(reader)
    return ("answers in the row that it reads", reader.continuation_layout.template) if answers(reader) else ("continues texts",)


def _end_of(text: str, stop: Sequence[str]) -> int | None:
    """The place after the stop string that comes first; None if there is none."""
    return min(((start, start + len(string)) for string in stop if (start := text.find(string)) >= 0), default=(0, None))[1]


def _continuation(reader: Reader, start: Ids, prompt: str, ids: list[int]) -> str:
    """The new tokens as text to append to the prompt: decoded together with it, so that spaces are kept."""
    before = reader.tokenizer.decode(start)
    text = reader.tokenizer.decode([*start.tolist(), *ids])
    return text[len(before) :] if text.startswith(before) else reader.tokenizer.decode(ids)


class Lanes:
    """A batch of texts that grow by one token per step.

    No padding: all rows start with as many tokens as the shortest prompt; a row whose prompt is longer takes its own next
    token instead of a chosen one. Positions and cache are therefore the same for all rows. `characters` (B, L, C) spell words of
    the prompts.
    """

    def __init__(
        self, reader: Reader, head: Any, starts: Sequence[Ids], count: int, *, characters: NDArray[np.int16] | None = None
    ) -> None:
        self.reader, self.head = reader, head
        self.lengths = np.array([len(start) for start in starts])
        limit = self.lengths + count if reader.max_length is None else np.minimum(self.lengths + count, reader.max_length)
        self.limit = torch.from_numpy(limit).to(reader.device)
        self.count = count
        width = int(limit.max())
        self.characters = None
        if characters is not None:
            padding = ((0, 0), (0, max(width - characters.shape[1], 0)), (0, 0))
            self.characters = np.pad(characters, padding)
        ids = np.full((len(starts), width), -1, np.int64)
        for number, start in enumerate(starts):
            ids[number, : len(start)] = start
        self.tokens = torch.from_numpy(ids).to(reader.device)
        self.ended = torch.full((len(starts),), width + 1, device=reader.device)
        self.end = reader.tokenizer.roles.get("[EOS]", -1)
        banned = [i for i in np.asarray(reader.tokenizer.special_ids).tolist() if i != self.end]
        self.banned = torch.tensor(banned, dtype=torch.int64, device=reader.device)

    @torch.inference_mode()
    def run(self, sampling: Sampling, uniform: Tensor, *, cache: bool) -> None:
        """Grow every row until it ends or is full. `uniform` (B, tokens) are the rows' random numbers."""
        reader_cache = self.reader.new_cache() if cache else None
        lengths = torch.from_numpy(self.lengths).to(self.reader.device)
        start, stop = 0, int(self.lengths.min())
        while stop < self.tokens.shape[1]:
            scores = self._next_scores(start, stop, reader_cache)
            number = (stop - lengths).clamp(min=0, max=uniform.shape[1] - 1)
            chosen = sampling.choose(scores, uniform.gather(1, number[:, None])[:, 0])
            prompt_tokens = self.tokens[:, stop]
            growing = (prompt_tokens < 0) & (stop < self.limit) & (stop < self.ended)
            self.ended = torch.where(growing & (chosen == self.end), stop, self.ended)
            self.tokens[:, stop] = torch.where(prompt_tokens >= 0, prompt_tokens, chosen)
            start, stop = (stop, stop + 1) if cache else (0, stop + 1)
            if bool(((self.ended < stop) | (self.limit <= stop)).all()):
                break

    def _next_scores(self, start: int, stop: int, cache: Any) -> Tensor:
        """Scores (B, V) of the token at `stop`, after reading the tokens from `start` to there."""
        reader = self.reader
        tokens = self.tokens[:, start:stop].clamp(min=0)
        letters = None if self.characters is None else self.characters[:, start:stop]
        batch = reader.continued(tokens, start, characters=letters)
        positions = torch.arange(1, len(tokens) + 1, device=tokens.device) * tokens.shape[1] - 1
        states = reader.states(batch, self.head.reads, cache=cache)
        scores = reader.token_scores(self.head, states, batch, positions)
        return scores.index_fill(1, self.banned, -torch.inf) if len(self.banned) else scores

    def results(self) -> list[tuple[list[int], Stopped]]:
        """The new ids of every row and why it stopped."""
        continuations: list[tuple[list[int], Stopped]] = []
        for row, length, limit, ended in zip(
            self.tokens.tolist(), self.lengths.tolist(), self.limit.tolist(), self.ended.tolist(), strict=True
        ):
            stop = min(limit, ended)
            reason: Stopped = "end" if ended < limit else "count" if limit == length + self.count else "max_length"
            continuations.append((row[length:stop], reason))
        return continuations
