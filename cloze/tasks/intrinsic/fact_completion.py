"""Facts completed with entities: a head that knows replaced mentions ranks them (WKLM; `cloze evaluate --facts --complete`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cloze.batch import Batch
from cloze.decoding.bound_head import bind_head
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError
from cloze.objectives.tokens.outside import ClassifyOutside
from cloze.tasks.intrinsic.facts import (
    LEAK,
    LONG,
    MASK,
    FactPrompt,
    FactResults,
    fact_results,
    nothing_asked,
    ranks_of,
    without_leaks,
)
from cloze.tasks.task import Report, silent

EDGE = "a candidate is no token, or at the edge of what the network reads"


def completing_head(loaded: Checkpoint) -> Any:
    """The head that tells original mentions from replaced ones; a `CheckpointError` for a checkpoint without one."""
    name = next((name for name, head in loaded.heads.items() if isinstance(head, ClassifyOutside)), None)
    if name is None:
        raise CheckpointError(
            f"{loaded.folder}: this network has no head that tells original mentions from replaced ones.\n"
            "  Use a run of wklm, or rank single tokens: leave out --complete."
        )
    return bind_head(loaded.heads[name], loaded.reads.get(name))


def complete(
    reader: Reader, head: Any, facts: Sequence[FactPrompt], *, no_leaks: bool = False, rows: int = 32, report: Report = silent
) -> FactResults:
    """Rank all objects of a fact's relation by the probability that they are the original mention when they fill its gap
    (zero-shot fact completion, Xiong et al., 2020; `scripts/evaluate_kdn.py` of xwhan/fairseq-wklm, branch knowledge_pretrain).

    Objects may have several tokens. The best of several right answers counts, and equal scores share the mean of their ranks.
    Facts are counted as left out if a candidate makes them longer than the network reads.

    Differs: the candidates are the objects of the relation's facts in `facts`; the authors' script reads them from its file. The
    gap may stand anywhere; theirs is always the end of the text.
    """
    scored = without_leaks(facts) if no_leaks else facts
    candidates = {
        relation: list(dict.fromkeys(answer for fact in facts if fact.relation == relation for answer in fact.answers))
        for relation in {fact.relation for fact in facts}
    }
    left, ranked, ranks = Counter({LEAK: len(facts) - len(scored)}), list[FactPrompt](), list[float]()
    for fact in scored:
        names = candidates[fact.relation]
        filled = _filled(reader, fact, names)
        report(1)
        if isinstance(filled, str):
            left[filled] += 1
            continue
        scores = torch.zeros(1, len(names))
        for index in reader.batches([len(row) for row, *_ in filled], rows=rows):
            scores[0, index] = _scores(reader, head, [filled[number] for number in index])
        ranks.extend(ranks_of([tuple(names.index(answer) for answer in fact.answers)], scores))
        ranked.append(fact)
    if not ranked:
        raise nothing_asked(facts, left, "Give shorter sentences.")
    return fact_results(ranked, np.array(ranks), left)


def _filled(reader: Reader, fact: FactPrompt, names: Sequence[str]) -> list[tuple[Framed, int, int]] | str:
    """For each name in place of the gap: the row, and the columns before and after the name; or why the fact is left out."""
    start = fact.text.index(MASK)
    texts = [fact.text.replace(MASK, name) for name in names]
    spelled = reader.tokenizer.encode_spelled(texts)
    filled: list[tuple[Framed, int, int]] = []
    for number, (name, marks) in enumerate(zip(names, reader.marks(texts), strict=True)):
        tokens = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
        at = np.flatnonzero((spelled.end[tokens] > start) & (spelled.begin[tokens] < start + len(name)))
        row = reader.single_layout([spelled.ids[tokens]]).marked([marks])
        columns = np.flatnonzero(row.part == 0)[at]
        if reader.max_length is not None and len(row) > reader.max_length:
            return LONG
        if not len(columns) or columns[0] == 0 or columns[-1] + 1 == len(row):
            return EDGE
        (row,) = reader.with_facts([row], reader.max_length)
        before, after = row.columns_of(np.array([columns[0] - 1, columns[-1] + 1])).tolist()
        filled.append((row, before, after))
    return filled


@torch.inference_mode()
def _scores(reader: Reader, head: Any, filled: Sequence[tuple[Framed, int, int]]) -> torch.Tensor:
    """The logits (M,) of original mentions; their order is that of the authors' softmax over two classes."""
    batch = reader.batch([row for row, *_ in filled])
    starts = torch.arange(len(filled)) * batch["tokens"].shape[1]
    before, after = (starts + torch.tensor(columns) for columns in list(zip(*filled, strict=True))[1:])
    states = reader.states(batch, head.reads)
    places = {name: at.to(reader.device) for name, at in zip(head.at, (before, after), strict=True)}
    with reader.autocast():
        return head.scores(states, Batch({**batch, **places}, checked=True)).float().cpu()
