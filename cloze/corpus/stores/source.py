"""The base class of sources: the parts of a recipe that define which rows of a store an entry reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Required, TypedDict


class Address(TypedDict, total=False):
    """What a source is bound with besides its store: the address of its random numbers, the share of the documents that
    are held out, and the part of the documents that it reads."""

    seed: Required[int]
    entry: Required[str]
    held_out: float
    subset: Literal["train", "held_out"]


class Source(ABC):
    """The base class of every source.

    Attributes:
        gives: The fields of its rows.
        length: The most tokens of a row.
        builds_store: It reads files of its own, such as labelled text or triples, and builds them into a store (`knowing`,
            `build_store`).
        answer: The type of label of its records.
        own_vocabulary: Its store has a vocabulary of its own, so that a recipe without another source needs no `text`.
        lanes: Row i of a step continues row i of the step before, so `bind` takes the number of `lanes`.
        of_one_length: Rows of similar length share batches, so `bind` takes the `batch`.
        keeps_empty: A text without tokens keeps the tokens of its template.
        puts_back: The second part of a passage may begin the next one, so `bind` takes `put_back`, the share of the passages
            whose second part is replaced by other text.
        static: Rows have the same random numbers in every epoch.
        smooth: The exponent of the shares of its languages; None: their own proportions.
        needs_whole: Why it cannot read a store shard by shard, in words; empty: it can.
        text_format: The format that its files must have; None: any.
        of_rows: The arguments that change rows and not the store.
    """

    builds_store: ClassVar[bool] = False
    own_vocabulary: ClassVar[bool] = False
    of_one_length: ClassVar[bool] = False
    keeps_empty: bool = False
    text_format: ClassVar[str | None] = None
    of_rows: ClassVar[frozenset[str]] = frozenset()
    lanes: bool = False
    puts_back: bool = False
    static: bool = False
    smooth: float | None = None
    needs_whole: str = "this source reads a store as a whole"
    answer: Any = None
    gives: frozenset[str]

    def texts(self, paths: Sequence[str | Path]) -> Iterable[str] | None:
        """The texts of its own files that a tokenizer is trained on if none is given; None: it has a tokenizer or needs one."""
        return None

    @abstractmethod
    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """The source over one store: `bind(store, seed=, entry=, held_out=, subset=)`."""
