"""`cloze compare` without candidates: which model is best for this text and these few labels?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import typer

#: Options that have no meaning with candidates, and those that have none without.
_WITHOUT = ("models", "unlabelled", "keep")
_WITH = (
    "seeds", "transfer", "vary", "values", "rates", "tokenizer", "reach", "shared", "no_baselines", "with_files", "csv",
)  # fmt: skip


def require_candidates(context: typer.Context) -> None:
    """Refuse options of a comparison without candidates."""
    _refuse(context, _WITHOUT, "is for a comparison without candidates; these are named. Leave one of the two out.")


def answer_question(context: typer.Context, *, as_json: bool) -> None:
    """Run `cloze compare` without candidates on the options of the command."""
    from cloze.cli.hints import typed
    from cloze.comparison.best.best import answer, plan, require
    from cloze.comparison.best.question import BUDGET, SIZE, Question, asked
    from cloze.comparison.best.verdict import as_data, as_text
    from cloze.comparison.compare import Interrupted
    from cloze.errors import TaskError, UserError
    from cloze.jobs import workers_on

    given: dict[str, Any] = context.params
    _refuse(context, _WITH, "compares candidates, and none is named. Name recipes or models, or leave it out.")
    tasks, budgets = given["tasks"] or [], given["budgets"] or [BUDGET]
    if len(tasks) != 1:
        number = "is missing" if not tasks else "is given more than once"
        raise TaskError(f"--task {number}: without candidates, give one task with its labelled rows: --task NAME=TRAIN.")
    if len(budgets) != 1:
        raise UserError("--budget is given more than once: without candidates, there is one budget for each pre-training.")
    name, kind, labelled, test = asked(tasks[0])
    question = Question(
        name, kind, labelled, test, given["corpus"] or [], given["unlabelled"] or [], given["models"] or [], budgets[0],
        given["size"] or SIZE, tuning=given["tuning"] or [], text_format=given["text_format"], device=given["device"],
        encoding=given["encoding"], fit=given["fit"],
    )  # fmt: skip
    out: Path | None = given["out"]
    if out is None:
        raise UserError("--out is missing: name the folder of the comparison, such as --out COMPARE.")
    workers = workers_on(given["on"], given["jobs"])
    if given["plan"]:
        require(question, out, workers, given["keep"])
        typer.echo("\n".join(plan(question, out)))
        return
    try:
        verdict, page = answer(
            question, out, workers, keep=given["keep"], command=typed(), say=lambda line: typer.echo(line, err=True)
        )
    except Interrupted as stopped:
        typer.echo(f"Stopped. Finished cells are kept in {out}. To resume, repeat the command.", err=True)
        raise typer.Exit(stopped.code) from None
    typer.echo(json.dumps(as_data(verdict), ensure_ascii=False, indent=2) if as_json else as_text(verdict))
    typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)
    raise typer.Exit(1 if verdict.failures else 0)


def _refuse(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    from cloze.errors import UserError

    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in names and source is not None and not source.name.startswith("DEFAULT"):
            raise UserError(f"{parameter.opts[0]} {why}")
