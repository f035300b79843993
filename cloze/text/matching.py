"""Maximum matching against a word list, shared by segmenters and annotators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cloze.errors import RecipeError, propose
from cloze.text.characters import inside_run, word_pattern
from cloze.text.encodings import decoded

Span = tuple[int, int]

#: A run of letters, digits and ideographs with their marks, or a single symbol.
RUNS = word_pattern()


class WordList:
    """Finds words in text, the longest first. A match never begins or ends inside a run of letters or digits."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(word for word in words if word)
        by_first: dict[str, set[int]] = {}
        by_last: dict[str, set[int]] = {}
        for word in self.words:
            by_first.setdefault(word[0], set()).add(len(word))
            by_last.setdefault(word[-1], set()).add(len(word))
        self._by_first = {first: tuple(sorted(sizes, reverse=True)) for first, sizes in by_first.items()}
        self._by_last = {last: tuple(sorted(sizes, reverse=True)) for last, sizes in by_last.items()}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def hash(self) -> str:
        """The sha256 of the sorted words."""
        return hashlib.sha256("\n".join(sorted(self.words)).encode("utf-8", "surrogatepass")).hexdigest()

    def spans(self, text: str) -> list[Span]:
        """The entries of the list in a text: (start, stop) in characters, from left to right, the longest match each time."""
        spans: list[Span] = []
        end = 0
        for at, character in enumerate(text):
            if at < end or character not in self._by_first or inside_run(text, at):
                continue
            size = self._longest_from(text, at)
            if size:
                spans.append((at, at + size))
                end = at + size
        return spans

    def forward(self, run: str) -> list[int]:
        """Where words begin in a run without white space, the longest word from the left each time."""
        starts, position = [], 0
        while position < len(run):
            starts.append(position)
            position += self._longest_from(run, position) or _atom_after(run, position)
        return starts

    def backward(self, run: str) -> list[int]:
        """Where words begin in a run without white space, the longest word from the right each time."""
        starts, position = [], len(run)
        while position > 0:
            position -= self._longest_to(run, position) or _atom_before(run, position)
            starts.append(position)
        return starts[::-1]

    def _longest_from(self, text: str, begin: int) -> int:
        for size in self._by_first.get(text[begin], ()):
            inside = begin + size <= len(text)  # else the slice is shorter than `size`
            if inside and text[begin : begin + size] in self.words and not inside_run(text, begin + size):
                return size
        return 0

    def _longest_to(self, text: str, end: int) -> int:
        for size in self._by_last.get(text[end - 1], ()):
            if size <= end and text[end - size : end] in self.words and not inside_run(text, end - size):
                return size
        return 0


def read_list(file: str, where: str) -> list[str]:
    """The entries of a list in a file: one per line, or in the format of jieba's dictionaries.

    A line with tabs gives its first column; a line whose second word is a number, its first word (jieba: word, frequency, part
    of speech). Any other line is one entry, spaces included. Lines that begin with `#` are comments.
    """
    lines = read_text(file, where).split("\n")
    entries = [_entry(line) for line in lines if not line.startswith("#")]
    nonempty = [entry for entry in entries if entry]
    if not nonempty:
        raise RecipeError(f"{where}: {file}: the list is empty; expected one entry per line.")
    return nonempty


def read_text(file: str, where: str) -> str:
    """The text of a file, in its encoding. Raises `RecipeError` if it is missing or its encoding is not certain; `where` names
    the argument."""
    return decoded(read_bytes(file, where), f"{where}: {file}", error=RecipeError)


def read_bytes(file: str, where: str) -> bytes:
    """The content of a file. Raises `RecipeError` if it is missing."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise RecipeError(f"{where}: {file}: is a folder, expected a file.")
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = propose(path.name, siblings) if siblings else "Give the path of a text file with one entry per line."
        raise RecipeError(f"{where}: {file}: no such file. {hint}")
    return path.read_bytes()


def listing(entries: Iterable[str]) -> bytes:
    """The content of a file that `read_list` reads as these entries, sorted. A leading space protects `#`."""
    return "".join(f"{' ' * entry.startswith('#')}{entry}\n" for entry in sorted(entries)).encode()


def _entry(line: str) -> str:
    first = line.split("\t", 1)[0].strip()
    head, _, rest = first.partition(" ")
    return head if rest and rest.split()[0].replace(".", "", 1).isdigit() else first


def _atom_after(run: str, position: int) -> int:
    size = 1
    while inside_run(run, position + size):
        size += 1
    return size


def _atom_before(run: str, position: int) -> int:
    size = 1
    while inside_run(run, position - size):
        size += 1
    return size
