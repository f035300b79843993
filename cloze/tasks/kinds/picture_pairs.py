"""Classify a text about two pictures, which is read with each of them, or with both in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.registry import register
from cloze.tasks.kinds.classification import Classification, Classifier
from cloze.tasks.pictures import numbers_of, picture_numbers
from cloze.tasks.texts import LabelledTexts, head_of_task


@dataclass(frozen=True)
class PicturePairs(Classification):
    """A task whose labels are classes of a text with two pictures, whose keys are in `picture` and `picture_b`."""

    name: str = "picture_pair_classification"
    one_text: ClassVar[bool] = False

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Classifier:
        """The classifier of a fine-tuned folder: its head scores the rows of an owner together, or each row."""
        head = head_of_task(loaded, task_json)
        of_pictures = PairClassifier if "owner" in head.takes else JoinedClassifier
        return of_pictures(Reader.of(loaded), head, self, length=task_json.get("length"), labels=task_json["labels"])


@dataclass(frozen=True)
class PairedRows:
    """The rows of an example: its text with the one picture, and with the other."""

    rows: tuple[Framed, Framed]

    def __len__(self) -> int:
        return len(self.rows[0])

    @property
    def cut(self) -> int:
        """How many tokens of the text did not fit."""
        return self.rows[0].cut


class JoinedClassifier(Classifier):
    """A network that reads a text with both pictures of an example in one row, and a head on the summary of that."""

    def with_pictures(self, rows: list[Framed], examples: LabelledTexts[Any]) -> list[Framed]:
        """Framed rows next to both pictures of their examples."""
        second = numbers_of(self.reader, examples.path, examples.pictures_b)
        with_first = super().with_pictures(rows, examples)
        return [replace(row, picture_b=number) for row, number in zip(with_first, second, strict=True)]


class PairClassifier(Classifier):
    """A network and a head that scores the classes of both rows of an example together."""

    def encode(self, examples: LabelledTexts[Any]) -> list[PairedRows]:
        """The rows of each example."""
        framed = self.reader.encode(examples.texts, max_length=self.length)
        first, second = picture_numbers(self.reader, examples), numbers_of(self.reader, examples.path, examples.pictures_b)
        return [
            PairedRows((replace(row, picture=one), replace(row, picture_b=other)))
            for row, one, other in zip(framed, first, second, strict=True)
        ]

    def scores(self, rows: Sequence[Any]) -> torch.Tensor:
        """Scores (B, C) of examples in fp32."""
        batch = self.reader.batch([framed for example in rows for framed in example.rows])
        owner = torch.arange(len(rows), device=self.reader.device).repeat_interleave(2)
        states = self.reader.states(batch, self.head.reads)
        with self.reader.autocast():
            read = {name: states[name] for name in self.head.reads}
            scores: torch.Tensor = self.head.scores(read, Batch({**batch, "owner": owner}, checked=True)).float()
        return scores


@register("task", "picture_pair_classification")
def picture_pair_classification(
    text: str = "text", label: str = "label", picture: str = "image", picture_b: str = "image_b"
) -> PicturePairs:
    """The class of a text about two pictures, such as whether it is true of them (NLVR2). The arguments are names of columns."""
    return PicturePairs(text, None, label, picture=picture, picture_b=picture_b)
