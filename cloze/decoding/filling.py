"""Fill masks: the most probable tokens at every [MASK] of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cloze import html_parts
from cloze.decoding.layout import Framed
from cloze.decoding.links import LABELS, Links, labels_of, with_links
from cloze.decoding.marks import marks_around
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.exercises.items.link_items import LinkItems
from cloze.text.annotation.annotator import Unit


@dataclass(frozen=True)
class Candidate:
    """A candidate for a mask: `word` is its text, `text` the whole text with the mask replaced by it."""

    id: int
    piece: str
    word: str
    probability: float
    text: str


@dataclass(frozen=True)
class Filled:
    """A text and the candidates for each of its masks, the most probable first; `best` is the text with the masks filled."""

    given: str
    masks: tuple[tuple[Candidate, ...], ...]
    best: str

    def _repr_html_(self) -> str:
        """The candidates of each mask in a row, for notebooks."""
        rows = [
            {"mask": number, **{str(rank): f"{c.word} {100 * c.probability:.1f} %" for rank, c in enumerate(candidates, 1)}}
            for number, candidates in enumerate(self.masks, 1)
        ]  # fmt: skip
        return html_parts.table(rows, caption=self.given)


def fill(
    reader: Reader, head: Any, texts: Sequence[str], *, top: int = 5, rows: int = 32, links: Links | None = None
) -> list[Filled]:
    """The `top` most probable tokens for every mask of every text, with their probabilities; [UNK] is no answer.

    Probabilities are over the whole vocabulary. Masks of one text are filled independently of each other, all others
    staying masked, as in pre-training; `best` puts the most probable token at each. `links` say which words of the texts mean
    which item of the picture that the reader shows. A text without a mask, or longer than the network can read, is a `UserError`.
    """
    framed = [_frame(reader, text, links.units[number] if links else None) for number, text in enumerate(texts)]
    filled: dict[int, Filled] = {}
    for index in reader.batches([len(row) for row in framed], rows=rows):
        filled_batch = _fill_batch(
            reader, head, [framed[i] for i in index], [texts[i] for i in index], top, links.edit if links else None
        )
        filled.update(zip(index.tolist(), filled_batch, strict=True))
    return [filled[i] for i in range(len(texts))]


def _frame(reader: Reader, text: str, units: Sequence[Unit] | None) -> Framed:
    mask = reader.tokenizer.role("[MASK]")
    ids = np.asarray(reader.tokenizer.encode_template(text).ids, np.int32)
    literal = reader.tokenizer.literals.get("[MASK]", "[MASK]")
    if not (ids == mask).any():
        raise UserError(f"{text[:60]!r}: no mask to fill. Write {literal} where a word is missing.")
    linked = {} if units is None else {LABELS: labels_of(reader.tokenizer, ids, text, units)}
    framed = reader.single_layout([ids]).marked([{**marks_around(reader, ids, text), **linked}])
    if ((framed.ids == mask) & (framed.part == 0) & ~reader.predictable(framed)).any():
        raise UserError(
            f"{text[:60]!r}: this network predicts a token from the position before it, and the first {literal} has none.\n"
            f"  Put a word before {literal}."
        )
    if reader.max_length is not None and len(framed) > reader.max_length:
        raise UserError(
            f"{text[:60]!r}…: {len(framed)} tokens; this network reads at most {reader.max_length}. Shorten the text."
        )
    return reader.with_facts([framed], reader.max_length)[0]


@torch.inference_mode()
def _fill_batch(
    reader: Reader, head: Any, framed: Sequence[Framed], texts: Sequence[str], top: int, link: LinkItems | None
) -> Iterator[Filled]:
    batch = reader.batch(framed)
    batch = batch if link is None else with_links(batch, framed, link)
    mask = reader.tokenizer.role("[MASK]")
    positions = torch.nonzero((batch["tokens"] == mask).flatten()).flatten()
    inputs, at = reader.prediction_inputs(head, batch, positions)
    scores = reader.token_scores(head, reader.states(inputs, head.reads, positions=at), inputs, at)
    shares = scores.softmax(-1)
    shares = shares[..., : reader.tokenizer.size]  # rows after the last id are padding of the table
    unknown = reader.tokenizer.roles.get("[UNK]")
    if unknown is not None:
        shares[..., unknown] = -1.0
    best = shares.topk(min(top, shares.shape[-1] - (unknown is not None)), dim=-1)
    owner = (positions // batch["tokens"].shape[1]).tolist()
    answers: list[list[tuple[list[int], list[float]]]] = [[] for _ in framed]
    for row, ids, probabilities in zip(owner, best.indices.tolist(), best.values.tolist(), strict=True):
        answers[row].append((ids, probabilities))
    for row, text, row_answers in zip(framed, texts, answers, strict=True):
        yield _filled(reader, row, text, row_answers)


def _filled(reader: Reader, row: Framed, masked_text: str, answers: Sequence[tuple[list[int], list[float]]]) -> Filled:
    tokenizer = reader.tokenizer
    inner = row.ids[row.part == 0]
    holes = np.flatnonzero(inner == tokenizer.role("[MASK]"))
    masks = []
    for hole, (ids, probabilities) in zip(holes, answers, strict=True):
        candidates = []
        for token, probability in zip(ids, probabilities, strict=True):
            completion = inner.copy()
            completion[hole] = token
            word = tokenizer.decode([token], skip_special=False).strip()
            text = tokenizer.decode(completion, skip_special=False)
            candidates.append(Candidate(token, tokenizer.piece(token), word, probability, text))
        masks.append(tuple(candidates))
    best = inner.copy()
    best[holes] = [ids[0] for ids, _ in answers]
    return Filled(masked_text, tuple(masks), tokenizer.decode(best, skip_special=False))
