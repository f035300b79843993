"""Texts whose words are labelled: a word a line, empty lines between texts (CoNLL), CoNLL-U, lists in JSON lines or Parquet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from cloze.corpus.readers.labelled import OPTION, UNTRAINED, Format, Trained
from cloze.corpus.readers.objects import OBJECTS, holds_objects, objects
from cloze.corpus.readers.text_files import Line, cells_of, lines, stripped
from cloze.corpus.readers.unusable import Fault, FaultCounter, unusable
from cloze.errors import MessagePiece, Parameter, Phrase, TaskError, counted, propose
from cloze.text.characters import ideograph

#: The columns of CoNLL-U (universaldependencies.org/format.html).
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_SENTENCES = '  For whole sentences, split at spaces, use JSON lines: {"text": "It rains ."}'
_TOGETHER = 1000  # texts looked at together
_LONGEST = 12  # ideographs of a word
_BETWEEN = "-DOCSTART-"  # begins a document of CoNLL-2003, in a line of its own
_COMMENT = re.compile(r"# (\S+ = |(id|newdoc|newpar)\b)")  # of CoNLL-U and MultiCoNER, before the words of a text
_PAIR = re.compile(r"[^|]+(\|[^|]+)+")  # `Anna|B-PER`, in spaCy's files of sentences
_DEFAULTS = {"text": "form", "label": "upos"}  # in CoNLL-U, which has no columns of these names
_TELLING = 8  # lines with equally many words, without which they may be texts by chance
_Rows = list[tuple[int, list[str]]]  # the cells of each word of a text, with their line


@dataclass(frozen=True)
class TaggedSentences:
    """Texts as words, the label of each word (None if the file has none), the file, and the line of each text.

    `running` holds each text that was given as a string, whose `words` are the parts between spaces; else None. `pictures` are
    the keys of the pictures that the texts are about (None for tasks without pictures).
    """

    words: list[tuple[str, ...]]
    labels: list[tuple[str, ...]] | None
    path: str
    lines: tuple[int, ...]
    running: tuple[str | None, ...] = ()
    pictures: list[str] | None = None

    def __len__(self) -> int:
        return len(self.words)


def read_tagged(
    path: Path | str, *, text: str, label: str, columns: Sequence[str] | None, format: Format | None, labelled: bool,
    trained: Trained = UNTRAINED,
) -> TaggedSentences:
    """The texts of a file; without `labelled`, labels are optional.

    In JSON lines and Parquet, `text` and `label` are lists; a text that is a string is split at spaces, and without labels it is
    kept as it is. The same holds for every line of a .txt file, and of a file with only lines of text. Other files have one word
    per line, with cells between tabs (or ASCII blanks, if the first line has no tab), and an empty line after each text.
    `columns` names the cells; the default is those of training if there are as many, else `text` and `label`, or the columns of
    CoNLL-U for a file with that ending, where `text` is form and `label` upos. Comments, ranges (1-2) and empty nodes (1.1) of
    CoNLL-U are skipped.
    """
    texts = list(
        each_tagged(path, text=text, label=label, columns=columns, format=format, labelled=labelled, trained=trained)
    )
    labels = [tagged.labels for tagged in texts if tagged.labels is not None]
    if labels and len(labels) < len(texts):
        raise TaskError(f"{path}: only {len(labels)} of {len(texts)} texts have {label!r}; expected all or none.")
    return TaggedSentences(
        [tagged.words for tagged in texts], labels or None, str(path), tuple(tagged.line for tagged in texts),
        tuple(tagged.running for tagged in texts),
    )


class TaggedText(NamedTuple):
    """The first line of a text, its words, their labels if they were read, the line of each word, and the text itself if it was
    given as a string."""

    line: int
    words: tuple[str, ...]
    labels: tuple[str, ...] | None
    at: tuple[int, ...]
    running: str | None = None


def each_tagged(
    path: Path | str, *, text: str, label: str, columns: Sequence[str] | None, format: Format | None, labelled: bool = True,
    fault: Fault | None = None, like: Parameter = OPTION, trained: Trained = UNTRAINED,
) -> Iterator[TaggedText]:
    """The texts of a file one by one, in constant memory; see `read_tagged`.

    A text that cannot be used is reported to `fault` with its line, if given, and skipped. `like` chooses the column of the text.
    """
    if format in ("csv", "fasttext") or format is None and ".csv" in Path(path).suffixes[-2:]:
        where = like.sibling("format", format) if format else str(path)
        raise TaskError(
            where,
            ": labelled words are read from tsv (in each line a word, a tab and its label, and an empty line after each text) or "
            f"JSON lines (jsonl), not from {format or 'csv'}. An example of a line of JSON:\n"
            '  {"text": ["Anna", "slept"], "label": ["B-PER", "O"]}',
        )
    faults = FaultCounter(fault)
    if format in OBJECTS or format is None and holds_objects(path):
        examples = _objects(path, text, label, labelled, format, faults.report, like)
    elif not labelled and columns is None and format is None and _is_running(path, label, trained, like):
        _refuse_labelled_words(path, trained)
        examples = _running(path)
    else:
        examples = _lines(path, text, label, columns, labelled, faults.report, like, trained)
    first = next(examples, None)
    if first is not None:
        yield from chain([first], examples)
    elif not faults.count:
        raise TaskError(f"{path}: no texts; expected one word with its label per line and an empty line after each text.")


def _objects(
    path: Path | str, text: str, label: str, labelled: bool, format: Format | None, fault: Fault | None, like: Parameter
) -> Iterator[TaggedText]:
    for number, record in objects(path, fault, format=format, only=(text, label)):
        try:
            tagged = _tagged(number, record, text, label, labelled or label in record, like)
        except _Wrong as wrong:
            unusable(path, number, *wrong.args, fault=fault)
        else:
            yield tagged


def _is_running(path: Path | str, label: str, trained: Trained, like: Parameter) -> bool:
    """Whether a file that need not have labels holds lines of running text: a .txt file, or one whose lines are not single words.

    No line has a tab, and most have a space, or more ideographs than any word has. Lines with equally many cells of which one is
    a label of the run are words with labels, also in a .txt file. Without such labels, a `TaskError` asks what the lines of any
    other file are.
    """
    if str(path) == "-":
        return False  # it can be read once only
    if ".txt" in Path(path).suffixes[-2:]:
        return not holds_labels(path, label, trained)
    begins = [line.text for line in islice(lines(path), _TOGETHER)]
    filled = [text for text in begins if stripped(text)]
    sentences = sum(" " in stripped(text) or sum(map(ideograph, text)) > _LONGEST for text in filled)
    if any("\t" in text for text in filled) or 2 * sentences <= len(filled):
        return False
    return not _is_table(path, begins, label, trained, like)


def holds_labels(path: Path | str, label: str, trained: Trained) -> bool:
    """Whether a file has words with labels of the run, in texts that empty lines separate."""
    begins = [line.text for line in islice(lines(path), _TOGETHER)]
    return _is_table(path, begins, label, trained, OPTION, asks=False)


def _is_table(
    path: Path | str, begins: Sequence[str], label: str, trained: Trained, like: Parameter, *, asks: bool = True
) -> bool:
    """Whether lines with spaces are words with cells that describe them: known labels, or blocks between empty lines, tell."""
    rows = [cells for text in begins if (cells := cells_of(text)) and not _is_between(text)]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    if width < 2:
        return False
    last = trained.columns.index(label) if trained.columns and len(trained.columns) == width and label in trained.columns else -1
    matches = sum(len(cells) == width and cells[last] in trained.labels for cells in rows)  # other lines may be headings
    if 2 * matches > len(rows):
        return True
    if any(len(cells) != width for cells in rows):
        return False
    in_blocks = len(rows) < len(begins) and any(stripped(a) and stripped(b) for a, b in zip(begins, begins[1:], strict=False))
    if not in_blocks or len(rows) < _TELLING or not asks:
        return False
    raise TaskError(
        f"{path}: every line has {width} words, and empty lines separate groups of lines: these may be words with labels, or "
        "texts.\n  For words with labels, name the columns in order, such as ",
        _naming(width, "text", "label", like) if width > 2 else like.sibling("columns", ("text", "label")),
        "; for a text per line, give the file the ending .txt.",
    )


def _refuse_labelled_words(path: Path | str, trained: Trained) -> None:
    """Raise a `TaskError` for a text in which most words of most lines have a label of the run behind a bar or a slash."""
    texts = [(line.number, cells) for line in islice(lines(path), _TOGETHER) if (cells := cells_of(line.text))]
    for separator in "|/":
        endings = tuple(f"{separator}{label}" for label in trained.labels)
        labelled = [(number, cells) for number, cells in texts if 2 * sum(cell.endswith(endings) for cell in cells) > len(cells)]
        if texts and 2 * len(labelled) > len(texts):
            number, cells = labelled[0]
            label = f"{separator}[^ {separator}]*"
            raise TaskError(
                f"{path}:{number}: {cells[0]!r} is a word with a label of this run behind {separator!r}; expected words alone.\n"
                f"  Remove the labels: sed -e 's,{label} , ,g' -e 's,{label}$,,' {path} > NEW"
            )


def _running(path: Path | str) -> Iterator[TaggedText]:
    for line in lines(path):
        if words := tuple(cells_of(line.text)):
            yield TaggedText(line.number, words, None, (line.number,) * len(words), line.text)


class _Wrong(Exception):
    """What is wrong with a text."""


_FORM = (
    '  Expected a label for each word: {"text": ["Anna", "Smith", "sings"], "label": ["B-PER", "I-PER", "O"]}. Offsets of '
    "characters, as spaCy and doccano write them, are not read: cut the texts into words first."
)


def _tagged(number: int, record: dict[str, Any], text: str, label: str, labelled: bool, like: Parameter) -> TaggedText:
    words = _listed(record, text, like, is_text=True)
    at = (number,) * len(words)
    if not labelled:
        return TaggedText(number, words, None, at, record[text] if isinstance(record[text], str) else None)
    labels = _listed(record, label, like.sibling("label", "NAME"), is_text=False)
    if len(words) != len(labels):
        raise _Wrong(f"{len(words)} words and {len(labels)} labels; expected one label for each word.")
    return TaggedText(number, words, labels, at)


def _listed(record: dict[str, Any], name: str, parameter: Parameter, *, is_text: bool) -> tuple[str, ...]:
    if name not in record:
        form = "" if is_text else f"\n{_FORM}"
        raise _Wrong(f"no field {name!r}. {propose(name, record)}", Phrase(" Choose a field with ", parameter, "."), form)
    value = record[name]
    if is_text:
        value = cells_of(value) if isinstance(value, str) else value
    elif isinstance(value, list):  # labels may be numbers
        value = [str(label) if isinstance(label, int) and not isinstance(label, bool) else label for label in value]
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and stripped(word) for word in value):
        if not is_text:
            raise _Wrong(f"{name!r} is not a list of labels.\n{_FORM}")
        raise _Wrong(f"{name!r} is not a list of words; expected strings that are not empty: [\"A\", \"word\"].")
    return tuple(map(stripped, value))


def _lines(
    path: Path | str, text: str, label: str, columns: Sequence[str] | None, labelled: bool, fault: Fault | None, like: Parameter,
    trained: Trained,
) -> Iterator[TaggedText]:
    universal = Path(path).name.removesuffix(".gz").removesuffix(".xz").endswith(".conllu")
    if universal and columns is None:
        text, label = (name if name in CONLL_U else _DEFAULTS.get(name, name) for name in (text, label))
    stream = _texts(path, universal)
    names: tuple[str, ...] | None = None
    while texts := list(islice(stream, _TOGETHER)):
        first = texts[0][0][0] if names is None else None
        begins = names is None
        if names is None:
            _refuse_pairs(path, texts)
            names = tuple(columns) if columns else CONLL_U if universal else _names(len(texts[0][0][1]), text, label, trained)
        texts = _of_width(path, texts, names, first, _naming(len(texts[0][0][1]), text, label, like), fault)
        word = _place(path, names, text, like)
        if begins and not universal:
            _refuse_sentences(path, texts, names, text)
        label_column = _place(path, names, label, like.sibling("label", "NAME")) if labelled or label in names else None
        for rows in _filled(path, texts, {text: word} | ({} if label_column is None else {label: label_column}), fault):
            labels = None if label_column is None else tuple(cells[label_column] for _, cells in rows)
            yield TaggedText(rows[0][0], tuple(cells[word] for _, cells in rows), labels, tuple(number for number, _ in rows))


def _naming(width: int, text: str, label: str, like: Parameter) -> Parameter:
    """The parameter that names the columns of a file with so many cells in a line."""
    return like.sibling("columns", (text, *"xyzuvwabcdefghi"[: max(width - 2, 1)], label))


def _names(width: int, text: str, label: str, trained: Trained) -> tuple[str, ...]:
    """The names of the cells of a file whose first line has `width` of them."""
    of_run = trained.columns or ()
    return of_run if len(of_run) == width else (text, label)[:width]


def _of_width(
    path: Path | str, texts: Sequence[_Rows], names: Sequence[str], first: int | None, naming: Parameter, fault: Fault | None
) -> list[_Rows]:
    """The texts whose rows have a cell for each name; `first` is the first line of the file, `naming` how to name the columns.

    Where all lines have another number of cells, the whole file is at fault."""
    widths = {len(cells) for rows in texts for _, cells in rows}
    fault = None if first is not None and len(widths) == 1 and len(names) not in widths else fault
    complete_count = sum(len(cells) == len(names) for rows in texts for _, cells in rows)
    mostly = 2 * complete_count > sum(map(len, texts))
    complete_texts = []
    for rows in texts:
        wrong = [(number, cells) for number, cells in rows if len(cells) != len(names)]
        for number, cells in wrong:
            if mostly and number == rows[0][0]:
                way_out: tuple[MessagePiece, ...] = ("  A heading or a comment? Delete the line.",)
            elif number == first:
                way_out = (Phrase("  Name all columns in order, such as ", naming, "\n"), _SENTENCES)
            else:
                way_out = ("  Correct the line; if it is the last one, the file is truncated: copy it again.",)
            cells_here = f"{counted(len(cells), 'cell')}, expected {len(names)} ({', '.join(names)})"
            unusable(path, number, f"{cells_here}.\n", *way_out, fault=fault)
        if not wrong:
            complete_texts.append(rows)
    return complete_texts


def _refuse_pairs(path: Path | str, texts: Sequence[_Rows]) -> None:
    """Raise a `TaskError` for a file of sentences with the label of each word behind a bar, whose pairs would become words."""
    rows = [(number, cells) for rows in texts for number, cells in rows]
    if all(_PAIR.fullmatch(cell) for _, cells in rows for cell in cells):
        raise TaskError(
            f"{path}:{rows[0][0]}: a word and its label with '|' between them; expected one word per line.\n"
            "  Replace spaces by line breaks and bars by tabs, and put an empty line after each text: "
            f"sed G {path} | tr ' |' '\\n\\t'"
        )


def _refuse_sentences(path: Path | str, texts: Sequence[_Rows], names: Sequence[str], text: str) -> None:
    """Raise a `TaskError` for a table of whole sentences, whose cells would otherwise become long words."""
    if not texts:
        return
    number, cells = texts[0][0]
    if len(names) > 1 and cells == list(names):
        raise TaskError(
            f"{path}:{number}: this line is a header ({', '.join(cells)}); a file of labelled words has none.\n"
            f"  Delete this line if every other line is a word and its label. {_SENTENCES.strip()}"
        )
    column = names.index(text)
    spaced = [(line, row[column]) for rows in texts for line, row in rows if " " in row[column]]
    if 2 * len(spaced) > sum(map(len, texts)):
        line, word = spaced[0]
        raise TaskError(
            f"{path}:{line}: {word[:40]!r} is not a word; expected one word per line and an empty line after each text.\n"
            f"{_SENTENCES}"
        )


def _texts(path: Path | str, universal: bool) -> Iterator[_Rows]:
    rows: _Rows = []
    tabs: bool | None = None
    for line in chain(lines(path), [Line(0, "")]):
        if not stripped(line.text):
            if rows:
                yield rows
            rows = []
            continue
        if universal and line.text.startswith("#") or not rows and _is_between(line.text):
            continue
        tabs = "\t" in line.text if tabs is None else tabs
        cells = [stripped(cell) for cell in line.text.split("\t")] if tabs else cells_of(line.text)
        if universal and not cells[0].isdecimal():
            continue
        rows.append((line.number, cells))


def _is_between(line: str) -> bool:
    """Whether a line stands before the words of a text: the beginning of a document, or a comment."""
    return cells_of(line)[:1] == [_BETWEEN] or bool(_COMMENT.match(line))


def _place(path: Path | str, names: Sequence[str], name: str, parameter: Parameter) -> int:
    """The place of a column among those of a file."""
    if name in names:
        return list(names).index(name)
    missing = f"{path}: no column {name!r}; it has: {', '.join(names)}."
    if names == CONLL_U:
        words, labels = Phrase("", parameter.sibling("text", "form"), " "), parameter.sibling("label", "upos")
        raise TaskError(f"{missing}\n  For CoNLL-U, choose words and labels, for example ", words, labels)
    columns = Phrase(", or name the columns in order: ", parameter.sibling("columns", ("text", "label")))
    raise TaskError(missing, Phrase("\n  Choose a column with ", parameter), columns)


def _filled(
    path: Path | str, texts: Sequence[_Rows], places: Mapping[str, int], fault: Fault | None
) -> Iterator[_Rows]:
    """The texts whose cells in the columns of these names and places are not empty."""
    for rows in texts:
        empty = [(number, name) for name, column in places.items() for number, cells in rows if not cells[column]]
        for number, name in empty:
            unusable(path, number, f"an empty {name!r}; expected one in every line.", fault=fault)
        if not empty:
            yield rows
