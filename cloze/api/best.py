"""The best model for a text and a few labels as a function: what `cloze best` answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloze.api.cells import Texts, cells_run, paths_of, result_html, write_in_memory
from cloze.api.model import Model, load
from cloze.api.train import Corpus, Values, overrides_of
from cloze.arguments import check_arguments
from cloze.comparison.best.best import answer
from cloze.comparison.best.best_page import figures
from cloze.comparison.best.question import BUDGET, SIZE, BestQuestion
from cloze.comparison.best.verdict import Verdict, as_data, as_text, remarks, sentences, table
from cloze.corpus.readers.formats import with_column
from cloze.corpus.readers.hub_tables import local_tables
from cloze.errors import Say, TaskError
from cloze.hub import local_folder
from cloze.jobs import workers_on
from cloze.reports.plot import Figures
from cloze.tasks.given import as_records
from cloze.tasks.task import task as make_task


class Best:
    """What was found: `sentences` say which model is kept and how sure that is, `model` is that model, `page` the HTML page.

    The representation is the table of `cloze best`.
    """

    def __init__(self, verdict: Verdict, page: Path, kept: Path) -> None:
        self.verdict, self.page, self.kept = verdict, page, kept

    @property
    def sentences(self) -> list[str]:
        """What is kept, whether it beats n-grams by more than chance, and what more labels would bring."""
        return sentences(self.verdict)

    @property
    def model(self) -> Model:
        """The model that was kept."""
        return load(self.kept)

    def data(self) -> dict[str, Any]:
        """All figures as plain values."""
        return as_data(self.verdict)

    def __repr__(self) -> str:
        return f"{as_text(self.verdict)}\n\nPage: {self.page}"

    def _repr_html_(self) -> str:
        return result_html(*table(self.verdict), remarks(self.verdict), self.page)

    def plot(self) -> Figures:
        """The figures of the page: the score of every system with its interval, and the learning curve."""
        return Figures(figures(self.verdict))


@check_arguments
def best(
    *, corpus: Texts, train: Corpus, out: str | Path, test: Corpus | None = None, unlabelled: Texts = (),
    task: str = "sentence_classification", models: Sequence[str | Path | Model] = (), budget: str = BUDGET, size: str = SIZE,
    tuning: Values = (), jobs: int = 1, text_format: str = "auto", encoding: str | None = None, device: str = "auto",
    report: Say | None = print,
) -> Best:
    """Find the best model for a text and a few labels, and keep it in `out/best`; see `cloze best`.

    Linear models on n-grams, fastText, word vectors, `quick` on the corpus and `models` answer the labelled rows by
    cross-validation. The best network is fine-tuned, also on texts of the corpus that its teacher has labelled, and mixed with
    the linear model. The same call resumes what was stopped, and repeats nothing.

    Args:
        corpus: Your text without labels: files, or texts in memory, each a document.
        train: Labelled rows: files, or rows in memory as `finetune` takes them. There are no dev rows: all systems are measured
            by cross-validation.
        out: The folder of the comparison; the model is in `out/best`.
        test: A file of rows that are not learned from, or such rows.
        unlabelled: Texts like the rows, without labels, as the corpus. None: such texts are looked for in the corpus.
        task: The type of the task: classes or numbers of texts or of pairs of texts, labels of words, or choices.
        models: Further networks to compare, folders of Hugging Face.
        budget: What each run of pre-training may spend.
        size: The size of `quick`.
        tuning: Values of the recipe of the task, such as `{"corpus.text": "review"}`.
        jobs: How many runs to do at the same time.
        encoding: The encoding of the files of rows and texts. None: it is detected.
        report: Called with every line. None prints nothing.

    Raises:
        ClozeError: The question cannot be answered. Nothing has been trained.
        KeyboardInterrupt: The kernel was interrupted. Finished cells are kept.
    """
    folders = [local_folder(model.folder if isinstance(model, Model) else model) for model in models]
    target = Path(out) / "best"
    with cells_run(out, report) as say:
        train_files = _row_files(train, "train", out, task, encoding)
        test_files = [None] if test is None else _row_files(test, "test", out, task, encoding)
        if len(test_files) > 1:
            raise TaskError(f"test: {len(test_files)} files; expected one.")
        question = BestQuestion(
            task, train_files, test_files[0], paths_of(corpus, out, encoding=encoding),
            local_tables(paths_of(unlabelled, out, "unlabelled", encoding)), folders, budget, size, tuning=overrides_of(tuning),
            text_format=with_column(text_format, None, encoding), device=device, encoding=encoding,
        )
        verdict, page = answer(question, Path(out), workers_on("local", jobs), keep=target, say=say)
        return Best(verdict, page, target)


def _row_files(rows: Corpus, what: str, out: str | Path, task: str, encoding: str | None = None) -> list[str]:
    """The files of labelled rows; rows in memory are written into the folder of the comparison."""
    files = [rows] if isinstance(rows, (str, Path)) else rows
    if isinstance(files, Sequence) and all(isinstance(file, (str, Path)) for file in files):
        return list(map(os.path.abspath, local_tables(list(map(str, files)))))
    return [write_in_memory(as_records(rows, make_task(task), labelled=True), out, what, encoding)]
