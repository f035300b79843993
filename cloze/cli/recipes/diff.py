"""`cloze diff`: how two recipes differ."""

from __future__ import annotations

from typing import Annotated

import typer

from cloze.cli.options import WithFiles


def command(
    left: Annotated[str, typer.Argument(metavar="A", help="A recipe's name or file.")],
    right: Annotated[str, typer.Argument(metavar="B", help="The recipe to compare it with.")],
    with_files: WithFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of path, left, right.")] = False,
) -> None:
    """Print every value in which two recipes differ, by value path."""
    from cloze.recipe.diff import ABSENT, diff
    from cloze.recipe.load import load_recipe

    first, second = (load_recipe(name, with_files=with_files or []) for name in (left, right))
    changes = diff(first, second)
    if as_json:
        import json

        rows = [
            {key: value for key, value in change._asdict().items() if value is not ABSENT} for change in changes
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    if not changes:
        typer.echo(f"{left} and {right} are equivalent.")
        return
    heads = (first.name, second.name) if first.name != second.name else (left, right)
    table = [("", *heads), *(change.shown() for change in changes)]
    path_width = max(len(row[0]) for row in table)
    left_width = min(44, max(len(row[1]) for row in table))
    for path, before, after in table:
        is_wide = len(before) > left_width
        typer.echo(f"{path:<{path_width}}  {before:<{left_width}}" + ("" if is_wide else f"  {after}"))
        if is_wide:
            typer.echo(f"{'':<{path_width}}  {'':<{left_width}}  {after}")
