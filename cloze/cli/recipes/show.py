"""`cloze show`: one recipe in full, or what a run, a checkpoint, a store, a tokenizer or a file of vectors is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import WithFiles
from cloze.runs.options import Fit


def command(
    what: Annotated[
        str, typer.Argument(metavar="RECIPE|PATH", help="A recipe's name or file; or a run, checkpoint, store or vectors.")
    ],
    recipe: Annotated[bool, typer.Option("--recipe", help="For a run or a checkpoint: print its recipe.")] = False,
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base, large.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change a value of the recipe: path=value.")] = None,
    with_files: WithFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; for a recipe, with its hash.")] = False,
    budget: Annotated[
        str | None, typer.Option(help="Show it as `cloze pretrain` would fit it to this budget; list each change and its reason.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="With --budget: the store or text that the recipe is fitted to.")
    ] = None,
    fit: Fit = None,
) -> None:
    """Show a recipe with every default, or describe a folder: what it is, how far its run got, what to do next.

    A printed recipe is itself a recipe: cloze show bert > mine.yaml. A run, a checkpoint, a token store, a tokenizer or word
    vectors: cloze show RUN
    """
    from cloze.errors import UserError

    if corpus is not None and budget is None:
        raise UserError("--corpus: only the fit to a budget depends on the text. Add --budget.")
    if fit is not None and budget is None:
        option = "--fit" if fit else "--as-published"
        raise UserError(f"{option}: without a budget, nothing is fitted. Add one, such as --budget 10m.")
    if recipe or budget is not None or size is not None or overrides or not _is_made(what):
        _show_recipe(what, size, overrides or [], with_files or [], budget, corpus, fit, as_json=as_json)
        return
    from cloze.checkpoint.uses import usable
    from cloze.reports.about import about

    description = about(Path(what), usable)
    if as_json:
        import json

        typer.echo(json.dumps(description.data(), ensure_ascii=False, indent=2))
        return
    typer.echo(str(description))


def _is_made(what: str) -> bool:
    """Whether this is a path and neither a recipe's name nor a file with one."""
    from cloze.recipe.load import folders_of_recipes

    path = Path(what)
    if what in folders_of_recipes():
        return False
    return path.is_dir() or (path.is_file() and path.suffix not in (".yaml", ".yml"))


def _show_recipe(
    what: str, size: str | None, overrides: list[str], with_files: list[Path], budget: str | None, corpus: Path | None,
    fit: bool | None, *, as_json: bool,
) -> None:
    """Print a recipe in its canonical form, as JSON with its hash; with a `budget` as it is fitted to that."""
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.json_schema import HEADER
    from cloze.recipe.load import load_recipe

    table_lines = ""
    if budget is not None:
        from cloze.runs.planning import fitted_recipe
        from cloze.training.schedule.budget import Budget

        fitted, by = fitted_recipe(what, budget, corpus=corpus, size=size, overrides=overrides, with_files=with_files, fit=fit)
        loaded, table = fitted.recipe, fitted.table(Budget.parse(budget).typed) if fitted.changed_values else ""
        table_lines = "".join(f"# {line}\n" for line in [*table.splitlines(), f"{by}."])
    else:
        loaded = load_recipe(what, size=size, overrides=overrides, with_files=with_files)
    if as_json:
        import json

        typer.echo(json.dumps({"recipe": loaded.canonical(), "hash": loaded.hash}, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{HEADER}\n{table_lines}" + to_yaml(loaded.canonical()), nl=False)
    typer.echo(f"# {loaded.hash}")
