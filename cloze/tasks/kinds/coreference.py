"""Find the mentions of a document and group those of one entity: coreference resolution."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.coreference import BEGIN, END, Chain, CoreferenceDocuments, Mention, describe_left_out, read_documents
from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import TaskError, counted
from cloze.registry import register
from cloze.tasks.measures.chains import RATIOS, compute_metrics, count_agreement, rows_by_metric
from cloze.tasks.task import LabelledRow, Prediction, Report, Task, require_head, silent
from cloze.tasks.words import WordsLearner, WordsRow, WordWindow, word_windows
from cloze.text.matching import Span

NAMES = ("conll", *RATIOS)
_NAME = re.compile(r"\((?P<name>.*)\); part (?P<part>[0-9]+)")  # of a document of CoNLL-2012
_UNKNOWN = "\t-" * 7  # the columns between the word and the chains: tag, parse, lemma, frame, sense, speaker, name


class GoldDocument(NamedTuple):
    """The words of a document and its chains."""

    words: tuple[str, ...]
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class CoreferenceResolution(Task):
    """Which fields of JSON lines hold the words and the chains of a document."""

    text: str = "tokens"
    label: str = "clusters"
    format: Format | None = None
    name: str = "coreference"
    instead_of_text: ClassVar[str] = "finds chains of mentions"
    of_words: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ("conll",)
    metrics: ClassVar[Mapping[str, bool]] = dict.fromkeys(NAMES, True)

    def for_files(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> CoreferenceResolution:
        """The same task for files that are written in another way."""
        if columns is not None:
            raise TaskError("--columns: files with chains have columns of their own. Leave it out.")
        if quoting == "standard":
            raise TaskError("--quoting standard: in files with chains a quote is a word like any other. Leave it out.")
        return replace(self, format=format)

    def read(self, path: Path | str, *, labelled: bool = True) -> CoreferenceDocuments:
        """The documents of a file."""
        return read_documents(path, text=self.text, label=self.label, format=self.format, labelled=labelled)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Resolver:
        """What finds chains, of a fine-tuned folder."""
        return Resolver(
            Reader.of(loaded), require_head(loaded, task_json["head"]), self, labels=(),
            length=task_json.get("length"), ideographs=task_json.get("ideographs"),
        )

    def truth(self, examples: CoreferenceDocuments, labels: Sequence[str], *, numbered: bool = False) -> list[GoldDocument]:
        """The words and the chains of every document."""
        assert examples.chains is not None  # read with labels
        return [GoldDocument(*pair) for pair in zip(examples.words, examples.chains, strict=True)]

    def per_example(
        self, truth: Sequence[GoldDocument], outputs: Sequence[Sequence[Chain]], labels: Sequence[str]
    ) -> NDArray[np.float64]:
        """What the metrics count in each document, (N, 6, 4)."""
        counts = [count_agreement(gold.chains, chains) for gold, chains in zip(truth, outputs, strict=True)]
        return np.array(counts).reshape(-1, len(RATIOS), 4)

    def compute_metrics(self, per_example: Sequence[NDArray[np.float64]], labels: Sequence[str]) -> dict[str, float]:
        """See the function `compute_metrics`."""
        return compute_metrics(np.asarray(per_example))

    def constant_metrics(self, constant_answer: str, truth: Sequence[GoldDocument], labels: Sequence[str]) -> dict[str, float]:
        """The metrics of taking every occurrence of some mentions, a JSON list, for a mention, and equal ones for a chain."""
        return compute_metrics(self.per_example(truth, match_strings(truth, set(json.loads(constant_answer))), labels))

    def description(self) -> dict[str, Any]:
        """The fields."""
        return {"columns": {"text": self.text, "label": self.label}}


@register("task", "coreference")
def coreference(text: str = "tokens", label: str = "clusters") -> CoreferenceResolution:
    """The mentions of a document and which of them are of one entity. `text` and `label` name fields of JSON lines."""
    return CoreferenceResolution(text, label)


@dataclass(frozen=True)
class ResolvedDocument(Prediction):
    """The chains of one document: its words, the line it begins at, of each chain the first and last word of every mention
    (`clusters`) and its text (`mentions`).

    `text` is the document itself, or the words with spaces between them, and `offsets` are begin and end of each word in it, in
    characters. `written` is the document as CoNLL-2012.
    """

    line: int
    tokens: tuple[str, ...]
    clusters: tuple[Chain, ...]
    mentions: tuple[tuple[str, ...], ...]
    text: str
    offsets: tuple[Span, ...]
    written: str

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {name: value for name, value in vars(self).items() if name != "written"}

    def written_as(self, format: str | None) -> str | None:
        """The document as CoNLL-2012."""
        return self.written if format == "conll" else None

    def word_rows(self) -> list[dict[str, Any]]:
        """The words as rows of a table, with the brackets of CoNLL-2012."""
        brackets = brackets_of(self.clusters, len(self.tokens))
        return [
            {"line": self.line, "word": word, "chains": cell, "start": start, "end": end}
            for word, cell, (start, end) in zip(self.tokens, brackets, self.offsets, strict=True)
        ]


class Resolver(WordsLearner):
    """A reader with a head over the spans of a document. A long document is read in windows, and its chains are those of all of
    its words."""

    def windows(self, examples: CoreferenceDocuments, words: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The windows of the words of some documents."""
        return word_windows(self.reader, words, self.length)

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[WordsRow], size: int = 64, report: Report = silent) -> list[tuple[Chain, ...]]:
        """The chains of each document. A word that the tokenizer drops is passed over."""
        outputs: list[Any] = [None] * len(rows)
        head = self.head.head
        with evaluating(self):
            for index, counts, views, read in self.scores(rows, head.view_width, size):
                ends = np.cumsum(counts)
                for i, begin, end in zip(index, ends - counts, ends, strict=True):
                    words = np.flatnonzero(read[begin:end])
                    chains = head.resolve(views[begin + torch.from_numpy(words)].to(self.reader.device))
                    outputs[i] = tuple(
                        tuple((int(words[first]), int(words[last])) for first, last in chain) for chain in chains
                    )
                report(len(index))
        return outputs

    def remarks(
        self, examples: CoreferenceDocuments, rows: Sequence[LabelledRow], outputs: Any, per_example: NDArray[np.float64]
    ) -> list[str]:
        """What equal words alone would tell of the mentions of the file, and which mentions are never found."""
        truth = [row.truth for row in rows]
        strings = [{text_of(gold.words, mention) for chain in gold.chains for mention in chain} for gold in truth]
        matched = [matches(gold, mentions, own) for gold, mentions, own in zip(truth, _mentions(truth), strings, strict=True)]
        score = self.compute_metrics(self.task.per_example(truth, matched, ()))[NAMES[0]]
        remarks = [f"with the mentions of the file known, equal words in one chain have a {NAMES[0]} of {score:.4f}"]
        longest, alone = self.head.head.longest, sum(len(chain) == 1 for gold in truth for chain in gold.chains)
        if alone and not self.head.head.singletons:
            remarks.append(
                f"{counted(alone, 'chain')} of a single mention: the training text marked none, so they are not looked for"
            )
        long = sum(last - first >= longest for mentions in _mentions(truth) for first, last in mentions)
        if long:
            remarks.append(f"{counted(long, 'mention')} of more than {longest} words: so long ones are not looked for")
        return [*remarks, *describe_left_out(examples.left_out)]

    def details(
        self, rows: Sequence[LabelledRow], outputs: Any, per_example: NDArray[np.float64]
    ) -> dict[str, Any]:
        """Recall and precision of each metric."""
        return {"by_class": [
            {"metric": name, "recall": row["recall"], "precision": row["precision"]}
            for name, row in rows_by_metric(per_example).items()
        ]}  # fmt: skip

    def predictions(
        self, examples: CoreferenceDocuments, rows: Sequence[WordsRow], outputs: Sequence[Sequence[Chain]]
    ) -> list[ResolvedDocument]:
        """The chains of every document."""
        predictions = []
        for line, name, sizes, row, chains in zip(
            examples.lines, examples.names, examples.sentences, rows, outputs, strict=True
        ):
            sentences = sizes if sum(sizes) == len(row.words) else (len(row.words),)  # a text cloze has cut into words
            mentions = tuple(
                tuple(row.text[row.offsets[first][0] : row.offsets[last][1]] for first, last in chain) for chain in chains
            )
            predictions.append(ResolvedDocument(
                line, row.words, tuple(chains), mentions, row.text, tuple(row.offsets),
                as_conll(name or f"line {line}", row.words, sentences, chains),
            ))  # fmt: skip
        return predictions


def text_of(words: Sequence[str], mention: Mention) -> str:
    """The words of a mention in lower case.

    >>> text_of(("Anna", "Smith", "sings"), (0, 1))
    'anna smith'
    """
    return " ".join(words[mention[0] : mention[1] + 1]).lower()


def match_strings(documents: Sequence[GoldDocument], strings: set[str]) -> list[tuple[Chain, ...]]:
    """Chains of all stretches of equal words, of those in `strings`; a stretch that occurs once is in none."""
    sizes = sorted({string.count(" ") + 1 for string in strings})
    matched = []
    for document in documents:
        count = len(document.words)
        spans = [(first, first + size - 1) for size in sizes for first in range(count - size + 1)]
        matched.append(matches(document, spans, strings))
    return matched


def matches(document: GoldDocument, spans: Iterable[Mention], strings: set[str]) -> tuple[Chain, ...]:
    """Chains of those of the spans whose words are equal and in `strings`."""
    chains: dict[str, list[Mention]] = {}
    for span in sorted(spans):
        if (text := text_of(document.words, span)) in strings:
            chains.setdefault(text, []).append(span)
    return tuple(tuple(chain) for chain in chains.values() if len(chain) > 1)


def _mentions(documents: Sequence[GoldDocument]) -> list[list[Mention]]:
    return [[mention for chain in document.chains for mention in chain] for document in documents]


def brackets_of(chains: Sequence[Chain], words: int) -> list[str]:
    """The cell of each word in the last column of CoNLL-2012; `-` for none.

    >>> brackets_of([((0, 2), (4, 4)), ((0, 1),)], 5)
    ['(0|(1', '1)', '0)', '-', '(0)']
    """
    cells: list[list[str]] = [[] for _ in range(words)]
    mentions = [(first, last, number) for number, chain in enumerate(chains) for first, last in chain]
    for first, last, number in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        cells[first].append(f"({number})" if first == last else f"({number}")
    for first, last, number in sorted(mentions, key=lambda mention: -mention[0]):
        if first < last:
            cells[last].append(f"{number})")
    return ["|".join(cell) or "-" for cell in cells]


def as_conll(name: str, words: Sequence[str], sentences: Sequence[int], chains: Sequence[Chain]) -> str:
    """A document as CoNLL-2012: its name, its words in their sentences, and the chains in the last column."""
    match = _NAME.fullmatch(name)
    title, part = (match["name"], match["part"]) if match else (name, "000")
    brackets, number, lines = brackets_of(chains, len(words)), 0, [f"{BEGIN} ({title}); part {part}"]
    where = f"{'_'.join(title.split())}\t{int(part)}"
    for size in sentences:
        for number_in_sentence in range(size):
            word = "_".join(words[number].split())  # columns stand between blanks
            lines.append(f"{where}\t{number_in_sentence}\t{word}{_UNKNOWN}\t{brackets[number]}")
            number += 1
        lines.append("")
    return "\n".join([*lines, END]) + "\n"
