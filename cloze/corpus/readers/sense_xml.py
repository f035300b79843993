"""Words with their senses in the files of the unified evaluation framework for word sense disambiguation (Raganato et al., 2017):
SemCor and the test sets, as XML with a file of keys, and the first senses of WordNet's `index.sense`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from cloze.corpus.readers.text_files import lines
from cloze.corpus.readers.wordnet import PARTS, SENSE
from cloze.errors import TaskError


class SenseWord(NamedTuple):
    """A word of a sentence whose sense is known: its number in the sentence, its lemma and part of speech (`art#NOUN`), and the
    keys of its senses, each of which is right."""

    number: int
    lemma: str
    keys: tuple[str, ...]


class SenseSentence(NamedTuple):
    """The words of a sentence, and those whose senses are known."""

    words: tuple[str, ...]
    senses: tuple[SenseWord, ...]


def read_sense_xml(path: Path | str, *, most: int | None = None) -> list[SenseSentence]:
    """The first sentences of `NAME.data.xml` that have words with senses; the keys stand in `NAME.gold.key.txt`.

    Raises:
        TaskError: The file is no such XML, there are no keys, or a word has none; with the file.
    """
    gold = Path(str(path).removesuffix(".data.xml") + ".gold.key.txt")
    if not str(path).endswith(".data.xml") or not gold.is_file():
        raise TaskError(f"{path}: expected NAME.data.xml with the keys of its senses next to it, in NAME.gold.key.txt.")
    keys = {name: tuple(senses) for name, *senses in (line.text.split() for line in lines(gold) if line.text.strip())}
    sentences: list[SenseSentence] = []
    try:
        for _, element in ElementTree.iterparse(path):
            if element.tag != "sentence":
                continue
            words, senses = [], []
            for word in element:
                words.append("_".join((word.text or "").split()))
                if word.tag == "instance":
                    name = word.get("id", "")
                    if not keys.get(name):
                        raise TaskError(f"{gold}: no sense for {name!r}, which {path} has. Copy both files of the same set.")
                    senses.append(SenseWord(len(words) - 1, f"{word.get('lemma')}#{word.get('pos')}", keys[name]))
            element.clear()
            if senses:
                sentences.append(SenseSentence(tuple(words), tuple(senses)))
            if len(sentences) == most:
                break
    except ElementTree.ParseError as error:
        raise TaskError(f"{path}: no XML ({error}). Expected NAME.data.xml of the evaluation framework.") from None
    if not sentences:
        raise TaskError(f"{path}: no word with a sense; expected <instance> elements in <sentence> elements.")
    return sentences


def first_senses(path: Path | str) -> dict[str, str]:
    """The key of the first sense of every lemma and part of speech (`art#NOUN`) in WordNet's `index.sense`.

    Raises:
        TaskError: A line is something else; with file and line.
    """
    first: dict[str, str] = {}
    for line in lines(path):
        sense = SENSE.fullmatch(line.text.strip())
        if sense is None:
            raise TaskError(f"{path}:{line.number}: {line.text[:60]!r}; expected a sense of WordNet: key, offset, number, count.")
        key, _, rank, _ = line.text.split()
        if rank == "1":
            first[f"{sense[1]}#{PARTS[sense[2]].upper()}"] = key
    return first
