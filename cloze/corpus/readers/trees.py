"""Sentences with their dependency trees: CoNLL-U (universaldependencies.org/format.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cloze.corpus.readers.tagged import CONLL_U
from cloze.corpus.readers.text_files import Line, lines
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError, counted, propose

HEAD, RELATION, DEPS = (CONLL_U.index(name) for name in ("head", "deprel", "deps"))
_ID = re.compile(r"(?P<word>[0-9]{1,9})(?:(?P<kind>[-.])(?P<second>[0-9]{1,9}))?")
_HEAD = re.compile(r"[0-9]{1,9}")


class Tree(NamedTuple):
    """A sentence: its first line, its words, the head of each word (0: the root, n: the n-th word) and the relation to it (empty
    if they were not read), the line of each word, and all lines of the sentence as in the file."""

    line: int
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    at: tuple[int, ...]
    rows: tuple[str, ...]


def each_tree(
    path: Path | str, *, text: str = "form", relation: str = "deprel", labelled: bool = True, fault: Fault | None = None
) -> Iterator[Tree]:
    """The sentences of a file one by one, in constant memory.

    `text` and `relation` name columns of CoNLL-U. Ranges of words (1-2) and empty nodes (1.1) are skipped. A sentence that is not
    CoNLL-U or, with `labelled`, not a tree (a head that is not a word, no root or several, a cycle, a word without a relation) is
    a `TaskError` with file and line; with `fault`, it is reported there and skipped.
    """
    places = []
    for name in (text, relation):
        if name not in CONLL_U:
            raise TaskError(f"{path}: no column {name!r} in CoNLL-U. {propose(name, CONLL_U)}")
        places.append(CONLL_U.index(name))
    found = 0
    for rows in _sentences(path):
        problems: list[tuple[int, str]] = []
        words = _words(rows, problems)
        if labelled and not problems:
            _check_tree(words, places[1], problems)
        problems += [(line, f"an empty {text!r}.") for line, cells in words if not problems and not cells[places[0]]]
        for line, why in problems:
            unusable(path, line, why, fault=fault)
        if problems or not words:
            continue
        found += 1
        yield Tree(
            rows[0].number, tuple(cells[places[0]] for _, cells in words),
            tuple(int(cells[HEAD]) for _, cells in words) if labelled else (),
            tuple(cells[places[1]] for _, cells in words) if labelled else (), tuple(line for line, _ in words),
            tuple(row.text for row in rows),
        )  # fmt: skip
    if not found and fault is None:
        raise TaskError(
            f"{path}: no sentences; expected CoNLL-U: ten tab-separated cells per word, and an empty line after each sentence."
        )


def _sentences(path: Path | str) -> Iterator[list[Line]]:
    rows: list[Line] = []
    for line in chain(lines(path), [Line(0, "")]):
        if line.text.strip():
            rows.append(line)
        elif rows:
            yield rows
            rows = []


def _words(rows: Sequence[Line], problems: list[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """The cells of each word of a sentence with their line; lines that are not CoNLL-U are reported."""
    words: list[tuple[int, list[str]]] = []
    ends = []  # of ranges
    for row in rows:
        if row.text.startswith("#"):
            continue
        cells = [cell.strip() for cell in row.text.split("\t")]
        if len(cells) != len(CONLL_U):
            found = counted(len(cells), "tab-separated cell")
            problems.append((row.number, f"{found}, expected the 10 of CoNLL-U ({', '.join(CONLL_U)})."))
            return []
        match = _ID.fullmatch(cells[0])
        expected = len(words) + (1 if match is not None and match["kind"] != "." else 0)
        if match is None or int(match["word"]) != expected:
            problems.append((row.number, f"the id {cells[0]!r}, expected {len(words) + 1}, a range such as {len(words) + 1}-"
                         f"{len(words) + 2} or an empty node such as {len(words)}.1."))  # fmt: skip
            return []
        if match["kind"] is None:
            words.append((row.number, cells))
        elif match["kind"] == "-":
            ends.append((row.number, int(match["second"])))
    beyond = [(line, end) for line, end in ends if end > len(words)]
    problems += [(line, f"a range up to the word {end}; the sentence has {len(words)}.") for line, end in beyond]
    return words


def _check_tree(words: Sequence[tuple[int, list[str]]], relation: int, problems: list[tuple[int, str]]) -> None:
    """Report why the heads of words do not form a tree with one root."""
    heads = []
    for number, (line, cells) in enumerate(words, start=1):
        head = cells[HEAD]
        if not _HEAD.fullmatch(head) or int(head) > len(words) or int(head) == number:
            expected = f"another word of the sentence, 1 to {len(words)}, or 0, the root."
            problems.append((line, f"the head {head!r}; expected {expected}"))
        if cells[relation] in ("", "_"):
            problems.append((line, f"an empty {CONLL_U[relation]!r}; expected the relation to the head."))
        heads.append(head)
    if problems:
        return
    roots = [words[place][0] for place, head in enumerate(heads) if head == "0"]
    if len(roots) > 1:
        problems.append((roots[1], f"a second root; the first is in line {roots[0]}."))
        return
    for place, (line, _) in enumerate(words):
        seen, at = set(), place + 1
        while at and at not in seen:
            seen.add(at)
            at = int(heads[at - 1])
        if at:  # without a root there is a cycle, too
            problems.append((line, f"the word {place + 1} is not connected to the root: its heads form a cycle."))
            return
