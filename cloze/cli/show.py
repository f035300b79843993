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
) -> None:
    """Print a recipe in its canonical form. What is printed is itself a recipe: cloze show bert > mine.yaml"""
    from cloze.assembly.canonical import to_yaml
    from cloze.assembly.load import load_recipe

    loaded = load_recipe(recipe, size=size, overrides=overrides or [], with_files=with_files or [])
    if as_json:
        import json

        typer.echo(json.dumps({"recipe": loaded.canonical(), "hash": loaded.hash}, ensure_ascii=False, indent=2))
        return
    typer.echo(to_yaml(loaded.canonical()), nl=False)
    typer.echo(f"# {loaded.hash}")
