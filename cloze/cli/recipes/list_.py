"""`cloze list`: every recipe in one table."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one object per recipe.")] = False,
) -> None:
    """List the recipes that come with cloze, with their networks, order, exercise, objectives and paper."""
    from cloze.recipe.family import outlines

    recipes = outlines()
    if as_json:
        import json

        typer.echo(json.dumps([outline.data() for outline in recipes], ensure_ascii=False, indent=2))
        return
    rows = [("RECIPE", "NETWORKS", "ORDER", "EXERCISE", "OBJECTIVES", "PAPER")]
    for o in recipes:
        networks = " + ".join(network.rpartition(": ")[2] for network in o.networks)
        orders = o.order.split(", ")
        order = o.order if len(orders) < 3 else f"{len(orders)} kinds"
        rows.append((o.name, networks, order, " ".join(o.exercise), " ".join(o.objectives), o.authors))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo("\ncloze show NAME prints a recipe in full; cloze diff A B shows how two of them differ.")
