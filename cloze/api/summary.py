"""A model in a line, and as tables for notebooks: what it is, what it can do, and what its losses and scores are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cloze import html_parts
from cloze.checkpoint.build import Loaded
from cloze.html_parts import metric_text
from cloze.reports.run import read_losses
from cloze.tasks.evaluation_text import MIXTURE, NGRAMS, simple_answers
from cloze.training.run import Outcome


class DescribedModel(Protocol):
    """What a summary reads of a `cloze.Model`."""

    @property
    def folder(self) -> Path: ...
    @property
    def checkpoint(self) -> Loaded: ...
    @property
    def described(self) -> Mapping[str, Any]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def labels(self) -> Sequence[str]: ...
    @property
    def task(self) -> str | None: ...
    @property
    def tasks(self) -> Sequence[str]: ...
    @property
    def can(self) -> Sequence[str]: ...
    @property
    def outcome(self) -> Outcome | None: ...


def model_line(model: DescribedModel) -> str:
    """One line: the kind of model, its size, its methods."""
    tuned = f"; {_task(model)}" if _task(model) else ""
    metrics_by_head = {
        head: (model.described.get(entry) or {}).get("dev", {}) for head, entry in ((NGRAMS, "ngrams"), (MIXTURE, MIXTURE))
    }
    figures = ""
    for name, value in list(model.metrics.items())[:1]:
        comparisons = [f"{head} {metric_text(metrics[name])}" for head, metrics in metrics_by_head.items() if name in metrics]
        figures = f", {name} {metric_text(value)} on dev" + (f" ({', '.join(comparisons)})" if comparisons else "")
    stopped = f"; {_stopped(model)}" if _stopped(model) else ""
    return (
        f"<cloze.Model {model.folder.name!r}: {_network(model)}, {model.checkpoint.parameters:,} parameters, "
        f"{_tokenizer(model)}{tuned}{figures}{stopped}; can {', '.join(model.can) or 'nothing'}>"
    )


def model_html(model: DescribedModel) -> str:
    """Tables: the model, the held-out losses of its training next to baselines, its metrics next to simple answers."""
    about = {
        "network": _network(model), "parameters": f"{model.checkpoint.parameters:,}", "tokenizer": _tokenizer(model),
        "task": _task(model), "training": _stopped(model), "can": ", ".join(model.can) or "nothing",
    }  # fmt: skip
    return "".join([
        html_parts.facts({name: value for name, value in about.items() if value}, caption=f"cloze.Model {model.folder.name!r}"),
        html_parts.table(_losses(model), caption="held-out losses, in nats"),
        *(html_parts.table(_metrics(model, part), caption=f"metrics on {part}") for part in ("dev", "test")),
        html_parts.paragraphs(f"note: {remark}" for remark in model.described.get("remarks") or ()),
    ])  # fmt: skip


def _losses(model: DescribedModel) -> list[dict[str, Any]]:
    """A row for each objective of a pre-trained model."""
    rows = []
    for name, (loss, baseline) in read_losses(model.folder).items() if not model.metrics else ():
        row: dict[str, Any] = {"objective": name, "loss": loss, "single tokens": "", "pairs": "", "constant prediction": ""}
        if baseline is not None and baseline.pairs is not None:
            row |= {"single tokens": baseline.single, "pairs": baseline.pairs}
        elif baseline is not None:
            row |= {"constant prediction": baseline.single}
        rows.append(row)
    return _without_empty(rows)


def _metrics(model: DescribedModel, part: str) -> list[dict[str, Any]]:
    """A row for each metric of a fine-tuned model on `dev` or `test`, next to those of simple answers."""
    ngrams = (model.described.get("ngrams") or {}).get(part)
    simple = simple_answers(
        model.described.get("baseline") if part == "dev" else None, ngrams if isinstance(ngrams, Mapping) else None,
        mixture=(model.described.get("mixture") or {}).get(part),
    )
    metrics = model.described.get(part)
    if not isinstance(metrics, Mapping):
        return []
    return _without_empty([
        {"metric": name, "model": value, **{answer: figures.get(name, "") for answer, figures in simple.items()}}
        for name, value in metrics.items() if isinstance(value, float)
    ])  # fmt: skip


def _without_empty(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that are empty in all of them."""
    filled = {name for row in rows for name, value in row.items() if value != ""}
    return [{name: value for name, value in row.items() if name in filled} for row in rows]


def _network(model: DescribedModel) -> str:
    arguments = model.checkpoint.network_arguments
    sizes = [f"{name} {arguments[name]}" for name in ("layers", "width") if name in arguments]
    return ", ".join([model.checkpoint.imported.model.part, *sizes])


def _tokenizer(model: DescribedModel) -> str:
    return f"{model.checkpoint.tokenizer.kind} of {model.checkpoint.tokenizer.size:,}"


def _task(model: DescribedModel) -> str:
    among = f" among {_listed(model.labels)}" if model.labels else ""
    return f"{', '.join(model.tasks) or model.task}{among}" if model.task or model.tasks else ""


def _stopped(model: DescribedModel) -> str:
    return "" if model.outcome is None or model.outcome.finished else f"stopped at step {model.outcome.step:,}"


def _listed(labels: Sequence[str]) -> str:
    listing = ", ".join(labels[:4])
    return listing if len(labels) <= 4 else f"{listing} and {len(labels) - 4} more"
