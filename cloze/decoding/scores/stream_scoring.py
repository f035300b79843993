"""Scores of texts read one after another by a network with a memory, which may be longer than in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.decoding.layout import Framed, joined
from cloze.decoding.reader import Reader
from cloze.decoding.scores.pointer_cache import Pointer, PointerCache
from cloze.decoding.scores.scoring import Method, Score, log_probabilities, masked_each
from cloze.errors import UserError


@dataclass(frozen=True)
class Recall:
    """How much is remembered of the texts before (Dai et al., "Transformer-XL", 2019, §3.2: longer than in training).

    `memory` tokens, 0 for none, None for as many as in training; a recurrent network, whose state has no length, remembers
    everything unless it is 0. Pieces of `segment` tokens are read at once. `clamp` holds distances at most that large and
    `same_length` lets every token see as many; None and false leave the network as it is. The authors' WikiText-103 script has
    memory 640, clamp 400 and the same length (kimiyoung/transformer-xl).
    """

    memory: int | None = None
    clamp: int | None = None
    same_length: bool = False
    segment: int = 128

    def __post_init__(self) -> None:
        if (self.memory or 0) < 0 or self.segment < 1 or (self.clamp is not None and self.clamp < 1):
            raise UserError(
                f"memory {self.memory}, segment {self.segment}, clamp {self.clamp}: expected numbers of tokens, of a memory 0 or "
                "more, of the others at least 1."
            )
        if self.same_length and self.memory == 0:
            raise UserError("--same-length is counted in tokens of memory; give --memory a number above 0.")


@torch.inference_mode()
def score_stream(
    reader: Reader,
    head: Any,
    texts: Sequence[str],
    *,
    method: Method,
    recall: Recall,
    pointer: Pointer | None = None,
    ends: bool = False,
    rows: int = 64,
    report: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """The score of every text in the order given, as `score` has it but for what is remembered.

    From left to right the texts are one stream, cut into segments whatever their bounds; each stands after [EOS] where
    the tokenizer has one ([BOS] else). That token is not scored, unless `ends` has every text end with it and counts it to the
    text before, as the published perplexities of the Penn Treebank and WikiText do. A `pointer` is mixed in (Grave et al., 2017).
    A network that asks every token as the last of all (XLNet) reads a text at once and remembers those before.
    """
    with remembering(reader.network, recall):
        if not texts:
            return []
        if method == "log_probability":
            return _from_left(reader, head, _stream(reader, texts, ends=ends), recall, pointer, report)
        if pointer is not None or ends:
            raise UserError("--pointer and --ends are for networks that read from left to right.")
        if method == "pseudo_log_likelihood":
            return _each_last(reader, head, texts, rows, report)
    raise UserError("a discriminator judges the tokens of one text; leave --memory out.")


def remembers(network: Any) -> bool:
    """Whether a network can keep its state or memory from text to text."""
    return bool(network.carries) or "memory" in vars(network)


@contextmanager
def remembering(network: Any, recall: Recall) -> Iterator[None]:
    """Within: the network's memory has that length; a `UserError` if it has no memory or lacks an option."""
    if not remembers(network):
        raise UserError(
            "--memory is for networks that remember what they read before: transformer-xl and xlnet by the token, LSTMs by their "
            f"state. This one ({type(network).__name__}) does not; leave it out."
        )
    settings = vars(network)
    changed: dict[str, Any] = {"reuse": 0}
    if "memory" in settings and recall.memory is not None:
        changed |= {"memory": recall.memory, "carries": recall.memory > 0}
    changed |= {"clamp": recall.clamp} if recall.clamp is not None else {}
    changed |= {"same_length": True} if recall.same_length else {}
    for name in changed:
        if name not in settings and name != "carries":
            raise UserError(f"--{name.replace('_', '-')}: this network ({type(network).__name__}) has no such setting.")
    before = {name: vars(network)[name] for name in changed}
    try:
        for name, value in changed.items():
            setattr(network, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(network, name, value)


@dataclass(frozen=True)
class _Stream:
    """Texts as one row: which tokens are scored (L,), to which text each counts (L,), and how many texts there are."""

    row: Framed
    scored: NDArray[np.bool_]
    owner: NDArray[np.int64]
    texts: int


def _stream(reader: Reader, texts: Sequence[str], *, ends: bool) -> _Stream:
    """The texts one after another; the very first token has nothing before it and is not scored."""
    framed = [_behind_separator(reader, row) for row in reader.encode_whole(texts)]
    scored = np.concatenate([row.part == 0 for row in framed])
    owner = np.repeat(np.arange(len(framed)), [len(row) for row in framed])
    row = joined(framed)
    if ends:
        end = _separator(reader)
        if end is None:
            raise UserError("--ends: this network's tokenizer has no [EOS] that could stand after a text. Leave it out.")
        starts = np.flatnonzero((row.ids == end) & ~scored)
        last = Framed(np.array([end], np.int32), np.zeros(1, np.int32), np.full(1, -1, np.int32))
        row, scored = joined([row, last]), np.append(scored, True)
        owner = np.append(owner, len(framed) - 1)
        later = starts[starts > 0]
        scored[later], owner[later] = True, owner[later - 1]
    scored[:1] = False
    return _Stream(row, scored, owner, len(framed))


def _separator(reader: Reader) -> int | None:
    """The token that stands between texts."""
    roles = reader.tokenizer.roles
    return next((int(roles[role]) for role in ("[EOS]", "[BOS]") if role in roles), None)


def _from_left(
    reader: Reader, head: Any, stream: _Stream, recall: Recall, pointer: Pointer | None, report: Callable[[int], None]
) -> list[Score]:
    """One stream, segment after segment."""
    ids = torch.from_numpy(stream.row.ids).long().to(reader.device)
    cache = None if pointer is None else PointerCache(pointer)
    if cache is not None:
        cache.require(len(ids) - 1)
    sums, done, carry = np.zeros(stream.texts), 0, None
    for start in range(0, len(ids) - 1, recall.segment):
        stop = min(start + recall.segment, len(ids) - 1)
        batch = reader.continued(ids[None, start:stop], start, characters=stream.row.spelled(start, stop))
        states = reader.states(batch, {*head.reads, "carry"}, carry=carry)
        carry = states.pop("carry", None) if recall.memory != 0 else None
        scored = stream.scored[start + 1 : stop + 1]
        offsets = np.flatnonzero(scored) if cache is None else np.arange(stop - start)
        positions = torch.from_numpy(offsets).to(reader.device)
        targets = ids[start + 1 + positions]
        log_probs = log_probabilities(reader, head, states, batch, positions, targets)
        if cache is not None:
            log_probs = cache.mix(log_probs, states[head.reads[0]].flatten(0, 1), targets)
        terms = np.where(scored[offsets], log_probs.double().cpu().numpy(), 0.0)
        sums += np.bincount(stream.owner[start + 1 + offsets], terms, stream.texts)
        now = int(stream.owner[stop])
        report(now - done)
        done = now
    report(stream.texts - done)
    counts = np.bincount(stream.owner[stream.scored], minlength=stream.texts)
    unknown = stream.row.ids == reader.tokenizer.roles.get("[UNK]", -1)
    missing = np.bincount(stream.owner[stream.scored & unknown], minlength=stream.texts)
    return [Score(float(a), int(b), 0, int(c)) for a, b, c in zip(sums, counts, missing, strict=True)]


def _behind_separator(reader: Reader, row: Framed) -> Framed:
    """The row after a token that stands between texts, if the reading does not begin with one."""
    separator = _separator(reader)
    return row if separator is None or len(reader.single_layout.opening) else row.with_first(separator)


def _each_last(
    reader: Reader, head: Any, texts: Sequence[str], rows: int, report: Callable[[int], None]
) -> list[Score]:
    """Text by text, each token predicted in a row of its own; all rows remember the texts before."""
    results: list[Score] = []
    carry: Mapping[str, Tensor] | None = None
    for row in reader.encode_whole(texts):
        ids = row.ids[row.part == 0]
        columns, total = np.flatnonzero(reader.predictable(row)), 0.0
        for start in range(0, len(columns), rows):
            batch_columns = columns[start : start + rows]
            read, at, targets = masked_each(reader, head, [row] * len(batch_columns), batch_columns)
            spread = None if carry is None else {name: x.expand(len(batch_columns), *x.shape[1:]) for name, x in carry.items()}
            states = reader.states(read, head.reads, positions=at, carry=spread)
            total += float(log_probabilities(reader, head, states, read, at, targets).double().sum())
        unknown = int((row.ids[columns] == reader.tokenizer.roles.get("[UNK]", -1)).sum())
        results.append(Score(total, len(columns), 0, unknown))
        if len(ids):
            alone = reader.continued(torch.from_numpy(ids).long().to(reader.device)[None], 0)
            carry = reader.states(alone, ("carry",), carry=carry).get("carry")
        report(1)
    return results
