"""A network that reads sentences and a head that hangs their words on one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch

from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader, evaluating
from cloze.objectives.labels.chain import chains_of
from cloze.tasks.kinds.conllu import GENERATOR, Trees, as_conllu
from cloze.tasks.kinds.trees import best_tree
from cloze.tasks.task import Evaluation, Learner, Prediction, Report
from cloze.tasks.words import WordWindow, read_words, word_windows
from cloze.text.matching import Span
from cloze.text.running import as_text, remark_on_units, word_spans

ROOT = "root"
PUNCTUATION = "punct"
#: The relations of content words, by the evaluation of the CoNLL 2018 shared task (UniversalDependencies/tools, eval.py).
CONTENT = frozenset({
    "nsubj", "obj", "iobj", "csubj", "ccomp", "xcomp", "obl", "vocative", "expl", "dislocated", "advcl", "advmod", "discourse",
    "nmod", "appos", "nummod", "acl", "amod", "conj", "fixed", "flat", "compound", "list", "parataxis", "orphan", "goeswith",
    "reparandum", "root", "dep",
})  # fmt: skip
#: What is measured; of all of it more is better.
NAMES = ("las", "uas", "clas", "las_with_subtypes", "las_without_punct", "uas_without_punct")
CONVENTION = (
    "las, uas and clas are those of the CoNLL 2018 shared task: every word counts, punctuation too, in clas content words alone; "
    "nsubj:pass is nsubj, but in las_with_subtypes; las_without_punct and uas_without_punct leave out words whose relation in "
    f"the file is {PUNCTUATION}"
)
_SHOWN = 8  # of the relations that training never saw, the most frequent


class PredictedTree(NamedTuple):
    """The head of each word (0: the root), the relation to it, and the probability of that head alone."""

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    probabilities: tuple[float, ...]


class JudgedTree(NamedTuple):
    """Of a sentence's words: how many, with the right head, with that and the relation, with its subtype too.

    `plain_*`: of those that are no punctuation. `content_*`: how many words have the relation of a content word in the file, in
    the answer, and how many of the former are right.
    """

    words: int
    heads: int
    arcs: int
    whole_arcs: int
    plain_words: int
    plain_heads: int
    plain_arcs: int
    content_true: int
    content_found: int
    content_right: int


@dataclass(frozen=True)
class ParsedRow:
    """A sentence in windows, with its tree."""

    windows: Sequence[WordWindow]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True)
class Parsed(Prediction):
    """The tree of one sentence, the line it begins at, and the sentence as CoNLL-U (`written`)."""

    line: int
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    probabilities: tuple[float, ...]
    written: str

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {name: value for name, value in self.__dict__.items() if name != "written"}

    def word_rows(self) -> list[dict[str, Any]]:
        """The words as rows of a table: each with its number, from 1, and that of its head, 0 for the root."""
        columns = zip(self.words, self.heads, self.relations, self.probabilities, strict=True)
        return [
            {"id": number, "word": word, "head": head, "relation": relation, "probability": probability}
            for number, (word, head, relation, probability) in enumerate(columns, start=1)
        ]


class Parser(Learner):
    """A reader with a head over arcs; the answer is the best tree with one root.

    The word on the root has the relation `root` if training knew it, and no other word has it. `ideographs`: how many a word of
    training had that is written in them.
    """

    def __init__(
        self, reader: Reader, head: Any, relations: Sequence[str], task: Any, *, length: int | None,
        ideographs: float | None = None,
    ) -> None:
        super().__init__(reader, head, task, length=length)
        self.names, self.ideographs = tuple(relations), ideographs
        self.labels = self.names

    def answered(self, examples: Trees) -> list[ParsedRow]:
        """The sentences with their trees."""
        assert examples.heads is not None and examples.relations is not None  # read with labels
        windows = word_windows(self.reader, examples.words, self.length)
        return [ParsedRow(*row) for row in zip(windows, examples.heads, examples.relations, strict=True)]

    def texts_of(self, examples: Trees) -> Sequence[str]:
        """The sentences, with a space between words."""
        return [" ".join(words) for words in examples.words]

    def remarks_on_texts(self, examples: Trees) -> list[str]:
        """Also on texts that are not given as words, if these are others than those of training."""
        units = remark_on_units(examples.running, self.ideographs)
        return [*super().remarks_on_texts(examples), *([] if units is None else [units])]

    @torch.inference_mode()
    def decode(
        self, texts: Sequence[Sequence[WordWindow]], counts: Sequence[int], *, size: int = 64,
        report: Report = lambda done: None,
    ) -> list[PredictedTree]:
        """The tree of each sentence; `texts` are its windows and `counts` its words. Runs in eval mode."""
        trees: list[Any] = [None] * len(texts)
        with evaluating(self):
            for index in by_length(counts, rows=size):
                word_counts = [counts[i] for i in index]
                views, _ = read_words(
                    self.exact, self.head, [texts[i] for i in index], word_counts, width=sum(self.head.head.sizes), size=size
                )
                for i, tree in zip(index, self._trees(views, torch.tensor(word_counts)), strict=True):
                    trees[i] = tree
                report(len(index))
        return trees

    def _trees(self, views: torch.Tensor, sizes: torch.Tensor) -> list[PredictedTree]:
        chains = chains_of(torch.repeat_interleave(sizes))
        laid = chains.laid(views.to(self.exact.device))
        sizes = chains.sizes.to(laid.device)
        scores = self.head.head.arcs(laid, sizes).double()
        shares, arcs = scores.softmax(2).cpu().numpy(), scores.cpu().numpy()
        heads = np.zeros(laid.shape[:2], np.int64)
        for row, count in enumerate(sizes.tolist()):
            heads[row, :count] = best_tree(arcs[row, :count, : count + 1])
        chosen = torch.from_numpy(heads).to(laid.device)
        relations = self.head.head.relations(laid, chosen)
        if ROOT in self.names and len(self.names) > 1:
            roots = torch.arange(len(self.names), device=laid.device) == self.names.index(ROOT)
            relations = relations.masked_fill(roots != (chosen == 0)[:, :, None], -torch.inf)
        labels = relations.argmax(2).cpu().numpy()
        trees = []
        for row, count in enumerate(sizes.tolist()):
            row_heads = heads[row, :count]
            trees.append(PredictedTree(
                tuple(row_heads.tolist()), tuple(self.names[n] for n in labels[row, :count]),
                tuple(round(float(p), 6) for p in shares[row, np.arange(count), row_heads]),
            ))  # fmt: skip
        return trees

    def judge(
        self, rows: Sequence[ParsedRow], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> list[JudgedTree]:
        """How many words of each sentence are where they should be."""
        predicted = self._decode(rows, size, report)
        return [judged((row.heads, row.relations), tree[:2]) for row, tree in zip(rows, predicted, strict=True)]

    def _decode(self, rows: Sequence[ParsedRow], size: int, report: Report) -> list[PredictedTree]:
        return self.decode([row.windows for row in rows], [len(row.heads) for row in rows], size=size, report=report)

    def metrics(self, judged: Sequence[JudgedTree]) -> dict[str, float]:
        """Every metric of sentences that were judged."""
        return figures(judged)

    def evaluate(
        self, examples: Trees, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """All metrics on sentences with trees, and of each relation how well its arcs are found."""
        rows = self.answered(examples)
        predicted = self._decode(rows, size, report)
        outcomes = [judged((row.heads, row.relations), tree[:2]) for row, tree in zip(rows, predicted, strict=True)]
        unknown = Counter(relation for row in rows for relation in row.relations if relation not in self.names)
        remarks = [CONVENTION]
        if unknown:
            counts = ", ".join(f"{relation} ({number})" for relation, number in unknown.most_common(_SHOWN))
            remarks.append(f"relations that training never saw are never right: {counts}")
        baseline = None
        if always is not None:
            baseline = {"always": always, **constant(always, [(row.heads, row.relations) for row in rows])}
        return Evaluation(
            len(rows), figures(outcomes), baseline, tuple(remarks), judged=outcomes, report=by_relation(rows, predicted)
        )

    def predict(self, examples: Trees, *, size: int = 64, report: Report = lambda done: None) -> list[Parsed]:
        """The tree of every sentence."""
        running = examples.running or tuple(repeat(None, len(examples)))
        placed = [self._placed(words, text) for words, text in zip(examples.words, running, strict=True)]
        words = [tuple(text[begin:end] for begin, end in offsets) for text, offsets in placed]
        windows, counts = word_windows(self.reader, words, self.length), [len(row) for row in words]
        predicted = self.decode(windows, counts, size=size, report=report)
        parses = []
        for line, forms, (text, offsets), tree, rows in zip(examples.lines, words, placed, predicted, examples.rows, strict=True):
            parses.append(Parsed(line, forms, *tree, as_conllu(text, offsets, tree.heads, tree.relations, rows)))
        return [replace(parses[0], written=f"{GENERATOR}\n{parses[0].written}"), *parses[1:]] if parses else parses

    def _placed(self, words: Sequence[str], running: str | None) -> tuple[str, list[Span]]:
        return as_text(words) if running is None else (running, word_spans(running, self.reader.tokenizer))


Arcs = tuple[Sequence[int], Sequence[str]]


def judged(truth: Arcs, guess: Arcs) -> JudgedTree:
    """What the metrics need of one sentence: the tree of the file against another one."""
    heads = np.array(truth[0]) == np.array(guess[0])
    whole = heads & np.array([a == b for a, b in zip(truth[1], guess[1], strict=True)], bool)
    true, predicted = ([relation.partition(":")[0] for relation in side[1]] for side in (truth, guess))
    both = heads & np.array([a == b for a, b in zip(true, predicted, strict=True)], bool)
    plain = np.array([relation != PUNCTUATION for relation in true], bool)
    content, claimed = (np.array([relation in CONTENT for relation in side], bool) for side in (true, predicted))
    counted = (
        heads | True, heads, both, whole, plain, heads & plain, both & plain, content, claimed, both & content
    )  # fmt: skip
    return JudgedTree(*(int(mask.sum()) for mask in counted))


def figures(judged: Sequence[JudgedTree]) -> dict[str, float]:
    """Labelled and unlabelled attachment scores: the share of words with the right head, and with the right relation to it.

    `clas` is the F1 of the arcs of content words, which are those with such a relation, on either side.
    """
    total = JudgedTree(*np.array(judged).reshape(-1, len(JudgedTree._fields)).sum(0).tolist())
    counts = (
        (total.arcs, total.words), (total.heads, total.words),
        (2 * total.content_right, total.content_true + total.content_found), (total.whole_arcs, total.words),
        (total.plain_arcs, total.plain_words), (total.plain_heads, total.plain_words),
    )  # fmt: skip
    return {name: right / of if of else 0.0 for name, (right, of) in zip(NAMES, counts, strict=True)}


def constant(always: str, truth: Sequence[Arcs]) -> dict[str, float]:
    """The metrics of attaching every word to the next one with one relation, and the last to the root."""
    guess = [((*range(2, len(heads) + 1), 0), (*[always] * (len(heads) - 1), ROOT)) for heads, _ in truth]
    return figures([judged(arcs, predicted) for arcs, predicted in zip(truth, guess, strict=True)])


def by_relation(rows: Sequence[ParsedRow], predicted: Sequence[PredictedTree]) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of the arcs of each relation, head and relation both right."""
    true, guessed, right = Counter[str](), Counter[str](), Counter[str]()
    for row, tree in zip(rows, predicted, strict=True):
        true.update(row.relations)
        guessed.update(tree.relations)
        arcs = zip(zip(row.heads, row.relations, strict=True), zip(tree.heads, tree.relations, strict=True), strict=True)
        right.update(relation for (head, relation), other in arcs if (head, relation) == other)
    return [
        {
            "label": name, "precision": right[name] / guessed[name] if guessed[name] else 0.0,
            "recall": right[name] / true[name] if true[name] else 0.0, "f1": 2 * right[name] / (true[name] + guessed[name]),
            "support": true[name],
        }
        for name in sorted(true | guessed)
    ]  # fmt: skip
