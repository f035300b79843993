"""Annotators that label words: by a lexicon, by their capital, by whether they occur elsewhere in the document."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from cloze.errors import RecipeError
from cloze.registry import register
from cloze.text.annotation.annotator import Annotator, Unit
from cloze.text.characters import IDEOGRAPHS, word_pattern
from cloze.text.matching import RUNS, WordList, read_bytes, read_text

_WORDS = word_pattern(alone=IDEOGRAPHS, symbols=False)
Labels = list[str] | dict[str, list[str]]


class Naming:
    """Which labels of a file count, in which order, and under which name.

    `given`: a list of the labels that count, in order; or the labels of the file that count as one, by its name. None: every
    label, in the order of the file.
    """

    def __init__(self, labels: Labels | None, part: str) -> None:
        by = labels if isinstance(labels, Mapping) else {name: [name] for name in labels or ()}
        self.fixed = labels is not None
        self.number = {label: number for number, several in enumerate(by.values()) for label in several}
        self.names = list(by)
        if labels is not None and (not by or len(self.number) < sum(map(len, by.values()))):
            raise RecipeError(f"text.annotate: {part}.labels: expected one or more labels, each of them once, got {labels}.")

    def of(self, label: str) -> int | None:
        """The number of a label; None if it does not count."""
        if label not in self.number and not self.fixed:
            self.number[label] = len(self.names)
            self.names.append(label)
        return self.number.get(label)


@register("annotator", "lexicon")
class LexiconAnnotator(Annotator):
    """The entries of a lexicon with their labels, the longest match from the left: polarity, part of speech, supersense.

    Args:
        file: Lines `word <tab> label`; an entry may have several words, and `#` begins a comment. A recipe may omit it if the
            store that it is trained on has the layer.
        labels: The labels that count, in the order of their numbers, or labels of the file that count as one by its name
            (`{noun: [NOUN, PROPN], verb: [VERB, AUX]}`); default: all.
        lower: Match entries regardless of case.
    """

    labelled = True
    of_any_text = True

    def __init__(self, *, file: str | None = None, labels: Labels | None = None, lower: bool = True) -> None:
        self.file, self.lower = file, lower
        self._naming = Naming(labels, "lexicon")
        self._number: dict[str, int] = {}
        self._hash: str | None = None
        if file is None:
            return
        where = "text.annotate: lexicon.file"
        about = json.dumps(["lexicon", labels, lower], sort_keys=True).encode()
        self._hash = hashlib.sha256(about + read_bytes(file, where)).hexdigest()
        for line, row in enumerate(read_text(file, where).split("\n"), 1):
            row = row.rstrip("\r")
            if not row.strip() or row.startswith("#"):
                continue
            word, tab, label = row.partition("\t")
            word, label = word.strip(), label.partition("\t")[0].strip()
            if not tab or not word or not label:
                raise RecipeError(f"{file}:{line}: {row[:60]!r}; expected a word and a label with a tab between them.")
            number = self._naming.of(label)
            if number is not None:
                self._number.setdefault(_lower(word) if lower else word, number)
        if not self._number:
            raise RecipeError(f"{file}: no entry with a label{' of labels' if labels else ''}.")

    @property
    def hash(self) -> str | None:
        """A hash of the file and the settings; None without a file."""
        return self._hash

    @property
    def labels(self) -> Sequence[str]:
        """The labels in the order of `labels`, else of the file."""
        return self._naming.names

    @cached_property
    def _words(self) -> WordList:
        return WordList(self._number)

    def annotate(self, text: str) -> list[Unit]:
        """The entries in a text."""
        text = _lower(text) if self.lower else text
        return [(start, stop, self._number[text[start:stop]]) for start, stop in self._words.spans(text)]


@register("annotator", "case")
class Case(Annotator):
    """Every word whose letters have a case: `capital` if its first letter is one, else `lower` (ERNIE 2.0, Sun et al., 2020).

    Lower the text (`normalise: {lower: true}`), or its tokens show the label.
    """

    labelled = True
    of_any_text = True

    @property
    def hash(self) -> str:
        """The same for all: there is nothing to set."""
        return hashlib.sha256(b"case:1").hexdigest()

    @property
    def labels(self) -> Sequence[str]:
        """Not capitalised, capitalised."""
        return ("lower", "capital")

    def annotate(self, text: str) -> list[Unit]:
        """The words of a text with their case."""
        words = ((match.start(), match.end(), match.group()) for match in RUNS.finditer(text))
        return [(start, stop, int(word[0].isupper())) for start, stop, word in words if word.upper() != word.lower()]


@register("annotator", "repeats")
class Repeats(Annotator):
    """Every word: `elsewhere` if it also occurs in another segment of its document, else `here` (ERNIE 2.0, Sun et al., 2020).

    A segment is a sentence, and an ideograph is a word. Differs: a document that is longer than a block of two megabytes counts
    as several.
    """

    labelled = True

    @property
    def hash(self) -> str:
        """The same for all: there is nothing to set."""
        return hashlib.sha256(b"repeats:2").hexdigest()

    @property
    def labels(self) -> Sequence[str]:
        """In this sentence only, in another one, too."""
        return ("here", "elsewhere")

    def annotate(self, text: str) -> Sequence[Unit]:
        """The words of a text that is a document by itself."""
        return self.annotate_documents([text], [1])[0]

    def annotate_documents(self, texts: Sequence[str], documents: Sequence[int]) -> list[Sequence[Unit]]:  # type: ignore[override]
        """The words of each text; `documents` counts the texts of each document."""
        units: list[Sequence[Unit]] = []
        first = 0
        for count in documents:
            words = [
                [(word.start(), word.end(), _lower(word.group())) for word in _WORDS.finditer(text)]
                for text in texts[first : first + count]
            ]
            sentences = Counter(word for sentence in words for word in {word for _, _, word in sentence})
            units += [[(start, stop, int(sentences[word] > 1)) for start, stop, word in sentence] for sentence in words]
            first += count
        return units


def _lower(text: str) -> str:
    """The text in lower case, with as many characters as before."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
