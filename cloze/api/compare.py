"""Comparisons as a function: what `cloze compare` answers, as an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloze.api.cells import Files, Texts, cells_run, paths_of, result_html, typed_task
from cloze.api.model import Model
from cloze.api.train import Values, overrides_of
from cloze.arguments import check_arguments
from cloze.comparison.answer import ComparisonResult
from cloze.comparison.compare import finish
from cloze.comparison.design import Design, budgets_of, candidates_of, tasks_of, transfers_of
from cloze.comparison.page import figures_of
from cloze.comparison.sentence import as_data, as_records, remarks, rows, sentence, table
from cloze.corpus.readers.formats import with_column
from cloze.errors import Say
from cloze.hub import local_folder
from cloze.jobs import workers_on
from cloze.reports.plot import Figures


class Comparison:
    """What a comparison has found: `sentence` says which candidate is best, `page` is the path of the HTML page.

    The representation is the table of `cloze compare`. `answer` holds the figures as objects, `failures` the cells that failed.
    """

    def __init__(self, answer: ComparisonResult, page: Path) -> None:
        self.answer, self.page = answer, page

    @property
    def sentence(self) -> str:
        """Which candidate is best, by how much, and from which it does not differ significantly."""
        return sentence(self.answer)

    @property
    def failures(self) -> list[str]:
        """The cells that failed, each with its reason."""
        return [f"{failure.cell}: {failure.reason}" for failure in self.answer.failures]

    def table(self) -> list[dict[str, Any]]:
        """A row for every run: system, budget, task, metric, run, score, and what its pre-training cost.

        `cloze.frame` makes a data frame of it.
        """
        return as_records(self.answer)

    def data(self) -> dict[str, Any]:
        """All figures as plain values, as `cloze compare --json` prints them."""
        return as_data(self.answer)

    def __repr__(self) -> str:
        return f"{table(self.answer)}\n\nPage: {self.page}"

    def _repr_html_(self) -> str:
        return result_html(*rows(self.answer), remarks(self.answer), self.page)

    def plot(self) -> Figures:
        """The figures of the page: scores with their spread over seeds, and what they cost."""
        return Figures(figures_of(self.answer))


@check_arguments
def compare(
    candidates: Sequence[str | Path | Model], *, tasks: Mapping[str, Files], out: str | Path,
    corpus: Texts = (), budget: str | Sequence[str] = (), seeds: int = 3, size: str | None = None,
    transfer: Sequence[str] = ("full",), vary: Mapping[str, Sequence[Any]] | None = None, overrides: Values = (),
    tuning: Values = (), rates: int = 1, jobs: int = 1, on: str = "local", tokenizer: str | Path | None = None,
    text_format: str = "auto", encoding: str | None = None, reach: float | None = None, allow_shared: bool = False,
    device: str = "auto", with_files: Sequence[str | Path] = (), fit: bool | None = None, baselines: bool = True,
    track: Sequence[str] = (), report: Say | None = print,
) -> Comparison:
    """Pre-train and fine-tune candidates at an equal budget, and say which differ significantly; see `cloze compare`.

    Each run is a process of its own, so tasks are files. The same call resumes a comparison that was stopped, and one
    with more seeds, tasks or candidates runs only what is missing.

    Args:
        candidates: Recipes (names or files), models, or folders of checkpoints.
        tasks: By name, the files of the training, dev and test sets, `{"mood": ("train.tsv", "dev.tsv", "test.tsv")}`. Put the
            type first if it is not `sentence_classification`: `{"names": ("token_labelling", "train.conll", …)}`.
        out: The folder of the comparison.
        corpus: Text files, or one token store, for recipes; or texts in memory, each a document.
        budget: What each run of pre-training may spend, "20Mtokens"; several give curves.
        seeds: Runs of each candidate.
        transfer: Ways of fine-tuning, `["full", "frozen", "lora=8"]`.
        vary: Each recipe with each value, `{"exercise.mask.rate": [0.15, 0.3]}`.
        overrides: Values of all recipes that are pre-trained.
        tuning: Values of the recipes of tasks, `{"training.epochs": 3}`; `mood:training.epochs` is for one task.
        rates: How many peak rates to try per candidate: 1, 3 or 5.
        jobs: How many runs to do at the same time.
        on: Where they run: local, ray or ray://HOST:PORT.
        tokenizer: The folder of one tokenizer for all recipes. None: each trains its own.
        encoding: The encoding of the files of rows and texts. None: it is detected.
        reach: Show the cost of reaching this mean score.
        allow_shared: Compare although splits of a task share rows.
        fit: Whether to fit recipes to the budget. None: built-in recipes are fitted, your own are not.
        baselines: Whether to fit a linear model on n-grams to each task for comparison.
        track: Where the numbers of each run also go: "tensorboard", "wandb", "mlflow", "trackio".
        report: Called with every line. None prints nothing.

    Raises:
        ClozeError: Something cannot be compared. Nothing has been trained.
        KeyboardInterrupt: The kernel was interrupted. Finished runs are kept.
    """
    names = [str(candidate.folder if isinstance(candidate, Model) else candidate) for candidate in candidates]
    varied = [f"{path}={','.join(map(str, values))}" for path, values in (vary or {}).items()]
    files = [Path(file) for file in with_files]
    with cells_run(out, report) as say:
        design = Design(
            candidates_of(names, vary=varied, values=overrides_of(overrides)),
            tasks_of([typed_task(name, splits) for name, splits in tasks.items()]), paths_of(corpus, out, encoding=encoding),
            budgets_of([budget] if isinstance(budget, str) else budget), seeds, size,
            transfers_of(",".join(transfer), with_files=files), rates, overrides_of(tuning),
            None if tokenizer is None else local_folder(tokenizer), with_column(text_format, None, encoding), device, files,
            allow_shared, fit, encoding, baselines=baselines, track=track,
        )
        return Comparison(*finish(design, Path(out), workers_on(on, jobs), reach=reach, say=say))
