"""Texts given as words, as a network reads them: in windows where they are long, so that every word is read; and learners that
answer for every word."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.words import first_tokens
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader
from cloze.decoding.scores.windows import Windows
from cloze.tasks.task import LabelledRow, Learner
from cloze.text.matching import Span
from cloze.text.running import as_text, remark_on_units, word_spans

Positions = NDArray[np.int64]
_LONGEST_WORD = 30  # characters


class WordWindow(NamedTuple):
    """A stretch of a text as a row: the columns (n,) where words are asked, and which words of the text those are."""

    row: Framed
    columns: Positions
    words: Positions


def word_windows(
    reader: Reader, texts: Sequence[Sequence[str]], max_length: int | None, pictures: Sequence[int] | None = None, *,
    spaced: bool = False,
) -> list[list[WordWindow]]:
    """The windows of texts that are given as words; each word is asked once, at its first token (Devlin et al., 2019, §5.3).

    A text that does not fit into `max_length` tokens, or into what the network reads, has several windows that overlap by half; a
    word is asked where it has the most context. A word of which the tokenizer leaves no token is in none; words that the
    tokenizer joins are asked at their one token. `pictures` are the numbers of the pictures that the texts are about; `spaced` is
    that of `first_tokens`.
    """
    joined = [" ".join(words) for words in texts]
    rows, spelling = reader.encode_whole(joined), reader.tokenizer.encode_spelled(joined)
    if pictures is not None:
        rows = [replace(row, picture=number) for row, number in zip(rows, pictures, strict=True)]
    bound = min((n for n in (max_length, reader.max_length) if n is not None), default=None)
    before = len(reader.single_layout.opening)
    frame = (before, reader.single_layout.added - before)
    text_windows = []
    for number, (words, row) in enumerate(zip(texts, rows, strict=True)):
        first = first_tokens(spelling, number, words, spaced=spaced)
        column = np.append(np.flatnonzero(row.part == 0), -1)[first]  # -1: no token
        mask = np.zeros(len(row), bool)
        mask[column[column >= 0]] = True
        windows = Windows().over(
            row, mask, text=number, frame=frame, max_length=reader.max_tokens(bound),
            left_to_right=reader.order == "left_to_right",
        )
        windows = [window.with_facts(reader, bound) for window in windows]
        counts = [int(window.asked.sum()) for window in windows]
        parts = np.split(np.flatnonzero(mask), np.cumsum(counts)[:-1])
        text_windows.append([_word_window(window, part, column) for window, part in zip(windows, parts, strict=True)])
    return text_windows


def _word_window(window: Any, positions: Positions, column: Positions) -> WordWindow:
    """A window in which the columns `positions` (n,) of the whole text are asked; `column` (K,) is that of each word of the
    text. Several words may have one token (phrases)."""
    words = np.flatnonzero(np.isin(column, positions))
    columns = np.flatnonzero(window.asked)[np.searchsorted(positions, column[words])]
    return WordWindow(window.row, columns, words)


def read_words(
    reader: Reader, head: Any, texts: Sequence[Sequence[WordWindow]], counts: Sequence[int], *, width: int, size: int
) -> tuple[torch.Tensor, NDArray[np.bool_]]:
    """What a head scores (M, `width`) of all words of some texts, in fp32 on the CPU, and which were read; 0 where one was not.

    `texts` are the windows of each text, `counts` its words, `size` the rows of a batch.
    """
    begins = np.cumsum(counts) - counts
    windows = [(begin + w.words, w) for begin, parts in zip(begins, texts, strict=True) for w in parts if len(w.words)]
    scores, read = torch.zeros(sum(counts), width), np.zeros(sum(counts), bool)
    for index in reader.batches([len(w.row) for _, w in windows], rows=size):
        rows = [windows[i][1].row for i in index]
        batch = reader.batch(rows)
        states = reader.states(batch, head.reads)
        long = batch["tokens"].shape[1]
        flat = np.concatenate([n * long + windows[i][1].columns for n, i in enumerate(index)])
        words = np.concatenate([windows[i][0] for i in index])
        positions = torch.from_numpy(flat).to(reader.device)
        scores[torch.from_numpy(words)] = reader.scores(head, states, batch, positions).cpu()
        read[words] = True
    return scores, read


class WordsRow(NamedTuple):
    """The words of a text, the windows over them, the text itself and where its words begin and end in it, in characters."""

    words: tuple[str, ...]
    windows: list[WordWindow]
    text: str
    offsets: list[Span]


class WordsLearner(Learner):
    """A network with an answer for every word. `ideographs`: how many a word of training had that is written in them."""

    def __init__(
        self, reader: Reader, head: Any, task: Any, *, length: int | None, labels: Sequence[str], numbered: bool = False,
        ideographs: float | None = None,
    ) -> None:
        super().__init__(reader, head, task, length=length, labels=labels, numbered=numbered)
        self.ideographs = ideographs

    @abstractmethod
    def windows(self, examples: Any, words: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The windows of the words of some texts."""

    def rows(self, examples: Any, running: Sequence[str | None] = ()) -> list[WordsRow]:
        """The texts by their words; one that is also in `running` is cut into words by the rule for every script."""
        placed = [
            as_text(words) if text is None else (text, word_spans(text, self.reader.tokenizer))
            for words, text in zip(examples.words, running or repeat(None), strict=False)
        ]
        words = [tuple(text[begin:end] for begin, end in offsets) for text, offsets in placed]
        windows = self.windows(examples, words)
        return [WordsRow(w, parts, *place) for w, parts, place in zip(words, windows, placed, strict=True)]

    def encode(self, examples: Any) -> list[WordsRow]:
        """The texts; those that were not given as words are cut into words."""
        return self.rows(examples, examples.running)

    def encode_labelled(self, examples: Any) -> list[LabelledRow]:
        """The texts by the words that have answers."""
        return [LabelledRow(*pair) for pair in zip(self.rows(examples), self.truth(examples), strict=True)]

    def scores(
        self, rows: Sequence[WordsRow], width: int, size: int
    ) -> Iterator[tuple[NDArray[np.int64], list[int], torch.Tensor, NDArray[np.bool_]]]:
        """Batches of texts: which they are, how many words each has, and of all their words the scores (M, `width`) and whether
        they were read."""
        counts = [len(row.words) for row in rows]
        for index in by_length(counts, rows=size):
            part = [counts[i] for i in index]
            yield index, part, *read_words(
                self.reader, self.head, [rows[i].windows for i in index], part, width=width, size=size
            )

    def texts_of(self, examples: Any) -> Sequence[str]:
        """The texts, with a space between words."""
        return [" ".join(words) for words in examples.words]

    def remarks_on_texts(self, examples: Any) -> list[str]:
        """Also on texts that are not given as words, if these are others than those of training, or look like single words."""
        remarks = [remark_on_units(examples.running, self.ideographs), _remark_on_single_words(examples)]
        return [*super().remarks_on_texts(examples), *(remark for remark in remarks if remark is not None)]


def _remark_on_single_words(examples: Any) -> str | None:
    """A sentence on lines that are texts here and look like the words of texts: single words, with empty lines between some."""
    texts = [text for text in examples.running if text is not None]
    single = all(len(text) <= _LONGEST_WORD and not any(map(str.isspace, text.strip())) for text in texts)
    if len(texts) < 2 or len(texts) < len(examples) or not single or max(np.diff(examples.lines)) < 2:
        return None
    return "each line is read as a text; if the lines are words, with an empty line after each text: --format tsv"
