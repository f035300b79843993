"""What an annotator is: a part that marks units of a text, and may give each of them a label."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from cloze.errors import RecipeError
from cloze.text.matching import Span

#: A unit of a text: its first character, the one after its last, and the number of its label.
Unit = tuple[int, int, int]


class Annotator(ABC):
    """A part registered under "annotator": picklable, with the same result for the same text in every process.

    `labelled`: its units have labels, whose names are `labels`. An annotator without a label finds the units alone.
    `of_any_text`: it marks any text, so that a trained network can use it, too; one that only knows the texts of its file cannot.
    """

    labelled: ClassVar[bool] = False
    of_any_text: ClassVar[bool] = False

    @property
    @abstractmethod
    def hash(self) -> str | None:
        """A hash of everything that decides the units; None if it names no file: a store of any file will do."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of the labels, in the order of their numbers."""
        return ()

    @abstractmethod
    def annotate(self, text: str) -> Sequence[Span | Unit]:
        """The units of a text: (start, stop) in characters, with labels (start, stop, label); ascending, without overlap."""

    def annotate_documents(self, texts: Sequence[str], documents: Sequence[int]) -> list[Sequence[Span | Unit]]:
        """The units of each text; `documents` counts the texts of each document, which stand one after another."""
        return [self.annotate(text) for text in texts]

    def matched_records(self, texts: Sequence[str]) -> frozenset[int]:
        """The records of its file that these texts match; empty for an annotator whose file does not name texts."""
        return frozenset()

    def require_matches(self, matched_records: frozenset[int]) -> None:  # noqa: B027  most annotators require nothing
        """Raise `CorpusError` if its file names texts that the corpus does not have; `matched_records` are those that it has."""

    def require_file(self, layer: str) -> None:
        """Raise `RecipeError` if it cannot mark a text, because it names no file."""
        if self.hash is None:
            raise RecipeError(
                f"text.annotate.{layer}: this text has to be annotated, and the annotator names no file.\n"
                f"  Name one (--set text.annotate.{layer}.file=FILE), or give a store that is annotated already: "
                f"cloze corpus build TEXT --annotate {layer}=PART:FILE --out STORE"
            )
