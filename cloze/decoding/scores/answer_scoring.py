"""The probability of a text as the answer to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cloze.decoding.generating.forms import form_of
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.reader import Reader
from cloze.decoding.scores.scoring import Score
from cloze.errors import Parameter, Phrase, UserError


@dataclass(frozen=True)
class _Row:
    source: Framed
    target: Ids


@torch.inference_mode()
def score_answers(
    reader: Reader,
    head: Any,
    texts: Sequence[str],
    targets: Sequence[str],
    *,
    truncate: bool = False,
    rows: int = 64,
    report: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """The score of every target: the sum of log P(token | its text and the tokens before), natural logarithms.

    Unlike the score of a text alone, it includes the end token, without which every prefix of a target would be at least as
    probable, and all else that the network writes (BART writes the first token of its template). `[MASK]` and other literals in a
    text have their meaning, as for `generate`, and so have sentinels in a target (T5). Text that is longer than the network
    can read is a `UserError` unless `truncate` cuts it; `cut` then counts the tokens of both that did not fit.
    """
    form = form_of(reader)
    pairs, lost = [], []
    for number, (text, target) in enumerate(zip(texts, targets, strict=True), start=1):
        ids = np.asarray(reader.tokenizer.encode_template(text).ids, np.int32)
        asked_ids = np.asarray(reader.tokenizer.targets.encode_template(target).ids, np.int32)
        answer, cut = form.target(asked_ids)
        source = form.source(ids, max_new=len(answer))
        if cut + source.cut and not truncate:
            raise UserError(
                f"text {number}, {text[:40]!r}: {source.cut} of its {len(ids)} tokens and {cut} of the {len(asked_ids)} of its "
                f"answer do not fit, this network reads at most {reader.max_length} at once.\n  Shorten them, or give --truncate."
            )
        pairs.append(_Row(source, answer))
        lost.append(cut + source.cut)
    sums = [0.0] * len(pairs)
    for index in reader.batches([len(row.source) for row in pairs], rows=rows):
        for number, value in zip(index, form.log_probabilities(head, [pairs[i] for i in index]), strict=True):
            sums[number] = value
        report(len(index))
    return [Score(total, len(row.target), cut) for total, row, cut in zip(sums, pairs, lost, strict=True)]


def split_pairs(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Texts and targets of lines with a tab between them; a line without is a `UserError`."""
    pairs = [line.split("\t") for line in lines]
    for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), start=1):
        if len(pair) != 2:
            raise UserError(
                f"text {number}, {line[:40]!r}: {len(pair) - 1} tabs, expected one. This network scores a text as the answer to "
                "another.\n  Write TEXT<tab>TARGET",
                Phrase(", or give a ", Parameter("file", ".tsv, .csv or .jsonl", "option"), " with columns text and target"), ".",
            )
    return [text for text, _ in pairs], [target for _, target in pairs]
