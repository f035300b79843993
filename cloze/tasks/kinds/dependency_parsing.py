"""Attach the words of a sentence to one another: dependency trees, as in Universal Dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import TaskError
from cloze.objectives.labels.chain import chains_of
from cloze.registry import register
from cloze.tasks.kinds.conllu import GENERATOR, Trees, as_conllu, read_trees
from cloze.tasks.kinds.trees import best_tree
from cloze.tasks.task import LabelledRow, Prediction, Report, Task, require_head, silent
from cloze.tasks.words import WordsLearner, WordsRow, WordWindow, word_windows

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
Arcs = tuple[Sequence[int], Sequence[str]]  # the heads of the words of a sentence, and the relations to them


@dataclass(frozen=True)
class DependencyParsing(Task):
    """Which columns of CoNLL-U hold a word and the relation to its head."""

    text: str = "form"
    label: str = "deprel"
    format: Format | None = None
    name: str = "dependency_parsing"
    instead_of_text: ClassVar[str] = "finds the best tree"
    of_words: ClassVar[bool] = True  # a text may be a list of its words
    writes: ClassVar[tuple[str, ...]] = ("conllu",)
    metrics: ClassVar[Mapping[str, bool]] = dict.fromkeys(NAMES, True)

    def for_files(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> DependencyParsing:
        """The same task for files that are written in another way: sentences to parse may be JSON lines."""
        if columns is not None:
            raise TaskError("--columns: trees are read from CoNLL-U, which has its own ten columns. Leave it out.")
        if quoting == "standard":
            raise TaskError("--quoting standard: in CoNLL-U a quote is a word like any other. Leave it out.")
        return replace(self, format=format)

    def read(self, path: Path | str, *, labelled: bool = True) -> Trees:
        """The sentences of a file."""
        return read_trees(path, text=self.text, relation=self.label, format=self.format, labelled=labelled)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Parser:
        """What parses, of a fine-tuned folder."""
        return Parser(
            Reader.of(loaded), require_head(loaded, task_json["head"]), self, labels=task_json["labels"],
            length=task_json.get("length"), ideographs=task_json.get("ideographs"),
        )

    def truth(self, examples: Trees, labels: Sequence[str], *, numbered: bool = False) -> list[Arcs]:
        """The heads of the words of every sentence and the relations to them."""
        assert examples.heads is not None and examples.relations is not None  # read with labels
        return list(zip(examples.heads, examples.relations, strict=True))

    def per_example(self, truth: Sequence[Arcs], outputs: Sequence[PredictedTree], labels: Sequence[str]) -> list[JudgedTree]:
        """How many words of each sentence are where they should be."""
        return [per_example(arcs, tree[:2]) for arcs, tree in zip(truth, outputs, strict=True)]

    def compute_metrics(self, per_example: Sequence[JudgedTree], labels: Sequence[str]) -> dict[str, float]:
        """See the function `compute_metrics`."""
        return compute_metrics(per_example)

    def constant_metrics(self, constant_answer: str, truth: Sequence[Arcs], labels: Sequence[str]) -> dict[str, float]:
        """See `constant`."""
        return constant(constant_answer, truth)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "label": self.label}}


@register("task", "dependency_parsing")
def dependency_parsing(text: str = "form", label: str = "deprel") -> DependencyParsing:
    """The head of each word of a sentence and the relation to it. `text` and `label` name columns of CoNLL-U."""
    return DependencyParsing(text, label)


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
class ParsedSentence(Prediction):
    """The tree of one sentence, the line it begins at, and the sentence as CoNLL-U (`written`)."""

    line: int
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    probabilities: tuple[float, ...]
    written: str

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {name: value for name, value in vars(self).items() if name != "written"}

    def written_as(self, format: str | None) -> str | None:
        """The sentence as CoNLL-U."""
        return self.written if format in (None, "conllu") else None

    def word_rows(self) -> list[dict[str, Any]]:
        """The words as rows of a table: each with its number, from 1, and that of its head, 0 for the root."""
        columns = zip(self.words, self.heads, self.relations, self.probabilities, strict=True)
        return [
            {"line": self.line, "id": number, "word": word, "head": head, "relation": relation, "probability": probability}
            for number, (word, head, relation, probability) in enumerate(columns, start=1)
        ]


class Parser(WordsLearner):
    """A reader with a head over arcs; the answer is the best tree with one root.

    The word on the root has the relation `root` if training knew it, and no other word has it. `labels` are the relations.
    """

    def windows(self, examples: Trees, words: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The windows of the words of some sentences."""
        return word_windows(self.reader, words, self.length)

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[WordsRow], size: int = 64, report: Report = silent) -> list[PredictedTree]:
        """The tree of each sentence."""
        trees: list[Any] = [None] * len(rows)
        with evaluating(self):
            for index, counts, views, _ in self.scores(rows, sum(self.head.head.sizes), size):
                for i, tree in zip(index, self._trees(views, torch.tensor(counts)), strict=True):
                    trees[i] = tree
                report(len(index))
        return trees

    def _trees(self, views: torch.Tensor, sizes: torch.Tensor) -> list[PredictedTree]:
        chains = chains_of(torch.repeat_interleave(sizes))
        laid = chains.laid(views.to(self.reader.device))
        sizes = chains.sizes.to(laid.device)
        scores = self.head.head.arcs(laid, sizes).double()
        shares, arcs = scores.softmax(2).cpu().numpy(), scores.cpu().numpy()
        heads = np.zeros(laid.shape[:2], np.int64)
        for row, count in enumerate(sizes.tolist()):
            heads[row, :count] = best_tree(arcs[row, :count, : count + 1])
        chosen = torch.from_numpy(heads).to(laid.device)
        relations = self.head.head.relations(laid, chosen)
        if ROOT in self.label_names and len(self.label_names) > 1:
            roots = torch.arange(len(self.label_names), device=laid.device) == self.label_names.index(ROOT)
            relations = relations.masked_fill(roots != (chosen == 0)[:, :, None], -torch.inf)
        labels = relations.argmax(2).cpu().numpy()
        trees = []
        for row, count in enumerate(sizes.tolist()):
            row_heads = heads[row, :count]
            trees.append(PredictedTree(
                tuple(row_heads.tolist()), tuple(self.label_names[n] for n in labels[row, :count]),
                tuple(round(float(p), 6) for p in shares[row, np.arange(count), row_heads]),
            ))  # fmt: skip
        return trees

    def remarks(self, examples: Trees, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """How arcs are counted, and which relations training never saw."""
        unknown = Counter(relation for row in rows for relation in row.truth[1] if relation not in self.label_names)
        counts = ", ".join(f"{relation} ({number})" for relation, number in unknown.most_common(_SHOWN))
        return [CONVENTION, *([f"relations that training never saw are never right: {counts}"] if unknown else [])]

    def details(self, rows: Sequence[LabelledRow], outputs: Sequence[PredictedTree], per_example: Any) -> dict[str, Any]:
        """How well the arcs of each relation are found."""
        return {"by_class": by_relation([row.truth for row in rows], outputs)}

    def predictions(self, examples: Trees, rows: Sequence[WordsRow], outputs: Sequence[PredictedTree]) -> list[ParsedSentence]:
        """The tree of every sentence."""
        parses = [
            ParsedSentence(line, row.words, *tree, as_conllu(row.text, row.offsets, tree.heads, tree.relations, lines))
            for line, row, tree, lines in zip(examples.lines, rows, outputs, examples.rows, strict=True)
        ]
        return [replace(parses[0], written=f"{GENERATOR}\n{parses[0].written}"), *parses[1:]] if parses else parses


def per_example(truth: Arcs, guess: Arcs) -> JudgedTree:
    """What the metrics need of one sentence: the tree of the file against another one."""
    heads = np.array(truth[0]) == np.array(guess[0])
    arcs = heads & np.array([a == b for a, b in zip(truth[1], guess[1], strict=True)], bool)
    true, predicted = ([relation.partition(":")[0] for relation in side[1]] for side in (truth, guess))
    both = heads & np.array([a == b for a, b in zip(true, predicted, strict=True)], bool)
    plain = np.array([relation != PUNCTUATION for relation in true], bool)
    content, claimed = (np.array([relation in CONTENT for relation in side], bool) for side in (true, predicted))
    counted = (
        heads | True, heads, both, arcs, plain, heads & plain, both & plain, content, claimed, both & content
    )  # fmt: skip
    return JudgedTree(*(int(mask.sum()) for mask in counted))


def compute_metrics(per_example: Sequence[JudgedTree]) -> dict[str, float]:
    """Labelled and unlabelled attachment scores: the share of words with the right head, and with the right relation to it.

    `clas` is the F1 of the arcs of content words, which are those with such a relation, on either side.
    """
    total = JudgedTree(*np.array(per_example).reshape(-1, len(JudgedTree._fields)).sum(0).tolist())
    counts = (
        (total.arcs, total.words), (total.heads, total.words),
        (2 * total.content_right, total.content_true + total.content_found), (total.whole_arcs, total.words),
        (total.plain_arcs, total.plain_words), (total.plain_heads, total.plain_words),
    )  # fmt: skip
    return {name: right / of if of else 0.0 for name, (right, of) in zip(NAMES, counts, strict=True)}


def constant(constant_answer: str, truth: Sequence[Arcs]) -> dict[str, float]:
    """The metrics of attaching every word to the next one with one relation, and the last to the root."""
    guess = [((*range(2, len(heads) + 1), 0), (*[constant_answer] * (len(heads) - 1), ROOT)) for heads, _ in truth]
    return compute_metrics([per_example(arcs, predicted) for arcs, predicted in zip(truth, guess, strict=True)])


def by_relation(truth: Sequence[Arcs], predicted: Sequence[PredictedTree]) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of the arcs of each relation, head and relation both right."""
    true, guessed, right = Counter[str](), Counter[str](), Counter[str]()
    for (heads, relations), tree in zip(truth, predicted, strict=True):
        true.update(relations)
        guessed.update(tree.relations)
        arcs = zip(zip(heads, relations, strict=True), zip(tree.heads, tree.relations, strict=True), strict=True)
        right.update(relation for (head, relation), other in arcs if (head, relation) == other)
    return [
        {
            "label": name, "precision": right[name] / guessed[name] if guessed[name] else 0.0,
            "recall": right[name] / true[name] if true[name] else 0.0, "f1": 2 * right[name] / (true[name] + guessed[name]),
            "support": true[name],
        }
        for name in sorted(true | guessed)
    ]  # fmt: skip
