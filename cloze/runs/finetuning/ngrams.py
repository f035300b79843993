"""The linear model on n-grams next to a fine-tuned network: fitted once to the same rows, and kept in the network's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cloze.errors import ClozeError, MissingExtra, Say, TaskError
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.runs import recipe_tasks
from cloze.runs.options import FinetuneOptions
from cloze.tasks.evaluation import linear_next_to
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.linear.model import LinearModel
from cloze.tasks.mixture import ENTRY, choose_mixture
from cloze.tasks.task import Learner, Task, join_examples
from cloze.tasks.task import task as make_task
from cloze.tasks.tuned_folder import read_task_json


def compare_with_ngrams(
    task: Task, train: Sequence[str], dev: Any, *, labels: Sequence[str] | None, folder: Path, name: str = "", say: Say
) -> dict[str, Any] | None:
    """Fit the linear model of a task to the `train` files, save it in the `folder` of a fine-tuned network, and return what
    task.json says of it: its metrics on the dev examples, and how it was fitted. `name` is one of several tasks.

    None, and a line that says why, where none can be fitted: a comparison never stops a run. None without a line for a task that
    has no linear model.
    """
    try:
        if task.linear() is None:
            return None
        linear = fit_linear(task, join_examples([task.read(file) for file in train]), dev, labels=tuple(labels or ()))
        metrics = linear.measure(dev)
        size = linear.save(folder / "cloze", name)
    except MissingExtra as error:
        say(str(error))
    except ClozeError as error:
        say(f"no linear model on n-grams: {error}")
    except Exception as error:  # whatever scikit-learn makes of unusual rows
        say(f"no linear model on n-grams: {type(error).__name__}: {error}")
    else:
        say(describe_fit(linear))
        return {"dev": metrics, **asdict(linear.fit), "bytes": size}
    return None


def describe_fit(linear: LinearModel) -> str:
    """A line on how a model was fitted."""
    fit = linear.fit
    rows = f"{fit.rows:,}" if fit.rows == fit.of_rows else f"{fit.rows:,} of the {fit.of_rows:,}"
    return (
        f"n-grams: a linear model with {fit.features:,} features, fitted to {rows} training rows in {fit.seconds:.1f} s for "
        f"comparison (regularisation constant {fit.constant:g}, chosen on {fit.chosen_on}); --no-baselines leaves it out"
    )


def mix_with_ngrams(learner: Learner, dev: Any, say: Say) -> dict[str, Any]:
    """Choose on the dev examples how a network is mixed with the linear model in its folder; returns what task.json says of the
    mixture, with its metrics on these. The learner answers with the mixture from now on."""
    linear = linear_next_to(learner)
    assert linear is not None  # it was just saved
    network = learner.network_outputs(dev)
    learner.mixture = mixture = choose_mixture(linear, dev, network)
    metrics = linear.task.compute_metrics(linear.task.per_example(dev, mixture.outputs(dev, network)))
    name = next(iter(metrics))
    say(f"mixture: {mixture.share:.0%} of the linear model; {name} {metrics[name]:.4f} on the dev rows that chose it")
    return {**mixture.record(), "dev": metrics}


def require_mixable(recipe: Recipe, options: FinetuneOptions) -> None:
    """Raise a `UserError` before training if the mixture that is asked for cannot be made."""
    if not options.mix_ngrams:
        return
    if not options.baselines:
        raise TaskError("--mix-ngrams: needs the linear model that --no-baselines leaves out. Leave one of the two out.")
    for head in recipe_tasks.task_heads(stage_recipes(recipe)[-1]).values():
        if make_task(head.spec.type).linear() is None:
            raise TaskError(f"--mix-ngrams: there is no linear model on n-grams for {head.spec.type}. Leave it out.")
    if find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "baselines", "--mix-ngrams")


def require_mixture(out: Path, options: FinetuneOptions) -> None:
    """Raise a `TaskError` if a finished run lacks the mixture that is asked for."""
    if options.mix_ngrams and not all(ENTRY in description for description in _each_task(read_task_json(out))):
        raise TaskError(
            f"{out}: has finished without --mix-ngrams. To train again with a mixture, add --overwrite, or choose another --out."
        )


def _each_task(task_json: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return task_json.get("tasks", {"": task_json}).values()
