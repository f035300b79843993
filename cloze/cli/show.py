"""`cloze show`: one recipe in full, every default filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or file, or a run folder.")],
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base, large.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Override a value: path=value.")] = None,
    with_files: Annotated[list[Path] | None, typer.Option("--with", help="A Python file that registers parts.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML, with the hash.")] = False,
    budget: Annotated[
        str | None, typer.Option(help="Show it as `cloze pretrain` would fit it to this budget, and what was changed and why.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="With --budget: the store or text that the fit is measured on.")
    ] = None,
) -> None:
    """Print a recipe in its canonical form. What is printed is itself a recipe: cloze show bert > mine.yaml"""
    from cloze.assembly.canonical import to_yaml
    from cloze.assembly.load import load_recipe
    from cloze.errors import UserError

    told = ""
    if budget is not None:
        from cloze.assembly.planning import fitted_recipe
        from cloze.training.budget import Budget

        made, by = fitted_recipe(
            recipe, budget, corpus=corpus, size=size, overrides=overrides or [], with_files=with_files or []
        )
        loaded, table = made.recipe, made.table(Budget.parse(budget).typed) if made.changes else ""
        told = "".join(f"# {line}\n" for line in [*table.splitlines(), f"{by}."])
    elif corpus is not None:
        raise UserError("--corpus: a recipe is the same on every text. Give it with --budget, to which the recipe is fitted.")
    else:
        loaded = load_recipe(recipe, size=size, overrides=overrides or [], with_files=with_files or [])
    if as_json:
        import json

        typer.echo(json.dumps({"recipe": loaded.canonical(), "hash": loaded.hash}, ensure_ascii=False, indent=2))
        return
    typer.echo(told + to_yaml(loaded.canonical()), nl=False)
    typer.echo(f"# {loaded.hash}")
