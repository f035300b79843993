"""Spans of labelled words: which words belong together by their labels, and how many spans were found."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int, str]
_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "U": "S", "L": "E"}


def spans(labels: Sequence[str]) -> set[Span]:
    """The spans of one text as (first word, word behind the last, kind).

    `O` is no part of any. B- and S- begin a span; I- and E- continue one of their kind that B- or I- left open, and otherwise
    begin one, as the CoNLL-2000 evaluation has it. BILOU's U- is S- and its L- is E-.
    A label without such a prefix, as in tags of parts of speech, is a span of its own.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "NOUN"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'NOUN')]
    """
    found: set[Span] = set()
    start, open_kind = 0, None
    for place, label in enumerate([*labels, "O"]):
        prefix, dash, kind = label.partition("-")
        if dash and prefix in _PREFIXES:
            prefix = _PREFIXES[prefix]
        else:
            prefix, kind = "S", label
        goes_on = prefix in ("I", "E") and kind == open_kind
        if not goes_on:
            if open_kind is not None:
                found.add((start, place, open_kind))
            start, open_kind = place, kind
        if label == "O":
            open_kind = None
        elif prefix in ("S", "E"):
            found.add((start, place + 1, kind))
            open_kind = None
    return found


def span_f1(truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> float:
    """F1 of the spans of many texts, bounds and kind both right; 0 where there is none on either side."""
    true, guessed, right = 0, 0, 0
    for own, said in zip(truth, guess, strict=True):
        a, b = spans(own), spans(said)
        true, guessed, right = true + len(a), guessed + len(b), right + len(a & b)
    return 2 * right / (true + guessed) if true + guessed else 0.0
