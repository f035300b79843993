"""Schemes of labels for words: which words belong together by their labels, and where labels break their scheme. No torch.

Labels are of the scheme BIO, BIOES, BMES, whose M- is I-, or BILOU, whose U- is S- and whose L- is E-. A network that labels word
by word breaks it now and then, and files do: a *repair rule* says which spans such labels mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Span = tuple[int, int, str]
#: `begin`: a label that continues nothing begins a span, and a span ends where its labels do, as in the evaluation of CoNLL-2000
#: (`conlleval`). `drop`: only spans that are written as the scheme has them count; the other labels mean nothing.
Repair = Literal["begin", "drop"]
_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "U": "S", "L": "E", "M": "I"}


class _Label(NamedTuple):
    prefix: str
    kind: str


def _read(label: str) -> _Label:
    """`O` is no part of a span; a label without a prefix, as a part of speech is, is a span of its own."""
    prefix, _, kind = label.partition("-")
    if label == "O":
        return _Label("O", "")
    return _Label(_PREFIXES[prefix], kind) if kind and prefix in _PREFIXES else _Label("S", label)


def closes(labels: Iterable[str]) -> bool:
    """Whether the labels of a data set are of a scheme that marks where spans end (BIOES, BILOU): some label has such a mark."""
    return any(label[:2] in ("E-", "S-", "L-", "U-") for label in labels)


def with_kinds(names: Iterable[str]) -> Mapping[str, str]:
    """The labels of a data set with a kind, where they are marks of a scheme alone, such as `B`, `I` and `O`.

    Empty for all others: a part of speech may be a single letter, too.

    >>> sorted(with_kinds(["O", "B", "I"]).items()), with_kinds(["B", "I", "NOUN"]), with_kinds(["B-PER", "I-PER"])
    ([('B', 'B-span'), ('I', 'I-span')], {}, {})
    """
    marks = {*names} - {"O"}
    alone = "B" in marks and len(marks) > 1 and marks <= _PREFIXES.keys()
    return {mark: f"{mark}-span" for mark in marks} if alone else {}


def spans(labels: Sequence[str], *, repair: Repair = "begin", closed: bool = False) -> set[Span]:
    """The spans of one text as (first word, word behind the last, kind).

    B- and S- begin a span; I- and E- continue one of their kind that B- or I- left open. What else they do, `repair` says.
    `closed`: the scheme marks ends, so that with `drop` a span without an end does not count.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "NOUN"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'NOUN')]
    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "NOUN"], repair="drop"))
    [(0, 2, 'PER'), (4, 5, 'NOUN')]
    """
    found: set[Span] = set()
    start, open_kind, sound = 0, "", True  # of the open span, if there is a kind; sound: begun as the scheme has it
    for place, label in enumerate([*map(_read, labels), _Label("O", "")]):
        goes_on = label.prefix in ("I", "E") and open_kind == label.kind
        if open_kind and not goes_on:
            if repair == "begin" or (sound and not closed):
                found.add((start, place, open_kind))
            open_kind = ""
        if not goes_on and label.prefix != "O":
            start, open_kind, sound = place, label.kind, label.prefix in ("B", "S")
        if label.prefix in ("S", "E"):
            if repair == "begin" or sound:
                found.add((start, place + 1, open_kind))
            open_kind = ""
    return found


def breaks(labels: Sequence[str], *, closed: bool = False) -> list[int]:
    """The places where labels break their scheme, ascending: what continues nothing of its kind, and, where the scheme marks ends
    (`closed`), the last word of a span that is not ended.

    >>> breaks(["O", "I-PER", "I-PER", "B-LOC", "E-PER"]), breaks(["B-PER", "O", "S-LOC"], closed=True)
    ([1, 4], [0])
    """
    found: list[int] = []
    before = _Label("O", "")
    for place, label in enumerate([*map(_read, labels), _Label("O", "")]):
        open_before = before.prefix in ("B", "I")
        goes_on = label.prefix in ("I", "E") and open_before and before.kind == label.kind
        if closed and open_before and not goes_on:
            found.append(place - 1)
        if label.prefix in ("I", "E") and not goes_on:
            found.append(place)
        before = label
    return sorted(set(found))


def may_follow(before: str | None, label: str | None, *, closed: bool = False) -> bool:
    """Whether a label may follow another in its scheme; None is the beginning and the end of a text.

    >>> may_follow("B-PER", "I-PER"), may_follow("O", "I-PER"), may_follow("B-PER", None), may_follow("B-PER", None, closed=True)
    (True, False, True, False)
    """
    first, second = (_Label("O", "") if one is None else _read(one) for one in (before, label))
    open_before = first.prefix in ("B", "I")
    if second.prefix in ("I", "E"):
        return open_before and first.kind == second.kind
    return not (closed and open_before)
