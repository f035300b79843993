"""A dictionary linker: finds the names of entities in any text, as an annotator, or as `cloze link`, which writes mentions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from cloze.atomic import require_output, whole_file
from cloze.bounds import Count, Share
from cloze.corpus.readers.blocks import read_blocks
from cloze.corpus.readers.documents import add_faults
from cloze.corpus.readers.not_text import what_is
from cloze.corpus.readers.parse import parse_block
from cloze.corpus.readers.report import CorpusReport, FileFaults
from cloze.errors import CorpusError
from cloze.knowledge.entities import EntityRecord, read_entities
from cloze.registry import register
from cloze.text.annotation.annotator import Annotator, Unit
from cloze.text.encodings import readable
from cloze.text.matching import WordList, read_bytes


class LinkingCounts(NamedTuple):
    """What `link_text` has written: sentences read, sentences with mentions, mentions, and entities that are mentioned."""

    read: int
    sentences: int
    mentions: int
    entities: int


#: A mention as `mentions` reads it: start, end, id, score.
Span = dict[str, str | int | float]


class MentionFinder(Protocol):
    """What finds the mentions of a text."""

    def document_mentions(self, sentences: Sequence[str]) -> list[list[Span]]:
        """The mentions of each sentence of a document."""

    def without_mentions(self, sentences: int) -> str:
        """Why so many sentences may have none."""


class NameLinker:
    """Finds the names and aliases of entities, the longest match from the left; no name begins or ends inside a word.

    A name of several entities means the one with the largest `count`; where counts are equal or not given, the one whose label it
    is, then the first of the file. `score` is the entity's share of the counts of its name (equal shares without counts). A name
    whose best entity has a smaller share than `least` is not linked, nor one of fewer than `shortest` characters.
    """

    def __init__(self, entities: dict[str, EntityRecord], *, least: float = 0.0, shortest: int = 2) -> None:
        candidates: dict[str, list[tuple[float, bool, str]]] = {}
        for identifier, entity in entities.items():
            for number, name in enumerate(entity.names):
                if len(name) >= shortest:
                    candidates.setdefault(name, []).append(
                        (1.0 if entity.prior is None else entity.prior, number == 0, identifier)
                    )
        self.names: dict[str, tuple[str, float]] = {}
        self.ambiguous = sum(len(several) > 1 for several in candidates.values())
        for name, several in candidates.items():
            best = max(several, key=lambda candidate: candidate[:2])
            total = sum(count for count, _, _ in several)
            score = best[0] / total if total else 1 / len(several)
            if score >= least:
                self.names[name] = best[2], score
        if not self.names:
            raise CorpusError(f"no entity has a name of {shortest} or more characters that means one entity clearly enough.")
        self._words = WordList(self.names)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """The first character of every mention, the one after its last, and the entity."""
        return [(start, end, self.names[text[start:end]][0]) for start, end in self._words.spans(text)]

    def mentions(self, text: str) -> list[Span]:
        """The mentions of a text, as `mentions` reads them."""
        mentions: list[Span] = []
        for start, end in self._words.spans(text):
            identifier, score = self.names[text[start:end]]
            mentions.append({"start": start, "end": end, "id": identifier, "score": round(score, 4)})
        return mentions

    def document_mentions(self, sentences: Sequence[str]) -> list[list[Span]]:
        """Those of each sentence by itself."""
        return [self.mentions(text) for text in sentences]

    def without_mentions(self, sentences: int) -> str:
        """How names are matched."""
        return (
            f"none of the {len(self.names):,} names occurs in {sentences:,} sentences. Nothing was written.\n"
            "  Names are matched as they are spelled, with capitals."
        )


def link_text(paths: Sequence[str | Path], linker: MentionFinder, out: Path, *, format: str = "auto") -> LinkingCounts:
    """Write the mentions of a corpus to `out`, a line for each sentence that has any, which appears when it is complete.

    `format` as in `build_store`. Raises `CorpusError` if the corpus cannot be read, or mentions no entity.
    """
    require_output(out, what="mentions", holds=_holds_mentions)
    for path in paths:
        if (kind := what_is(Path(path))) in ("a token store", "a knowledge graph"):
            raise CorpusError(f"{path}: is {kind}, not text.\n  Give the text files, or the folder that holds them.")
    sentences = marked = mentions = 0
    entities: set[str] = set()
    with whole_file(out) as fresh:
        with fresh.open("w", encoding="utf-8") as stream:
            for document in _documents(paths, format):
                sentences += len(document)
                for text, spans in zip(document, linker.document_mentions(document), strict=True):
                    if spans:
                        stream.write(json.dumps({"text": text, "spans": spans}, ensure_ascii=False) + "\n")
                        marked, mentions = marked + 1, mentions + len(spans)
                        entities |= {str(span["id"]) for span in spans}
        if not mentions:
            raise CorpusError(linker.without_mentions(sentences))
    return LinkingCounts(sentences, marked, mentions, len(entities))


def _holds_mentions(path: Path) -> bool:
    """Whether the first line is one that `link_text` writes, or there is none."""
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    return not first or (first.startswith(b'{"text": ') and b'"spans": [' in first)


def _documents(paths: Sequence[str | Path], format: str) -> Iterator[list[str]]:
    """The sentences of each document; a document that is read in several blocks is given in several parts."""
    account = CorpusReport()
    file = FileFaults("")
    for block in read_blocks(paths, format, account):
        parsed = parse_block(block, spaces=False)
        file = add_faults(file, parsed.faults)
        if block.last:
            file.check()
        for document in parsed.documents:
            texts = (sentence.strip() for sentence in document)
            yield list(readable([text for text in texts if text]))


def linker_of(files: Sequence[str], *, least: float = 0.0, shortest: int = 2) -> NameLinker:
    """The linker of some files of entities; of an id that several have, the first counts."""
    entities: dict[str, EntityRecord] = {}
    for file in files:
        entities = read_entities(file) | entities
    return NameLinker(entities, least=least, shortest=shortest)


@register("annotator", "linker")
class LinkerAnnotator(Annotator):
    """The names of entities in any text, each with the id of its entity as label: what `cloze link` writes to a file.

    Args:
        file: A table of entities as for `cloze link`. A recipe may omit it if the store that it is trained on has the layer.
        least: The least share of the mentions of a name that its most frequent entity must have.
        shortest: The least number of characters of a name.
    """

    labelled = True
    of_any_text = True

    def __init__(self, *, file: str | None = None, least: Share = 0.0, shortest: Count = 2) -> None:
        self.file, self.least, self.shortest = file, least, shortest
        self._hash: str | None = None
        if file is not None:
            about = json.dumps(["linker", least, shortest]).encode()
            self._hash = hashlib.sha256(about + read_bytes(file, "linker.file")).hexdigest()

    @property
    def hash(self) -> str | None:
        """A hash of the file and the settings; None without a file."""
        return self._hash

    @property
    def labels(self) -> Sequence[str]:
        """The ids of the entities, in the order of the file."""
        return () if self.file is None else self._read[1]

    @cached_property
    def _read(self) -> tuple[NameLinker, tuple[str, ...], dict[str, int]]:
        assert self.file is not None  # `require_file`
        entities = read_entities(self.file)
        linker = NameLinker(entities, least=self.least, shortest=self.shortest)
        return linker, tuple(entities), {identifier: number for number, identifier in enumerate(entities)}

    def annotate(self, text: str) -> list[Unit]:
        """The mentions of a text."""
        linker, _, number = self._read
        return [(start, stop, number[identifier]) for start, stop, identifier in linker.spans(text)]
