"""Scores of texts that are read one after another by a network that remembers, if need be more than in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Reader
from cloze.decoding.scoring import Method, Score, log_probabilities, masked_each
from cloze.errors import UserError
from cloze.registry import parameters


@dataclass(frozen=True)
class Recall:
    """How much is remembered of the texts before (Dai et al., "Transformer-XL", 2019, §3.2: longer than in training).

    `memory` tokens, 0 for none, and pieces of `segment` tokens are read at once. `clamp` holds distances at most that large and
    `same_length` lets every token see as many; None and false leave the network as it is. The authors' WikiText-103 script has
    memory 640, clamp 400 and the same length (kimiyoung/transformer-xl).
    """

    memory: int
    clamp: int | None = None
    same_length: bool = False
    segment: int = 128

    def __post_init__(self) -> None:
        if self.memory < 0 or self.segment < 1 or (self.clamp is not None and self.clamp < 1):
            raise UserError(
                f"memory {self.memory}, segment {self.segment}, clamp {self.clamp}: expected numbers of tokens, of a memory 0 or "
                "more, of the others at least 1."
            )
        if self.same_length and not self.memory:
            raise UserError("--same-length is counted in tokens of memory; give --memory a number above 0.")


@torch.inference_mode()
def score_stream(
    reader: Reader,
    head: Any,
    texts: Sequence[str],
    *,
    method: Method,
    recall: Recall,
    rows: int = 64,
    report: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """The score of every text in the order given, as `score` has it but for what is remembered.

    From left to right the texts are one stream, cut into segments whatever their bounds; each stands behind [EOS] where
    the tokenizer has one ([BOS] else), which is not scored. A network that asks every token as the last of all (XLNet) reads a
    text at once and remembers those before.
    """
    with remembering(reader.network, recall):
        if not texts:
            return []
        if method == "log_probability":
            return _from_left(reader, head, texts, recall, report)
        if method == "pseudo_log_likelihood":
            return _each_last(reader, head, texts, rows, report)
    raise UserError("a discriminator judges the tokens of one text; leave --memory out.")


@contextmanager
def remembering(network: Any, recall: Recall) -> Iterator[None]:
    """Within: the network's memory is of that length; a `UserError` if it has none, or knows nothing of an option."""
    changed = {"memory": recall.memory, "reuse": 0, "carries": recall.memory > 0}
    changed |= {"clamp": recall.clamp} if recall.clamp is not None else {}
    changed |= {"same_length": True} if recall.same_length else {}
    known = parameters(type(network)).keys() | {"carries"}
    if "memory" not in known:
        raise UserError(
            f"--memory is for networks that remember what they read before by the token, transformer-xl and xlnet; this one "
            f"({type(network).__name__}) does not. Leave it out."
        )
    for name in changed:
        if name not in known:
            raise UserError(f"--{name.replace('_', '-')}: this network ({type(network).__name__}) has no such setting.")
    before = {name: getattr(network, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(network, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(network, name, value)


def _from_left(
    reader: Reader, head: Any, texts: Sequence[str], recall: Recall, report: Callable[[int], None]
) -> list[Score]:
    """One stream, segment after segment."""
    framed = [_behind_separator(reader, reader.single([ids])) for ids in reader.ids(texts)]
    stream = torch.from_numpy(np.concatenate([row.ids for row in framed])).long().to(reader.device)
    scored = np.concatenate([row.part == 0 for row in framed])
    owner = np.repeat(np.arange(len(framed)), [len(row) for row in framed])
    sums, done, carry = np.zeros(len(framed)), 0, None
    for start in range(0, len(stream) - 1, recall.segment):
        stop = min(start + recall.segment, len(stream) - 1)
        batch = reader.continued(stream[None, start:stop], start)
        states = reader.states(batch, {*head.reads, "carry"}, carry=carry)
        carry = states.pop("carry", None)
        asked = np.flatnonzero(scored[start + 1 : stop + 1])
        places = torch.from_numpy(asked).to(reader.device)
        found = log_probabilities(reader, head, states, batch, places, stream[start + 1 + places])
        sums += np.bincount(owner[start + 1 + asked], found.double().cpu().numpy(), len(framed))
        report(int(owner[stop]) - done)
        done = int(owner[stop])
    report(len(framed) - done)
    first = int(len(framed[0]) > 0 and framed[0].part[0] == 0)  # nothing stands before the first token of all
    return [Score(float(total), int((row.part == 0).sum()) - (not number and first)) for number, (total, row) in
            enumerate(zip(sums, framed, strict=True))]


def _behind_separator(reader: Reader, row: Framed) -> Framed:
    """The row behind a token that stands between texts, if the reading does not begin with one."""
    roles = reader.tokenizer.roles
    separator = next((roles[role] for role in ("[EOS]", "[BOS]") if role in roles), None)
    if separator is None or len(reader.single.opening):
        return row
    ids = np.insert(row.ids, 0, separator)
    return Framed(ids, np.insert(row.segments, 0, 0), np.insert(row.part, 0, -1))


def _each_last(
    reader: Reader, head: Any, texts: Sequence[str], rows: int, report: Callable[[int], None]
) -> list[Score]:
    """Text by text, each token asked in a row of its own, all rows remembering the texts before."""
    results: list[Score] = []
    carry: Mapping[str, Tensor] | None = None
    for ids in reader.ids(texts):
        row = reader.single([ids])
        asked, total = np.flatnonzero(reader.can_ask(row)), 0.0
        for start in range(0, len(asked), rows):
            some = asked[start : start + rows]
            read, at, targets = masked_each(reader, head, [row] * len(some), some)
            spread = None if carry is None else {name: x.expand(len(some), *x.shape[1:]) for name, x in carry.items()}
            states = reader.states(read, head.reads, asked=at, carry=spread)
            total += float(log_probabilities(reader, head, states, read, at, targets).double().sum())
        results.append(Score(total, len(asked), row.cut))
        if len(ids):
            alone = reader.continued(torch.from_numpy(ids).long().to(reader.device)[None], 0)
            carry = reader.states(alone, ("carry",), carry=carry).get("carry")
        report(1)
    return results
