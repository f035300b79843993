"""Sweeps as a function: what `cloze sweep` answers, as an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloze.api.cells import Files, Texts, cells_run, paths_of, result_html, typed_task
from cloze.api.train import Values, overrides_of
from cloze.arguments import check_arguments
from cloze.comparison.design import Design, budgets_of, tasks_of
from cloze.comparison.search import search_of
from cloze.comparison.space import space_of
from cloze.comparison.standings import SweepFinding, as_records, remarks, rows, sentence, table
from cloze.comparison.sweep import Sweep, keep_of, rungs_of
from cloze.comparison.sweep_page import curves, finish, value_figures
from cloze.corpus.readers.formats import with_column
from cloze.errors import Say
from cloze.hub import local_folder
from cloze.jobs import workers_on
from cloze.reports.plot import Figures


class Swept:
    """What a sweep has found: `sentence` says which trial is best, `page` is the path of the HTML page.

    The representation is the table of `cloze sweep`. `finding` holds the figures as objects, `failures` the cells that failed.
    """

    def __init__(self, finding: SweepFinding, page: Path) -> None:
        self.finding, self.page = finding, page

    @property
    def sentence(self) -> str:
        """Which trial is best, of how many, at what cost."""
        return sentence(self.finding)

    @property
    def best(self) -> dict[str, str] | None:
        """The values of the best trial, as `overrides` take them; None while no trial has reached the end."""
        standing = self.finding.best
        return None if standing is None else dict(value.split("=", 1) for value in standing.trial.values)

    @property
    def run(self) -> Path | None:
        """The run folder of the best trial, of its first seed."""
        return None if self.finding.best is None else self.finding.best.folder

    @property
    def failures(self) -> list[str]:
        """The cells that failed, each with its reason."""
        return [f"{failure.cell}: {failure.reason}" for failure in self.finding.failures]

    def table(self) -> list[dict[str, Any]]:
        """A row for every trial and rung that it reached. `cloze.frame` makes a data frame of it."""
        return as_records(self.finding)

    def data(self) -> dict[str, Any]:
        """All figures as plain values, as `cloze sweep --json` prints them."""
        return self.finding.data()

    def __repr__(self) -> str:
        return f"{table(self.finding)}\n\nPage: {self.page}"

    def _repr_html_(self) -> str:
        return result_html(*rows(self.finding), remarks(self.finding), self.page)

    def plot(self) -> Figures:
        """The figures of the page: the losses of all trials, and losses against values."""
        return Figures([*curves(self.finding), *value_figures(self.finding)])


@check_arguments
def sweep(
    recipe: str | Path, *, corpus: Texts, vary: Mapping[str, str | Sequence[Any]], budget: str,
    out: str | Path, tasks: Mapping[str, Files] | None = None, trials: int | None = None, search: str = "random",
    search_seed: int = 0, rungs: Sequence[float] = (0.1, 0.3, 1.0), keep: float | str = "1/3", seeds: int = 1,
    size: str | None = None, overrides: Values = (), jobs: int = 1, on: str = "local", tokenizer: str | Path | None = None,
    text_format: str = "auto", encoding: str | None = None, device: str = "auto", with_files: Sequence[str | Path] = (),
    fit: bool | None = None, track: Sequence[str] = (), report: Say | None = print,
) -> Swept:
    """Try many values of a recipe, and give up the worst early; see `cloze sweep`.

    The same call resumes a sweep that was stopped.

    Args:
        recipe: A recipe, a name or a file.
        corpus: Text files, or one token store; or texts in memory, each a document.
        vary: Paths with lists of values, or with a range as text: `{"training.rate.peak": "log:1e-4..3e-3"}`.
        budget: What a trial may spend in full, "20Mtokens".
        out: The folder of the sweep.
        tasks: What decides among the trials that reach the end, as in `compare`. None: their held-out losses.
        trials: How many points to try. None: the whole grid of choices.
        search: grid, random or optuna.
        rungs: Shares of the budget at which the worst trials are given up, the last one 1.
        keep: The share of the trials that goes on at each rung.
        seeds: Runs of each trial that reaches the end.
        overrides: Values of all trials.
        jobs: How many runs to do at the same time.
        on: Where they run: local, ray or ray://HOST:PORT.
        encoding: The encoding of the files of rows and texts. None: it is detected.
        fit: Whether to fit the recipe to the budget. None: a built-in recipe is fitted, one of your own is not.
        track: Where the numbers of each run also go: "tensorboard", "wandb", "mlflow", "trackio".
        report: Called with every line. None prints nothing.

    Raises:
        ClozeError: Something cannot be swept. Nothing has been trained.
        KeyboardInterrupt: The kernel was interrupted. Finished runs are kept.
    """
    varied = [f"{path}={values if isinstance(values, str) else ','.join(map(str, values))}" for path, values in vary.items()]
    with cells_run(out, report) as say:
        space = space_of(varied)
        design = Design(
            [], tasks_of([typed_task(name, splits) for name, splits in tasks.items()]) if tasks else [],
            paths_of(corpus, out, encoding=encoding), budgets_of([budget]), seeds, size,
            tokenizer=None if tokenizer is None else local_folder(tokenizer), device=device,
            text_format=with_column(text_format, None, encoding), with_files=[Path(file) for file in with_files], fit=fit,
            encoding=encoding, track=track,
        )
        plan = Sweep(
            str(recipe), design, space, search_of(search, space, trials, search_seed), rungs_of(",".join(map(str, rungs))),
            keep_of(str(keep)), overrides_of(overrides),
        )
        return Swept(*finish(plan, Path(out), workers_on(on, jobs), say=say))
