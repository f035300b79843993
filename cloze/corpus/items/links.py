"""Links of captions: which words of a text mean which item of its picture, as a JSON-lines file says it.

    {"image": "1.png", "caption": "a cat on a mat", "links": [[2, 5, 0], [11, 14, 1]]}

A link is the first character of a mention, the one after its last, and the number of an item, from 0. Where `caption` is a list
of texts, `links` is a list with the links of each. `corpus/records/build_records.py` stores them as the labelled layer `linked`,
of which the edit `link_items` makes links of tokens with items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import Format
from cloze.corpus.readers.objects import OBJECTS, fields_of, holds_objects, objects
from cloze.errors import CorpusError, counted
from cloze.text.annotation.annotator import Unit
from cloze.text.annotation.mentions import cut_of, fault_of

if TYPE_CHECKING:
    from cloze.corpus.records.answer import Record

#: The key of the links in a line of captions, and the layer that they become. A label of the layer is the number of an item.
LINKS, LINKED = "links", "linked"
_FORM = "expected [[first character, the one after the last, number of an item], …], such as [[2, 5, 0]]"


def has_links(paths: Iterable[str | Path], format: Format | None) -> bool:
    """Whether one of the files says which words mean which items; tables with columns cannot."""
    return any(LINKS in fields_of(path, format=format) for path in paths if _of_objects(path, format))


class RecordLinks:
    """The links of records that are read in the order of their files.

    `largest` is the largest number of an item that a record names. `column` holds the texts.
    """

    def __init__(self, column: str, format: Format | None) -> None:
        self.column, self.format = column, format
        self.largest = -1
        self._path, self._line = "", 0
        self._rows: Iterator[tuple[int, Mapping[str, Sequence[Unit]]]] = iter(())
        self._own: Mapping[str, Sequence[Unit]] = {}
        self._most: dict[int, tuple[int, str]] = {}  # by picture: the largest number of an item, and where it is named

    def units(self, path: str, records: Sequence[Record], pictures: Sequence[int]) -> list[Sequence[Unit]]:
        """The links of every text of some records of a file, which show these pictures; only a record's first text has any."""
        if path != self._path:
            self._path, self._line, self._rows = path, 0, links_of(path, self.column, self.format)
        units: list[Sequence[Unit]] = []
        for record, picture in zip(records, pictures, strict=True):
            while self._line < record.line:
                self._line, self._own = next(self._rows, (record.line, {}))
            links = self._own.get(record.texts[0], ()) if self._line == record.line else ()
            units += [links, *([()] * (len(record.texts) - 1))]
            largest = max((item for _, _, item in links), default=-1)
            self.largest = max(self.largest, largest)
            if largest > self._most.get(picture, (-1, ""))[0]:
                self._most[picture] = largest, f"{path}:{record.line}"
        return units

    def require(self, name: str, counts: NDArray[np.int64], keys: Sequence[str]) -> None:
        """Raise a `CorpusError` if a record names an item that its picture does not have; `counts` are those of the pictures."""
        for picture, (item, where) in self._most.items():
            if item >= counts[picture]:
                raise CorpusError(
                    f"{where}: a link names item {item} of the picture {keys[picture]!r}, which has "
                    f"{counted(int(counts[picture]), 'item')} {name!r}.\n  Items count from 0, in the order of the file of items."
                )


def links_of(path: str | Path, column: str, format: Format | None) -> Iterator[tuple[int, Mapping[str, Sequence[Unit]]]]:
    """For every line of a file the links of its texts, by text. Links that cannot be used are a `CorpusError`."""
    if not _of_objects(path, format):
        return
    for line, record in objects(path, lambda line, why: None, format=format, only=(column, LINKS)):
        texts, links = record.get(column), record.get(LINKS)
        where = f"{path}:{line}"
        if links is None:
            yield line, {}
        elif isinstance(texts, str):
            yield line, {texts: checked_links(texts, links, where)}
        elif isinstance(texts, list) and isinstance(links, list) and len(links) == len(texts):
            every = [(text, text_links) for text, text_links in zip(texts, links, strict=True) if isinstance(text, str)]
            yield line, {text: checked_links(text, text_links or [], where) for text, text_links in every}
        else:
            count = f"{len(texts)} texts" if isinstance(texts, list) else "no text"
            raise CorpusError(f"{where}: {count} in {column!r} and links {str(links)[:60]}; expected a list of links for each.")


def checked_links(text: str, links: Any, where: str) -> list[Unit]:
    """The links of one text in order: (first character, the one after the last, item)."""
    if not isinstance(links, list) or not all(
        isinstance(link, list) and len(link) == 3 and all(type(number) is int for number in link) for link in links
    ):
        raise CorpusError(f"{where}: links {str(links)[:60]}; {_FORM}.")
    units: list[Unit] = []
    for start, stop, item in sorted(links):
        problem = fault_of(text, start, stop, f"item {item}") or cut_of(text, start, stop)
        if problem is None and item < 0:
            problem = f"the mention {start}–{stop} names item {item}; items count from 0"
        if problem is None and units and start < units[-1][1]:
            problem = f"the mention {start}–{stop} overlaps {units[-1][0]}–{units[-1][1]}; expected one item for each word"
        if problem is not None:
            raise CorpusError(f"{where}: {problem}.\n  Offsets count the characters of the text, from 0: {_FORM}.")
        units.append((start, stop, item))
    return units


def _of_objects(path: str | Path, format: Format | None) -> bool:
    return holds_objects(path) if format is None else format in OBJECTS
