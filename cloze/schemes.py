"""Schemes of labels for words: which words belong together by their labels, and where labels break their scheme. No torch.

Labels are of the scheme BIO, BIOES, BMES, whose M- is I-, or BILOU, whose U- is S- and whose L- is E-. A network that labels word
by word breaks it now and then, and files do: a *repair rule* says which spans such labels mean.
"""

from __future__ import annotations

import re
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


#: Ways to write the label `B-PER`, this one first, then: `B` where there is one kind only, `B_PER`, `PER-B` or `PER_B`; in small
#: letters, too.
_WAYS = tuple(
    re.compile(way, re.IGNORECASE)
    for way in (
        r"(?P<prefix>[BIESLUM])-(?P<kind>.+)", r"(?P<prefix>[BIESLUM])(?P<kind>)", r"(?P<prefix>[BIESLUM])_(?P<kind>.+)",
        r"(?P<kind>.+)[-_](?P<prefix>[BIESLUM])",
    )
)  # fmt: skip
_ONLY_KIND = "_"  # as seqeval calls it


def standard(names: Iterable[str]) -> dict[str, str]:
    """For the labels of a data set that writes its scheme in another way than `B-PER`, that form of each.

    All labels but O must be written in the same way, and in another than `B-PER` some must begin a span and others continue one:
    parts of speech may be `B` or `S_X`, too.

    >>> standard(["O", "B", "I"]), standard(["PER_B", "PER_I", "O"]), standard(["B-PER", "I-PER", "O"]), standard(["B", "E", "V"])
    ({'B': 'B-_', 'I': 'I-_'}, {'PER_B': 'B-PER', 'PER_I': 'I-PER'}, {}, {})
    """
    every = set(names)
    outside = {"O"} if "O" in every else {"o"} & every
    for way in _WAYS:
        read = {name: match for name in sorted(every - outside) if (match := way.fullmatch(name))}
        prefixes = {match["prefix"].upper() for match in read.values()}
        continued = prefixes & set("IELM") or way is _WAYS[0]
        if len(read) == len(every - outside) and "B" in prefixes and continued:
            forms = {name: f"{match['prefix'].upper()}-{match['kind'] or _ONLY_KIND}" for name, match in read.items()}
            return {name: form for name, form in (forms | dict.fromkeys(outside, "O")).items() if name != form}
    return {}


def in_form(labels: Sequence[str], forms: Mapping[str, str]) -> tuple[str, ...]:
    """Labels in their standard form."""
    return tuple(forms.get(label, label) for label in labels)


def _read(label: str) -> _Label:
    """`O` is no part of a span; a label without a prefix, as a part of speech is, is a span of its own."""
    if label == "O":
        return _Label("O", "")
    return _Label(_PREFIXES[label[0]], label[2:]) if has_prefix(label) else _Label("S", label)


def has_prefix(label: str) -> bool:
    """Whether a label says in the standard form how its word belongs to a span.

    >>> has_prefix("B-PER"), has_prefix("O"), has_prefix("B-"), has_prefix("T-shirt")
    (True, False, False, False)
    """
    return label[:1] in _PREFIXES and label[1:2] == "-" and len(label) > 2


def closes(labels: Iterable[str]) -> bool:
    """Whether the labels of a data set are of a scheme that marks where spans end (BIOES, BILOU): some label has such a mark."""
    return any(label[:2] in ("E-", "S-", "L-", "U-") for label in labels)


def spans(labels: Sequence[str], *, repair: Repair = "begin", closed: bool = False) -> set[Span]:
    """The spans of one text as (first word, word behind the last, kind).

    B- and S- begin a span; I- and E- continue one of their kind that B- or I- left open. What else they do, `repair` says.
    `closed`: the scheme marks ends, so that with `drop` a span without an end does not count.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "NOUN"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'NOUN')]
    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "NOUN"], repair="drop"))
    [(0, 2, 'PER'), (4, 5, 'NOUN')]
    """
    chunks: set[Span] = set()
    start, open_kind, sound = 0, "", True  # of the open span, if there is a kind; sound: begun as the scheme has it
    for index, label in enumerate([*map(_read, labels), _Label("O", "")]):
        goes_on = label.prefix in ("I", "E") and open_kind == label.kind
        if open_kind and not goes_on:
            if repair == "begin" or (sound and not closed):
                chunks.add((start, index, open_kind))
            open_kind = ""
        if not goes_on and label.prefix != "O":
            start, open_kind, sound = index, label.kind, label.prefix in ("B", "S")
        if label.prefix in ("S", "E"):
            if repair == "begin" or sound:
                chunks.add((start, index + 1, open_kind))
            open_kind = ""
    return chunks


def breaks(labels: Sequence[str], *, closed: bool = False) -> list[int]:
    """The places where labels break their scheme, ascending: what continues nothing of its kind, and, where the scheme marks ends
    (`closed`), the last word of a span that is not ended.

    >>> breaks(["O", "I-PER", "I-PER", "B-LOC", "E-PER"]), breaks(["B-PER", "O", "S-LOC"], closed=True)
    ([1, 4], [0])
    """
    positions: list[int] = []
    before = _Label("O", "")
    for index, label in enumerate([*map(_read, labels), _Label("O", "")]):
        open_before = before.prefix in ("B", "I")
        goes_on = label.prefix in ("I", "E") and open_before and before.kind == label.kind
        if closed and open_before and not goes_on:
            positions.append(index - 1)
        if label.prefix in ("I", "E") and not goes_on:
            positions.append(index)
        before = label
    return sorted(set(positions))


def may_follow(before: str | None, label: str | None, *, closed: bool = False) -> bool:
    """Whether a label may follow another in its scheme; None is the beginning and the end of a text.

    >>> may_follow("B-PER", "I-PER"), may_follow("O", "I-PER"), may_follow("B-PER", None), may_follow("B-PER", None, closed=True)
    (True, False, True, False)
    """
    first, second = (_Label("O", "") if name is None else _read(name) for name in (before, label))
    open_before = first.prefix in ("B", "I")
    if second.prefix in ("I", "E"):
        return open_before and first.kind == second.kind
    return not (closed and open_before)
