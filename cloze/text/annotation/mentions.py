"""Annotations of given texts: mentions of entities in JSON lines, and columns of CoNLL-U files.

A file names each text and its units. A corpus may be cut into sentences in other ways than the file, but only white space is
lost: units are therefore counted in characters that are not white space, and texts are found by these.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.text.annotation.annotator import Annotator, Unit
from cloze.text.annotation.annotators import Labels, Naming
from cloze.text.characters import extends, inside_run
from cloze.text.encodings import readable
from cloze.text.matching import read_bytes, read_text
from cloze.text.sentences import split_sentences
from cloze.untrusted import parse_json

_SHOWN = 5  # faults named in one message


class Given(NamedTuple):
    """One text of a file, with the number of its line, and its units: (start, stop, name of the label)."""

    line: int
    text: str
    units: Sequence[tuple[int, int, str]]


class TextUnits:
    """The units of the sentences of given texts, found by their characters without white space.

    A sentence that occurs in several texts with other units has those of the first. A unit that crosses the border of two
    sentences is marked in both.
    """

    def __init__(self, texts: Iterable[Given], naming: Naming | None = None) -> None:
        naming = naming or Naming(None, "")
        self.units: dict[int, tuple[Unit, ...]] = {}
        self.record: dict[int, int] = {}
        self.lines: list[tuple[int, str]] = []
        self.count = 0
        for line, text, units in texts:
            solid, plain = _solid(text)
            numbered = [
                (bisect_left(solid, start), bisect_left(solid, stop), number) for start, stop, label in units
                if (number := naming.of(label)) is not None
            ]
            self.count += len(numbered)
            new = False
            for low, high in _ranges(text):
                inside = tuple((max(a, low) - low, min(b, high) - low, label) for a, b, label in numbered if a < high and b > low)
                key = _key(plain[low:high])
                if inside and key not in self.units:
                    self.units[key], self.record[key], new = inside, len(self.lines), True
            if new:
                self.lines.append((line, text[:60]))
        self.labels = tuple(naming.names)

    def of(self, text: str) -> list[Unit]:
        """The units of a sentence."""
        solid, plain = _solid(text)
        return [(solid[a], solid[b - 1] + 1, label) for a, b, label in self.units.get(_key(plain), ())]

    def matched_records(self, texts: Sequence[str]) -> frozenset[int]:
        """The records, by number, that have one of these sentences."""
        numbers = (self.record.get(_key(_plain(text))) for text in texts)
        return frozenset(number for number in numbers if number is not None)


class FileAnnotator(Annotator):
    """An annotator that reads texts and their units from a `file`. Without one it stands for the layer of a store that has been
    built already.

    `other_texts: ignore` accepts units of texts that the corpus does not have; otherwise they are an error.
    """

    labelled = True

    def __init__(self, kind: str, file: str | None, settings: Mapping[str, Any], other_texts: str) -> None:
        self.kind, self.file, self.other_texts = kind, file, other_texts
        self._settings = dict(settings)
        self._found: TextUnits | None = None
        self._hash: str | None = None
        if file is not None:
            where = f"text.annotate: {kind}.file"
            data = read_bytes(file, where)
            about = json.dumps([kind, self._settings], sort_keys=True).encode()
            self._hash = hashlib.sha256(about + b"\0" + data).hexdigest()
            self._found = self.units_of(read_text(file, where))
            if not self._found.count:
                raise RecipeError(f"{file}: none of its texts has a unit, so there is nothing to annotate.")

    @abstractmethod
    def units_of(self, content: str) -> TextUnits:
        """The units of the texts that a file holds."""

    @property
    def hash(self) -> str | None:
        """A hash of the file's content and of the settings; None without a file."""
        return self._hash

    @property
    def found(self) -> TextUnits:
        """The units of the texts of the file."""
        if self._found is None:
            raise RecipeError(f"text.annotate: {self.kind} names no file.")
        return self._found

    @property
    def labels(self) -> Sequence[str]:
        """The names of the labels, in the order in which the file mentions them."""
        return () if self._found is None else self._found.labels

    def annotate(self, text: str) -> list[Unit]:
        """The units of a sentence; none if the file does not have it."""
        return self.found.of(text)

    def matched_records(self, texts: Sequence[str]) -> frozenset[int]:
        """The records that have one of these sentences."""
        return self.found.matched_records(texts)

    def require_matches(self, matched_records: frozenset[int]) -> None:
        """Raise `CorpusError` if a record with units is not in the corpus."""
        missing = [entry for number, entry in enumerate(self.found.lines) if number not in matched_records]
        if not missing or (self.other_texts == "ignore" and len(missing) < len(self.found.lines)):
            return
        line, text = missing[0]
        raise CorpusError(
            f"{self.file}:{line}: the corpus has no such text: {text!r}. {len(missing):,} of {len(self.found.lines):,} texts "
            f"with units are not in it. Nothing was written.\n"
            "  Give the file that belongs to this corpus (cloze link TEXT --entities FILE writes one), or accept other texts in "
            f"a recipe: {self.kind}: {{file: FILE, other_texts: ignore}}."
        )


@register("annotator", "mentions")
class Mentions(FileAnnotator):
    """Mentions of entities, linked to their ids: JSON lines `{"text": …, "spans": [{"start": 0, "end": 5, "id": "Q42"}]}`.

    `text` is a line, a paragraph or a document of the corpus; `start` and `end` count its characters (not bytes), end excluded.
    The order of the lines does not matter. The labels of the layer are the ids. `cloze link` writes such a file.

    Args:
        file: The JSON lines. A recipe may omit it if the store that it is trained on has the layer.
        cut_words: What to do with a mention that begins or ends inside a word: `refuse` it, or `widen` it to the whole word.
        other_texts: `ignore` texts that the corpus does not have, or `refuse` them.
    """

    def __init__(
        self, *, file: str | None = None, cut_words: Literal["refuse", "widen"] = "refuse",
        other_texts: Literal["refuse", "ignore"] = "refuse",
    ) -> None:
        self.cut_words = cut_words
        super().__init__("mentions", file, {"cut_words": cut_words}, other_texts)

    def units_of(self, content: str) -> TextUnits:
        """The mentions of every text."""
        return TextUnits(record for record in self.records(content) if record.units)

    def records(self, content: str) -> Iterator[Given]:
        """All texts with their mentions. All faults are reported together, with their lines."""
        faults = MentionFaults(str(self.file))
        for number, row in enumerate(content.split("\n"), 1):
            if row and not row.isspace():
                record = self._record(row, number, faults)
                if record is not None:
                    yield record
        faults.check()

    def _record(self, row: str, line: int, faults: MentionFaults) -> Given | None:
        try:
            record = parse_json(row)
            text, spans = record["text"], record["spans"]
            marked = [(span["start"], span["end"], span["id"]) for span in spans]
        except (ValueError, KeyError, TypeError):
            faults.add(line, 'expected {"text": "…", "spans": [{"start": 0, "end": 5, "id": "…"}]}')
            return None
        if not isinstance(text, str):
            faults.add(line, "`text` is not text")
            return None
        text = readable([text])[0]
        units: list[tuple[int, int, str]] = []
        for start, end, name in sorted(marked, key=str) if not _integers(marked) else sorted(marked):
            problem = fault_of(text, start, end, name)
            if problem is None and self.cut_words == "widen":
                start, end = widened(text, start, end)
            problem = problem or cut_of(text, start, end)
            if problem is None and units and start < units[-1][1]:
                problem = f"the mention {start}–{end} overlaps {units[-1][0]}–{units[-1][1]}; expected one entity per place"
            if problem is None:
                units.append((start, end, name))
            else:
                faults.add(line, problem)
        return Given(line, text, units)


@register("annotator", "conllu")
class Conllu(FileAnnotator):
    """A column of a CoNLL-U file: the label of every word of its sentences.

    Args:
        file: The file; its comments `# text = …` must be the sentences of the corpus. A recipe may omit it if the store that it
            is trained on has the layer.
        column: The column with the labels.
        labels: The labels that count, in the order of their numbers, or labels of the file that count as one by its name
            (`{noun: [NOUN, PROPN], verb: [VERB, AUX]}`); default: all.
        other_texts: `ignore` sentences that the corpus does not have, or `refuse` them.
    """

    def __init__(
        self, *, file: str | None = None, column: Literal["upos", "xpos", "lemma", "deprel"] = "upos",
        labels: Labels | None = None, other_texts: Literal["refuse", "ignore"] = "refuse",
    ) -> None:
        self.column = column
        self._naming = Naming(labels, "conllu")
        super().__init__("conllu", file, {"column": column, "labels": labels}, other_texts)

    def units_of(self, content: str) -> TextUnits:
        """The labels of the words of every sentence."""
        return TextUnits(self._sentences(content), self._naming)

    def _sentences(self, content: str) -> Iterator[Given]:
        """The sentences with their words. All faults are reported together, with their lines."""
        faults = MentionFaults(str(self.file))
        column = {"lemma": 2, "upos": 3, "xpos": 4, "deprel": 7}[self.column]
        text, first, words = "", 0, list[tuple[str, str]]()
        covered = 0  # the words up to this number are written as one (2-3 don't)
        for number, row in enumerate([*content.split("\n"), ""], 1):
            row = row.rstrip("\r")
            if not row:
                if words:
                    yield from _sentence(text, first, words, faults)
                text, words, covered = "", [], 0
            elif row.startswith("#"):
                name, equals, value = row[1:].partition("=")
                if equals and name.strip() == "text":
                    text, first = value.strip(), number
            else:
                cells = row.split("\t")
                if len(cells) != 10:
                    faults.add(number, f"{len(cells)} columns; CoNLL-U has 10, with a tab between them")
                elif "-" in cells[0]:
                    words.append((cells[1], cells[column]))
                    covered = int(cells[0].partition("-")[2])
                elif "." not in cells[0] and int(cells[0]) > covered:
                    words.append((cells[1], cells[column]))
        faults.check()


def _sentence(text: str, line: int, words: list[tuple[str, str]], faults: MentionFaults) -> Iterator[Given]:
    """One sentence of a CoNLL-U file; words without a label (`_`) are left out."""
    if not text:
        faults.add(line, "a sentence has no comment `# text = …`")
        return
    end, units = 0, []
    for word, label in words:
        start = text.find(word, end)
        if start < 0:
            faults.add(line, f"the word {word!r} is not in the text {text[:60]!r}")
            return
        end = start + len(word)
        if label != "_":
            units.append((start, end, label))
    yield Given(line, text, units)


class MentionFaults:
    """The faults of a file, reported together."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[str] = []
        self.count = 0

    def add(self, line: int, problem: str) -> None:
        """Note one fault."""
        self.count += 1
        if len(self.found) < _SHOWN:
            self.found.append(f"{self.file}:{line}: {problem}.")

    def check(self) -> None:
        """Raise `CorpusError` if there are any."""
        if not self.count:
            return
        more = f"\n… and {self.count - len(self.found):,} more." if self.count > len(self.found) else ""
        raise CorpusError(
            "\n".join(self.found) + more + "\n  Offsets count the characters of the raw text, from 0, the end excluded. A "
            "mention inside a word can be widened to it: --annotate 'NAME=mentions:{file: FILE, cut_words: widen}'."
        )


def _integers(marked: Sequence[tuple[Any, Any, Any]]) -> bool:
    return all(type(start) is int and type(end) is int and isinstance(name, str) for start, end, name in marked)


def fault_of(text: str, start: Any, end: Any, name: Any) -> str | None:
    """What is wrong with a mention, None for nothing."""
    if not _integers([(start, end, name)]) or not name or name != name.strip() or any(c.isspace() and c != " " for c in name):
        return f"the mention {start!r}–{end!r} of {name!r}: expected two whole numbers, and an id without line breaks and tabs"
    if not 0 <= start < end <= len(text):
        return f"the mention {start}–{end} of {name} is outside the text, which has {len(text)} characters, or empty"
    for position in (start, end):
        if position < len(text) and extends(text[position]):
            return f"the mention {start}–{end} of {name} cuts a character: {text[max(position - 1, 0) : position + 1]!r}"
    if text[start:end].isspace():
        return f"the mention {start}–{end} of {name} is white space"
    return None


def cut_of(text: str, start: int, end: int) -> str | None:
    """Which word a mention cuts, None if it cuts none."""
    if not inside_run(text, start) and not inside_run(text, end):
        return None
    first, last = widened(text, start, end)
    return f"the mention {start}–{end}, {text[start:end]!r}, cuts a word of {text[first:last]!r}"


def widened(text: str, start: int, end: int) -> tuple[int, int]:
    """The bounds of the words that a span begins and ends in."""
    while inside_run(text, start):
        start -= 1
    while inside_run(text, end):
        end += 1
    return start, end


def _solid(text: str) -> tuple[list[int], str]:
    """The places of the characters that are not white space (or NUL, which readers drop), and the characters."""
    places = [position for position, character in enumerate(text) if not character.isspace() and character != "\0"]
    return places, _plain(text)


def _plain(text: str) -> str:
    return "".join(text.split()).replace("\0", "")


def _key(plain: str) -> int:
    return int.from_bytes(hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _ranges(text: str) -> dict[tuple[int, int], None]:
    """The places, without white space, of everything that a reader may take for a sentence of this text."""
    ranges: dict[tuple[int, int], None] = {}
    lines = text.split("\n")

    def mark(pieces: Iterable[str], start: int) -> int:
        for piece in pieces:
            size = len(_plain(piece))
            if size:
                ranges[start, start + size] = None
            start += size
        return start

    position = 0
    for line in lines:
        mark([line], position)
        position = mark(split_sentences(line), position)
    if len(lines) > 1:  # lines that are cut at a margin are joined
        mark(split_sentences(" ".join(line.strip() for line in lines)), 0)
        mark([text], 0)
    return ranges
