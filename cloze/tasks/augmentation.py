"""More labelled rows for a student to learn from: words replaced by others.

By what a masked language model predicts, or by near words: TinyBERT's data augmentation (Jiao et al., 2020, §3.2, algorithm 1;
huawei-noah/Pretrained-Language-Model, `TinyBERT/data_augmentation.py`). By words of the same part of speech, and texts cut to
n-grams: that of Tang et al. (2019, §3.3; castorini/d-bert, `dbert/distill/run/augment_data.py`).

Differs: TinyBERT's code keeps NLTK's stop words; here the list of words that are kept is another one. Predicted candidates are
words alone; in the code they are all tokens that continue no word, punctuation too.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from cloze.corpus.readers.labelled import OPTION, Format, ListCell, TextTable, place_of
from cloze.decoding.layout import Framed, Ids, Marks
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.neighbours import neighbours
from cloze.errors import TaskError
from cloze.interop.vectors import Vectors
from cloze.tasks.task import Report, silent
from cloze.text.annotation.annotators import LexiconAnnotator
from cloze.text.characters import IDEOGRAPHS, alphabetic, word_pattern

COPIES, RATE, CANDIDATES = 20, 0.4, 15
LONGEST = 5  # words of an n-gram
FREQUENT = 100_000  # the words of a file of vectors among which neighbours are looked for: its first ones
_FUNCTION_WORDS = """
    a an the this that these those some any each every no all both few more most other such same own
    i you he she it we they me him her us them my your his its our their mine yours hers ours theirs
    myself yourself himself herself itself ourselves themselves who whom whose which what where when why how
    of in on at by for with from to into onto over under above below between among through during before after against about
    up down out off near without within and or but nor so if than because while until though although as then once
    am is are was were be been being do does did doing have has had having can could will would shall should may might must
    not only very too also just here there again further now
"""
#: English words that say little about the content of a text: articles, pronouns, prepositions, conjunctions, auxiliaries.
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
#: A word: an ideograph, or a run of other letters and digits with apostrophes inside.
_WORD = word_pattern(alone=IDEOGRAPHS, joins="['’_]", symbols=False)
_ANY_WORD = word_pattern(alone=IDEOGRAPHS, joins="['’_]")  # or a mark of punctuation


class Slot(NamedTuple):
    """A word that may be replaced: its characters in the text, from and up to, and what may stand there."""

    begin: int
    end: int
    candidates: tuple[str, ...]


class FindsSlots(Protocol):
    """Finds what may replace the words of texts, of `rows` rows at a time."""

    rows: int

    def slots(self, texts: Sequence[str]) -> list[list[Slot]]:
        """The words of each text that have candidates."""
        ...


class TagAugmenter:
    """Finds words of the same part of speech: the candidates of a word of the lexicon `tagger` are all words of `texts` that have
    its label there, each as often as it occurs.

    Differs: a lexicon gives a word the same part of speech everywhere; the authors tag texts with NLTK.
    """

    rows = 32

    def __init__(self, tagger: LexiconAnnotator, texts: Iterable[str]) -> None:
        self.tagger = tagger
        words: dict[int, list[str]] = {}
        for text in texts:
            for begin, end, tag in tagger.annotate(text):
                words.setdefault(tag, []).append(text[begin:end])
        self._candidates = {tag: tuple(tagged) for tag, tagged in words.items()}

    def slots(self, texts: Sequence[str]) -> list[list[Slot]]:
        """The words of each text that the lexicon knows."""
        return [[Slot(begin, end, self._candidates[tag]) for begin, end, tag in self.tagger.annotate(text)] for text in texts]


@dataclass
class Augmenter:
    """Finds what may replace the words of texts.

    Every word of letters may be replaced unless it is in `keep`. A word of one token gets those of the `count` most probable
    tokens that are words, predicted where it is masked; the text itself is the second text of the row if the network reads pairs.
    A word of several tokens gets its `count` nearest words by `vectors`; without vectors, or without candidates, it stays.
    """

    reader: Reader
    head: Any
    vectors: Vectors | None = None
    keep: Collection[str] = FUNCTION_WORDS
    count: int = CANDIDATES
    rows: int = 32
    _words: dict[int, str | None] = field(default_factory=dict)

    def slots(self, texts: Sequence[str]) -> list[list[Slot]]:
        """The words of each text that have candidates."""
        spelled = self.reader.tokenizer.encode_spelled(list(texts))
        ids = [np.asarray(text_ids, np.int32) for text_ids in self.reader.ids(texts)]
        masked: list[tuple[int, re.Match[str], int]] = []
        slots: list[list[Slot]] = [[] for _ in texts]
        for number, text in enumerate(texts):
            part = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
            begin, end = np.asarray(spelled.begin[part]), np.asarray(spelled.end[part])
            for word in _WORD.finditer(text):
                if not alphabetic(word[0]) or word[0].lower() in self.keep:
                    continue
                first, last = (int(np.searchsorted(end, word.start(), "right")), int(np.searchsorted(begin, word.end(), "left")))
                if last - first == 1:
                    masked.append((number, word, first))
                elif last - first > 1:
                    slots[number].append(Slot(*word.span(), self._nearest(word[0])))
        places = [(number, token) for number, _, token in masked]
        for (number, word, _), candidates in zip(masked, self._predicted(ids, self.reader.marks(texts), places), strict=True):
            slots[number].append(Slot(*word.span(), candidates))
        return [sorted(slot for slot in text_slots if slot.candidates) for text_slots in slots]

    def _nearest(self, word: str) -> tuple[str, ...]:
        spelling = None if self.vectors is None else next((w for w in (word, word.lower()) if self._has_neighbours(w)), None)
        if self.vectors is None or spelling is None:
            return ()
        candidates = [entry.word for entry in neighbours(self.vectors, [spelling], count=self.count, restrict=FREQUENT)[0]]
        return tuple(candidate.title() for candidate in candidates) if word.istitle() else tuple(candidates)

    def _has_neighbours(self, word: str) -> bool:
        """Whether a word is frequent, and its vector not zero."""
        assert self.vectors is not None  # the only caller has looked
        row = self.vectors.row(word)
        return row is not None and row < FREQUENT and bool(self.vectors.vector(word).any())

    def _predicted(
        self, ids: Sequence[Ids], marks: Sequence[Marks], places: Sequence[tuple[int, int]]
    ) -> list[tuple[str, ...]]:
        """The candidates for tokens, each given by the number of its text and its place there."""
        framed = [self._masked(ids[number], marks[number], token) for number, token in places]
        candidates: list[tuple[str, ...]] = [()] * len(framed)
        read = [n for n, (_, column) in enumerate(framed) if column is not None]
        for index in self.reader.batches([len(framed[n][0]) for n in read], rows=self.rows):
            batch = [read[i] for i in index.tolist()]
            for n, best in zip(batch, self._best([framed[n] for n in batch]), strict=True):
                candidates[n] = tuple(word for word in map(self._word, best) if word is not None)
        return candidates

    def _masked(self, ids: Ids, marks: Marks, position: int) -> tuple[Framed, int | None]:
        """A text with one token masked, and the column of the mask; None if it stands behind what the network reads."""
        masked = ids.copy()
        masked[position] = self.reader.tokenizer.role("[MASK]")
        most = self.reader.max_length
        pairs = self.reader.reading.pair is not None
        row = self.reader.lay_out([masked, ids] if pairs else [masked], max_length=most).marked([marks, marks])
        columns = np.flatnonzero((row.part == 0) & self.reader.predictable(row))
        text_columns = np.flatnonzero(row.part == 0)
        column = int(text_columns[position]) if position < len(text_columns) else None
        row = row if column is None else row.masked(np.array([column]), masked[position])  # a mask has no characters
        return row, column if column in columns else None

    @torch.inference_mode()
    def _best(self, framed: Sequence[tuple[Framed, int | None]]) -> list[list[int]]:
        """The ids of the most probable tokens at the mask of each row."""
        reader, batch = self.reader, self.reader.batch([row for row, _ in framed])
        width = batch["tokens"].shape[1]
        positions = torch.tensor([n * width + (column or 0) for n, (_, column) in enumerate(framed)], device=reader.device)
        inputs, at = reader.prediction_inputs(self.head, batch, positions)
        scores = reader.token_scores(self.head, reader.states(inputs, self.head.reads, positions=at), inputs, at)
        best: list[list[int]] = scores.topk(min(self.count, scores.shape[1]), dim=-1).indices.tolist()
        return best

    def _word(self, token: int) -> str | None:
        """The word that a token is by itself; None for a piece of a word, punctuation and roles."""
        if token not in self._words:
            word = str(self.reader.tokenizer.decode([token], skip_special=True)).strip()
            alone = [self.reader.tokenizer.encode_template(text).ids for text in (word, f"a {word}")] if alphabetic(word) else []
            self._words[token] = word if any(len(ids) in (1, 2) and ids[-1] == token for ids in alone) else None
        return self._words[token]


def copies_of(
    text: str, slots: Sequence[Slot], *, copies: int, rate: float, draw: np.random.Generator, ngrams: float = 0.0
) -> list[str]:
    """Different texts other than `text`, at most `copies`: in each, every slot is replaced with probability `rate`, and with
    probability `ngrams` only one to five words are left.

    >>> copies_of("a cat", [Slot(2, 5, ("dog",))], copies=3, rate=1.0, draw=np.random.default_rng(0))
    ['a dog']
    """
    texts: dict[str, None] = {}
    for _ in range(copies):
        pieces, at = [], 0
        for slot, chance in zip(slots, draw.random(len(slots)), strict=True):
            word = slot.candidates[int(draw.integers(len(slot.candidates)))]
            if chance < rate:
                pieces += [text[at : slot.begin], word]
                at = slot.end
        copy = "".join([*pieces, text[at:]])
        texts[_ngram(copy, draw) if ngrams and draw.random() < ngrams else copy] = None
    texts.pop(text, None)
    return list(texts)


def _ngram(text: str, draw: np.random.Generator) -> str:
    """One to five words that follow each other, each number and each place equally likely; a text of so few words is whole."""
    words, count = list(_ANY_WORD.finditer(text)), int(draw.integers(1, LONGEST + 1))
    if len(words) <= count:
        return text
    first = int(draw.integers(len(words) - count + 1))
    return text[words[first].start() : words[first + count - 1].end()]


def augmented_rows(
    table: TextTable, augmenter: FindsSlots, columns: Sequence[str], *, copies: int = COPIES, rate: float = RATE,
    ngrams: float = 0.0, seed: int = 0, report: Report = silent,
) -> Iterator[tuple[str | None, ...]]:
    """Every row of a table, followed by its copies; in each copy the words of one of the `columns` are replaced.

    What is drawn depends on the seed and the number of the row alone. Raises a `TaskError` for lists of words.

    Differs: while the second text of a pair is replaced, the first one is that of the row; in TinyBERT's code it is the last
    copy, and Tang et al. also change both. Their code never takes the last n-gram of a text, and drops texts without any word
    left as it was.
    """
    places = _places(table, columns)
    for start in range(0, len(table), augmenter.rows):
        rows = table.rows[start : start + augmenter.rows]
        texts = [[_text(table, start + n, row[column]) for n, row in enumerate(rows)] for column in places]
        slots = [augmenter.slots(column_texts) for column_texts in texts]
        for number, row in enumerate(rows):
            yield row
            for which, column in enumerate(places):
                draw = np.random.default_rng([seed, start + number, which])
                for text in copies_of(
                    texts[which][number], slots[which][number], copies=copies, rate=rate, draw=draw, ngrams=ngrams
                ):
                    yield (*row[:column], text, *row[column + 1 :])
        report(len(rows))


def texts_of(table: TextTable, columns: Sequence[str]) -> Iterator[str]:
    """The texts of these columns; a `TaskError` for lists of words."""
    places = _places(table, columns)
    return (_text(table, number, row[column]) for number, row in enumerate(table.rows) for column in places)


def _places(table: TextTable, columns: Sequence[str]) -> list[int]:
    """Where the columns stand that --text and --text-b name."""
    chosen_by = (OPTION, OPTION.sibling("text_b", "NAME"))
    return [place_of(table.path, table.columns, name, parameter) for name, parameter in zip(columns, chosen_by, strict=False)]


def _text(table: TextTable, number: int, cell: str | None) -> str:
    if cell is None or isinstance(cell, ListCell):
        what = "a list of words, whose labels a replaced word may not have" if cell is not None else "no text"
        raise TaskError(f"{table.path}:{table.lines[number]}: {what}; expected a text.")
    return cell


def line_of(row: Sequence[str | None], columns: Sequence[str], format: Format) -> str:
    """A row as a line of a file, with its line end. A `TaskError` for a cell that TSV cannot hold."""
    if format == "jsonl":
        cells = {name: json.loads(cell) if isinstance(cell, ListCell) else cell for name, cell in zip(columns, row, strict=True)}
        return json.dumps({name: cell for name, cell in cells.items() if cell is not None}, ensure_ascii=False) + "\n"
    if format == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerow(["" if cell is None else cell for cell in row])
        return file.getvalue()
    cells_ = ["" if cell is None else cell for cell in row]
    if any(set(cell) & set("\t\r\n") for cell in cells_):
        raise TaskError("a cell holds a tab or a line end, which TSV cannot hold. Write --out FILE.csv or FILE.jsonl.")
    return "\t".join(cells_) + "\n"


def format_of(out: Path) -> Format:
    """The format of a file to write, by its name; a `TaskError` for others than .tsv, .csv and .jsonl."""
    formats: dict[str, Format] = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl"}
    if out.suffix not in formats:
        raise TaskError(f"--out {out}: expected a file that ends in .tsv, .csv or .jsonl.")
    return formats[out.suffix]
