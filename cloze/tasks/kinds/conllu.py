"""Sentences to parse, and trees as CoNLL-U."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloze.corpus.readers.labelled import Format
from cloze.corpus.readers.objects import holds_objects
from cloze.corpus.readers.tagged import CONLL_U, read_tagged
from cloze.corpus.readers.trees import DEPS, HEAD, RELATION, each_tree
from cloze.text.matching import Span

GENERATOR = "# generator = cloze"  # as other parsers say in the first line of what they write


@dataclass(frozen=True)
class Trees:
    """Sentences as words; the head of each word (0: the root) and the relation to it, None where a file has none.

    `rows` are the lines of a sentence of CoNLL-U, None for others; `running` a text that was not given as words (see
    `TaggedSentences`).
    """

    words: list[tuple[str, ...]]
    heads: list[tuple[int, ...]] | None
    relations: list[tuple[str, ...]] | None
    path: str
    lines: tuple[int, ...]
    rows: tuple[tuple[str, ...] | None, ...]
    running: tuple[str | None, ...] = ()

    def __len__(self) -> int:
        return len(self.words)


def read_trees(path: Path | str, *, text: str, relation: str, format: Format | None, labelled: bool) -> Trees:
    """The sentences of a file of CoNLL-U; without `labelled` also of files with words or with lines of text (`read_tagged`)."""
    name = Path(path).name.removesuffix(".gz").removesuffix(".xz")
    if labelled or (format is None and not holds_objects(path) and name.endswith(".conllu")):
        trees = list(each_tree(path, text=text, relation=relation, labelled=labelled))
        return Trees(
            [tree.words for tree in trees], [tree.heads for tree in trees] if labelled else None,
            [tree.relations for tree in trees] if labelled else None, str(path), tuple(tree.line for tree in trees),
            tuple(tree.rows for tree in trees), (None,) * len(trees),
        )  # fmt: skip
    tagged = read_tagged(path, text=text, label=relation, columns=None, format=format, labelled=False)
    return Trees(tagged.words, None, None, tagged.path, tagged.lines, (None,) * len(tagged), tagged.running)


def as_conllu(
    text: str, offsets: Sequence[Span], heads: Sequence[int], relations: Sequence[str], rows: Sequence[str] | None
) -> str:
    """A tree as CoNLL-U: the lines that the sentence had, `rows`, with new heads and relations, or lines with the words alone."""
    if rows is not None:
        return "\n".join(_filled(rows, heads, relations)) + "\n\n"
    lines = [f"# text = {' '.join(text.split())}"]
    for number, (begin, end) in enumerate(offsets):
        cells = ["_"] * len(CONLL_U)
        cells[0], cells[1] = str(number + 1), text[begin:end]
        cells[HEAD], cells[RELATION] = str(heads[number]), relations[number]
        if number + 1 < len(offsets) and offsets[number + 1][0] == end:
            cells[-1] = "SpaceAfter=No"
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n\n"


def _filled(rows: Sequence[str], heads: Sequence[int], relations: Sequence[str]) -> list[str]:
    lines, number = [], 0
    for row in rows:
        cells = row.split("\t")
        if not row.startswith("#") and cells[0].strip().isdecimal():
            cells[HEAD], cells[RELATION], cells[DEPS] = str(heads[number]), relations[number], "_"
            number += 1
        if row != GENERATOR:
            lines.append("\t".join(cells))
    return lines
