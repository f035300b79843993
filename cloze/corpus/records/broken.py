"""Counts, by file, labels that violate their scheme while records are read, and reports them with the line of the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cloze.schemes import breaks, closes, has_prefix, standard

_LIKE_O = ("o", "0")


def _where(labels: Sequence[str], place: int) -> str:
    """What a label that breaks its scheme stands next to: before it, or, if nothing ends its span, after it."""
    if place in breaks(labels):
        return f"after {labels[place - 1]}" if place else "at the start of a text"
    return f"before {labels[place + 1]}" if place + 1 < len(labels) else "at the end of a text"


class Broken:
    """Counts violations of both schemes. Whether the scheme is BIO, or one that marks ends, is known only after all labels."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # of the first of each label
        self.counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # by whether ends are marked: by file
        self.first: dict[tuple[bool, str], str] = {}

    def add(self, path: str, labels: Sequence[str], at: Sequence[int]) -> None:
        """The labels of one text and the line of each."""
        for label, line in zip(labels, at, strict=True):
            self.places.setdefault(label, f"{path}:{line}")
        for closed, counts in self.counts.items():
            for index in breaks(labels, closed=closed):
                counts[path] += 1
                self.first.setdefault((closed, path), f"{path}:{at[index]}: {labels[index]} {_where(labels, index)}")

    def remarks(self) -> tuple[str, ...]:
        """A remark for each file in which labels violate their scheme."""
        closed = closes(self.places)
        remarks = self._unprefixed()
        for path, count in self.counts[closed].items():
            more = f", as do {count - 1:,} more labels in this file" if count > 1 else ""
            remarks.append(
                f"{self.first[closed, path]} breaks the scheme {'BIOES' if closed else 'BIO'}{more}. Training uses them "
                "unchanged; where spans are counted, a label that continues no span starts one."
            )
        return tuple(remarks)

    def _unprefixed(self) -> list[str]:
        """A remark on each label without a prefix, such as a zero for O, where others have one."""
        kinds = {label for label in self.places if label != "O"}
        bare = sorted(label for label in kinds if not has_prefix(label))
        if len(bare) == len(kinds) or standard(self.places):
            return []
        if 2 * len(bare) >= len(kinds):
            bare = [label for label in bare if label in _LIKE_O]
        return [
            f"{self.places[label]}: the label {label!r} has no prefix, as others have: where spans are counted, each of its "
            "words is one. If it means that a word is in no span, write O."
            for label in bare
        ]
