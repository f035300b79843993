"""`cloze finetune --plan`: what a run of fine-tuning reads, how long its rows are, and what it costs. Nothing is trained."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.budget.fit_length import MOST, reading_of
from cloze.budget.micro_batch import why_no_forecast, within_memory
from cloze.budget.row_counts import COUNTED, RowCounts
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stages_with_prefix
from cloze.runs.finetuning.finetune import PreparedFinetuning, prepare_finetuning
from cloze.runs.options import FinetuneOptions, quiet
from cloze.runs.preparing import plan_of, prepare
from cloze.runs.request import choose_budget, run_origins
from cloze.training.forecasting.forecast import forecast

_OTHERS = (64, 128, 256, MOST)  # lengths whose cost is shown, too


def plan_lines(options: FinetuneOptions) -> list[str]:
    """What `run_finetuning` would do, as lines; `report` gets the notes and the table of fitted values. Text is encoded into a
    temporary folder. Raises the same `ClozeError`s as `run_finetuning`."""
    with tempfile.TemporaryDirectory(prefix="cloze-plan-") as folder:
        prepared = prepare_finetuning(replace(options, out=options.out or Path(folder) / "out"))
        lines = [f"plan of {prepared.recipe.name} on {options.checkpoint}: nothing is trained or written."]
        lines += ["as published: the recipe is trained as written; nothing is fitted."] if options.fit is False else []
        lines += _rows(prepared) + _lengths(prepared.recipe, prepared.row_counts)
        return lines + list(_cost(prepared, Path(folder) / "run", len(options.seeds)))


def _rows(prepared: PreparedFinetuning) -> list[str]:
    """The rows and the classes of the training files of each source."""
    lines = []
    for name, counts in prepared.row_counts.items():
        many = f"{counts.rows:,}" if counts.rows < COUNTED else f"at least {COUNTED:,}"
        classes = f", {counts.classes:,} classes" if counts.classes else ""
        lead = f"{name}: " if len(prepared.row_counts) > 1 else ""
        lines.append(f"rows: {lead}{many} to train on ({', '.join(prepared.files[name].train)}){classes}")
    return lines


def _lengths(recipe: Recipe, row_counts: Mapping[str, RowCounts]) -> list[str]:
    """The share of the rows that the chosen length holds whole, and the tokens that it and other lengths read."""
    lines = []
    for _, stage in stages_with_prefix(recipe):
        for name, source in stage.sources.items():
            lengths, chosen = row_counts[name].lengths, source.arguments.get("length")
            if lengths is None or chosen is None or not lengths.rows:
                continue
            entry = next(entry for entry in stage.entries.values() if entry.source == name)
            rows = {length: reading_of(entry, lengths, length) for length in sorted({*_OTHERS, chosen})}
            for length, (share, tokens) in rows.items():
                times = f"{tokens / max(rows[chosen][1], 1.0):.2f} times the tokens"
                mark = "chosen" if length == chosen else times
                lines.append(f"  {length:>5} tokens  {share:>4.0%} of the rows whole  {mark}")
            lines.insert(len(lines) - len(rows), f"length of a row{'' if len(row_counts) == 1 else f' of {name}'}:")
    return lines


def _cost(prepared: PreparedFinetuning, folder: Path, seeds: int) -> Iterator[str]:
    """The forecast, measured on micro-batches of the rows, and the loss of answers that need no network."""
    recipe, request = prepared.recipe, prepared.request.replaced(report=quiet)
    if recipe.stages:
        yield f"no forecast of time and memory, because the run has {len(recipe.stages)} stages, each with its own."
        return
    budget = choose_budget(recipe, None, folder)
    run, stores, _ = prepare(recipe, request, folder, budget, run_origins(recipe, request, {}), dry_run=True)
    try:
        why = why_no_forecast(run, 1)
        cost: Any = None if why else within_memory(forecast(run), run, recipe)
        yield f"no forecast of {why}" if cost is None else str(cost)
        if seeds > 1:
            yield f"  for each of {seeds} seeds"
        yield from plan_of(recipe, request, run, stores, None, cost).outlook()
    finally:
        run.data.close()
