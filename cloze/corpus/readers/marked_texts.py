"""Texts in which spans are marked, and a label for each: JSON lines, or Parquet with the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cloze.corpus.readers.objects import objects, refuse_table
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError, propose
from cloze.untrusted import without_surrogates


class Bounds(NamedTuple):
    """The characters of a span: the first, and one past the last."""

    start: int
    stop: int


@dataclass(frozen=True)
class Marked:
    """A text with its spans, its label (None where it has none), and the line it comes from."""

    line: int
    text: str
    spans: tuple[Bounds, ...]
    label: str | None


@dataclass(frozen=True)
class MarkedTexts:
    """The texts of a file, and the keys of the pictures that they are about (None for tasks without pictures)."""

    each: list[Marked]
    path: str
    pictures: list[str] | None = None

    def __len__(self) -> int:
        return len(self.each)


class TextFields(NamedTuple):
    """What the fields of a text are called."""

    text: str = "text"
    spans: str = "spans"
    label: str = "label"


def read_marked(path: Path | str, names: TextFields, *, labelled: bool = True) -> MarkedTexts:
    """All texts of a file; see `each_marked`."""
    return MarkedTexts(list(each_marked(path, names, labelled=labelled)), str(path))


def each_marked(
    path: Path | str, names: TextFields, *, labelled: bool = True, fault: Fault | None = None
) -> Iterator[Marked]:
    """The texts of a file of JSON lines. A text that cannot be used is reported to `fault`, if given, and skipped.

    `{"text": "Anna lives in Rome", "spans": [[0, 4], [14, 18]], "label": "lives_in"}`: a span is [start, end) in characters. If
    `text` is a list of words, spans count words. All texts have as many spans as the first. Without `labelled`, labels are
    optional.
    """
    spans: int | None = None
    refuse_table(path, _FORM.strip())
    for line, record in objects(path, fault, only=names):
        try:
            marked = _marked(line, record, names, labelled or names.label in record)
            if spans is not None and len(marked.spans) != spans:
                raise _Wrong(f"{len(marked.spans)} spans; expected {spans}, as in the first text.")
        except _Wrong as wrong:
            unusable(path, line, str(wrong), fault=fault)
        else:
            spans = len(marked.spans)
            yield marked
    if spans is None and fault is None:
        raise TaskError(f"{path}: no texts; expected at least one JSON object with {names.text!r} and {names.spans!r}.")


_FORM = (
    '  Expected: {"text": "Anna lives in Rome", "spans": [[0, 4], [14, 18]], "label": "lives_in"}. Other names of the three: '
    "--set corpus.text=NAME, --set corpus.answer.class_of_spans.spans=NAME, --set corpus.label=NAME"
)


class _Wrong(Exception):
    """What is wrong with a text."""


def _marked(line: int, record: dict[str, Any], names: TextFields, labelled: bool) -> Marked:
    for name in (names.text, names.spans, *([names.label] if labelled else [])):
        if name not in record:
            raise _Wrong(f"no field {name!r}. {propose(name, record)}\n{_FORM}")
    text, begins = _text(record[names.text], names.text)
    pairs = record[names.spans]
    if not isinstance(pairs, list) or not pairs or not all(_pair(pair) for pair in pairs):
        raise _Wrong(f"{names.spans!r} is not a list of pairs; expected the start and the end of each span: [[0, 4]].")
    label = record[names.label] if labelled else None
    if labelled and (not isinstance(label, (str, int)) or isinstance(label, bool) or not str(label).strip()):
        raise _Wrong(f"{names.label!r} is {'empty' if label == '' else repr(label)[:40]}; expected a label.")
    spans = tuple(_bounds(pair, text, begins) for pair in pairs)
    return Marked(line, text, spans, None if label is None else str(label).strip())


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) and not isinstance(n, bool) for n in value)


def _text(value: Any, name: str) -> tuple[str, list[Bounds] | None]:
    """A text, and where it is a list of words their characters."""
    if isinstance(value, str) and value.strip():
        return without_surrogates(value), None
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise _Wrong(f"{name!r} is not text; expected a text that is not empty, or a list of words.")
    words, begins, position = [without_surrogates(word) for word in value], [], 0
    for word in words:
        begins.append(Bounds(position, position + len(word)))
        position += len(word) + 1
    return " ".join(words), begins


def _bounds(pair: list[int], text: str, words: list[Bounds] | None) -> Bounds:
    start, stop = pair
    most = len(text) if words is None else len(words)
    if not 0 <= start < stop <= most:
        what = "characters" if words is None else "words"
        raise _Wrong(f"the span [{start}, {stop}] is not in the text of {most} {what}; expected 0 <= begin < end <= {most}.")
    bounds = Bounds(start, stop) if words is None else Bounds(words[start].start, words[stop - 1].stop)
    if not text[bounds.start : bounds.stop].strip():
        raise _Wrong(f"the span [{start}, {stop}] holds white space only.")
    return bounds
