"""Predictions for the words of a text: labels, the position of each word, and the entities that labels form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloze.schemes import Repair, spans
from cloze.tasks.task import Prediction
from cloze.text.matching import Span


@dataclass(frozen=True)
class Entity:
    """Words that belong together: their kind, their text, its characters, the lowest probability of its words."""

    label: str
    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class LabelsOfWords(Prediction):
    """The words of one text, the line it begins at, the label of each and how probable that is.

    `text` is the text itself, or the words with spaces between them, and `offsets` are begin and end of each word in it, in
    characters. `entities`: None where labels are of no scheme, such as parts of speech.
    """

    line: int
    words: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    text: str
    offsets: tuple[Span, ...]
    entities: tuple[Entity, ...] | None

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        record = dict(self.__dict__)
        entities = record.pop("entities")
        return record if entities is None else {**record, "entities": [dict(entity.__dict__) for entity in entities]}

    def word_rows(self) -> list[dict[str, Any]]:
        """The words as rows of a table."""
        return [
            {"word": word, "label": label, "probability": probability, "start": start, "end": end}
            for word, label, probability, (start, end) in zip(
                self.words, self.labels, self.probabilities, self.offsets, strict=True
            )
        ]


def entities_of(
    text: str, offsets: Sequence[Span], labels: Sequence[str], probabilities: Sequence[float], *, repair: Repair, closed: bool
) -> tuple[Entity, ...]:
    """The names of a text, in their order.

    >>> places, labels = [(0, 2), (3, 6), (7, 11)], ["O", "B-LOC", "I-LOC"]
    >>> entities_of("in New Bern", places, labels, [1.0, 0.9, 0.8], repair="begin", closed=False)
    (Entity(label='LOC', text='New Bern', start=3, end=11, probability=0.8),)
    """
    entities = []
    for first, stop, kind in sorted(spans(labels, repair=repair, closed=closed)):
        start, end = offsets[first][0], offsets[stop - 1][1]
        entities.append(Entity(kind, text[start:end], start, end, min(probabilities[first:stop])))
    return tuple(entities)
