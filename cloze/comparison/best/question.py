"""What is asked: which model is best for a text and a few labelled rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.atomic import whole_file
from cloze.checkpoint.several import similar_task
from cloze.corpus import Store
from cloze.corpus.readers import read_documents
from cloze.corpus.readers.text_files import require_files
from cloze.errors import CorpusError, MissingExtra, Phrase, TaskError, spelled_by
from cloze.missing import require_checkpoint
from cloze.recipe.load import load_recipe, task_recipe_names
from cloze.recipe.stages import stage_recipes
from cloze.recipe.user_files import import_files, require_parts
from cloze.runs.recipe_tasks import task_of_recipe
from cloze.tasks.kinds.classification import LinearSingleLabel
from cloze.tasks.kinds.multiple_choice import LinearChoice
from cloze.tasks.linear.fit import FEWEST, fold_numbers
from cloze.tasks.linear.linear_task import LinearTask, LinearTexts
from cloze.tasks.linear.linear_words import LinearLabelling
from cloze.tasks.linear.unlabelled import learns_from_texts
from cloze.tasks.task import Task, chosen_metric, join_examples
from cloze.text.encodings import reading_as
from cloze.training.schedule.budget import Budget

BUDGET, SIZE = "2m", "tiny"  # of each run of pre-training, if none is named
TEXTS = 8_000  # without labels that are read at most
TEXTS_OF_TEACHER = 4_000  # of them that a teacher labels at most
_DOCUMENTS = 200_000  # of the corpus that texts are drawn from
_SHORTEST, _LONGEST = 0.25, 4.0  # how many times shorter and longer than nearly all rows a text may be
_NEARLY_ALL = (5, 95)  # percentiles


@dataclass(frozen=True)
class BestQuestion:
    """A corpus, and a task with `labelled` files of rows; `test` is a file of rows that are not learned from.

    `unlabelled` are files of texts like the rows; without any, they are looked for in the corpus. `models` are folders of further
    networks. Every run of pre-training may spend `budget`. `tuning` are values for the recipe of
    the task; `encoding` is that of its files. `with_files` register parts that `models` are made of.
    """

    type: str
    labelled: Sequence[str]
    test: str | None
    corpus: Sequence[str]
    unlabelled: Sequence[str] = ()
    models: Sequence[Path] = ()
    budget: str = BUDGET
    size: str = SIZE
    tuning: Sequence[str] = ()
    text_format: str = "auto"
    device: str = "auto"
    encoding: str | None = None
    with_files: Sequence[Path] = ()


@dataclass(frozen=True)
class QuestionRows:
    """The rows of a question: the task, the metric that systems are measured by, the linear form of the task with the labels in
    their order, labelled examples, test examples, and texts without labels (None where there are none to learn from)."""

    kind: Task
    metric: str
    linear: LinearTask
    labelled: Any
    test: Any | None
    texts: Any | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of probabilities."""
        return self.linear.labels

    @property
    def classes(self) -> NDArray[np.int64] | None:
        """The number of the class of each labelled row, (N,); None if a row has another kind of answer."""
        return self.linear.targets(self.labelled) if isinstance(self.linear, LinearSingleLabel) else None

    @property
    def learns_from_texts(self) -> bool:
        """Whether texts without labels can be learned from: the task has classes of one text."""
        return learns_from_texts(self.linear) and self.labelled.others is None

    @property
    def why_no_texts(self) -> str:
        """Why there are no `texts`."""
        if self.learns_from_texts:
            return "there are none that have the length of the labelled rows"
        return f"{self.kind.name} does not learn from them"

    @cached_property
    def folds(self) -> NDArray[np.int64]:
        """The fold of each labelled row, (N,)."""
        return fold_numbers(self.linear, self.labelled)

    @property
    def more(self) -> bool:
        """Whether more of the metric is better."""
        return self.kind.metrics[self.metric]


def require_answerable(question: BestQuestion) -> None:
    """Raise a `UserError` before anything is trained or written if the question cannot be answered."""
    if find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "baselines", "cloze best")
    Budget.parse(question.budget)
    import_files(question.with_files)
    if not question.corpus:
        raise CorpusError("--corpus is missing: your text without labels, from which a network is pre-trained.")
    if "-" in question.corpus:
        raise CorpusError("--corpus -: standard input can be read only once. Write the text into a file.")
    if len(question.corpus) == 1 and Store.is_store(question.corpus[0]):
        raise CorpusError(
            f"--corpus {question.corpus[0]}: is a token store. Give the text itself: its lines are read as texts, too."
        )
    require_files([*question.labelled, *([] if question.test is None else [question.test]), *question.unlabelled])
    for model in question.models:
        require_checkpoint(model, expected="--from needs the folder of a model")
        require_parts(model)
    with reading_as(question.encoding, lambda line: None), spelled_by(_as_values):
        read_rows(question)


def _as_values(phrase: Phrase) -> str | None:
    """How `cloze best` names the columns of a table: as values of the recipe of the task."""
    path, value = phrase.parameter.path, phrase.parameter.value
    if phrase.parameter.key not in ("text", "text_b", "label", "columns"):
        return None
    return phrase.naming(f"--set '{path}=[{', '.join(value)}]'" if isinstance(value, tuple) else f"--set {path}={value}")


def read_rows(question: BestQuestion, texts: Path | None = None) -> QuestionRows:
    """The rows of a question; `texts` is the file of texts without labels that `write_texts` wrote."""
    if question.type not in task_recipe_names():
        raise TaskError(f"--task {question.type}: unknown task. {similar_task(question.type)}")
    recipe = load_recipe(question.type, overrides=list(question.tuning))
    last = stage_recipes(recipe)[-1]
    kind: Any = task_of_recipe(last)
    metric = chosen_metric(kind, None if last.task is None else last.task.metric)
    linear = kind.linear()
    if not isinstance(linear, (LinearTexts, LinearLabelling, LinearChoice)):
        raise TaskError(
            f"--task {question.type}: expected a task with classes or numbers for a text or a pair of texts, with labels for "
            "words, or with choices.\n"
            "  For this task, name what to compare: cloze compare quick --task …"
        )
    labelled = join_examples([kind.read(file) for file in question.labelled])
    if len(labelled) < FEWEST:
        raise TaskError(f"{labelled.path}: has {len(labelled)} labelled rows; at least {FEWEST} are needed to compare anything.")
    linear = kind.linear(linear.labels_of(labelled))
    test = None if question.test is None else kind.read(question.test)
    if test is not None:
        linear.targets(test)  # labels that no labelled row has are an error
    if len(np.unique(linear.targets(labelled), axis=0)) < 2:
        raise TaskError(f"{labelled.path}: all rows have the same answer, so there is nothing to learn.")
    rows = QuestionRows(kind, metric, linear, labelled, test, None)
    if texts is None or not rows.learns_from_texts:
        return rows
    lines = json.loads(texts.read_text(encoding="utf-8"))
    without = type(labelled)(lines, None, None, str(texts), tuple(range(1, len(lines) + 1)))
    return replace(rows, texts=without) if lines else rows


def repeated(rows: QuestionRows) -> list[str]:
    """Remarks on texts that make scores too high: those of labelled rows and test rows."""
    labelled = {_joined(text) for text in rows.linear.texts(rows.labelled)}
    tested = [] if rows.test is None else [_joined(text) for text in rows.linear.texts(rows.test)]
    shared = sum(text in labelled for text in tested)
    if not shared:
        return []
    return [f"{shared:,} of {len(tested):,} test rows have the text of a labelled row: scores on the test rows are too high"]


def write_texts(question: BestQuestion, path: Path) -> None:
    """Write the texts without labels that are not among the rows: those of the question, or documents and lines of the corpus
    that have about the length of rows. Makes the folder."""
    rows = read_rows(question)
    texts: list[str] = []
    if not rows.learns_from_texts:
        _write_json(path, texts)
        return
    row_texts = {_joined(text) for examples in (rows.labelled, rows.test) if examples is not None for text in examples.texts}
    if question.unlabelled:
        with spelled_by(_as_values):
            files = [rows.kind.read(file, labelled=False) for file in question.unlabelled]
        texts = [text for text in dict.fromkeys(_joined(line) for file in files for line in file.texts) if text not in row_texts]
    else:
        low, high = np.percentile([len(text) for text in rows.labelled.texts], _NEARLY_ALL)
        least, most = low * _SHORTEST, high * _LONGEST
        texts = [text for text in dict.fromkeys(_pieces(question, most)) if least <= len(text) <= most and text not in row_texts]
    order = rng.permutation(len(texts), 0, "texts")[:TEXTS]
    _write_json(path, [texts[number] for number in order])


def _write_json(path: Path, texts: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)  # whatever is wrong was refused before
    with whole_file(path) as fresh:
        fresh.write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")


def _pieces(question: BestQuestion, most: float) -> Iterator[str]:
    """The documents of the corpus with at most so many characters, and the lines of the others."""
    for document in islice(read_documents(list(question.corpus), format=question.text_format), _DOCUMENTS):
        text = _joined(document.text)
        yield from [text] if len(text) <= most else filter(None, map(_joined, document.text.split("\n")))


def _joined(text: str) -> str:
    return " ".join(text.split())
