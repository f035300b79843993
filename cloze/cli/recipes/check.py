"""`cloze check`: check a recipe and show what it does?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.options import WithFiles

if TYPE_CHECKING:
    from cloze.checkpoint.checks.checked import Checked


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or file, or a run folder.")],
    size: Annotated[str | None, typer.Option(help="Rescale the networks: tiny, mini, small, medium, base, large.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change a value of the recipe: path=value.")] = None,
    with_files: WithFiles = None,
    binds: Annotated[
        list[str] | None, typer.Option("--bind", help="NAME=FOLDER for a checkpoint that a network starts from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a recipe: its keys and types, the fields of every edit, the states of every pass.

    Prints which fields each edit takes and gives, and the number of parameters. If the recipe has errors, prints all of them and
    exits with code 2.
    """
    from cloze.checkpoint.bound import BoundCheckpoints
    from cloze.checkpoint.checks.check import check_recipe
    from cloze.recipe.load import load_recipe
    from cloze.recipe.origins import checkpoint_names
    from cloze.runs.binds import bound_tables, check_binds, parse_binds

    bound = parse_binds(binds or [])
    read = partial(
        load_recipe, recipe, size=size, with_files=with_files or [],
        checkpoints=BoundCheckpoints({name: Path(paths[0]) for name, paths in bound.items()}) or None,
    )
    tables = bound_tables(read(overrides=overrides or []), bound)
    loaded = read(overrides=[*(overrides or []), *tables.values()])
    check_binds(loaded, bound.keys() - tables, checkpoint_names(loaded))
    checked = check_recipe(loaded)
    if as_json:
        import json

        typer.echo(json.dumps(_data(checked), ensure_ascii=False, indent=2))
        return
    _print(checked)


def _data(checked: Checked) -> dict[str, Any]:
    edits = {
        name: [{"path": line.path, "takes": sorted(line.takes), "gives": sorted(line.gives)} for line in lines]
        for name, lines in checked.edits.items()
    }
    return {
        "name": checked.recipe.name,
        "hash": checked.recipe.hash,
        "edits": edits,
        "fields": {name: sorted(fields) for name, fields in checked.batch.items()},
        "networks": checked.networks,
        "heads": checked.heads,
        "parameters": checked.parameters,
    }


def _print(checked: Checked) -> None:
    from cloze.recipe.recipe import PartSpec

    recipe = checked.recipe
    typer.echo(f"{recipe.name} is valid.  {recipe.hash[:16]}")
    for name, entry in recipe.entries.items():
        typer.echo(f"\nentry {name}: source {entry.source}, order {entry.order}")
        for line in checked.edits[name]:
            typer.echo(f"  {line.path:<24} takes {', '.join(sorted(line.takes))}")
            typer.echo(f"  {'':<24} gives {', '.join(sorted(line.gives))}")
        typer.echo(f"  {'the batch may carry':<24} {', '.join(sorted(checked.batch[name]))}")
        for run in entry.passes:
            weights = [(o.name, o.weight.name if isinstance(o.weight, PartSpec) else o.weight) for o in run.objectives]
            objectives = ", ".join(f"{name} x {weight}" if weight != 1 else name for name, weight in weights) or "none"
            typer.echo(f"  pass {run.name:<19} network {run.network}, view {run.view}, objectives: {objectives}")
    typer.echo("")
    for name, count in checked.networks.items():
        exported = " (exported)" if name == recipe.export and len(checked.networks) > 1 else ""
        spec = recipe.networks[name]
        summary = f"{count:>13,} parameters" if count else f"from a checkpoint: --bind {spec.origin}=FOLDER"
        summary = summary if spec.average is None else f"average of {spec.average.of}"
        typer.echo(f"network {name:<20} {summary}{exported}")
    for name, count in checked.heads.items():
        typer.echo(f"head    {name:<20} {count:>13,} parameters of its own")
    if len(checked.networks) > 1:
        typer.echo(f"in all {'':<20} {checked.parameters:>13,} parameters; what networks share counts once")
    for index, phase in enumerate(recipe.schedule):
        sizes = {key: vars(phase)[key] for key in ("share", "steps", "epochs")}
        size = next(f"{key} {value:g}" for key, value in sizes.items() if value is not None)
        typer.echo(f"phase   {index:<20} {size}: {', '.join(f'{path} = {value}' for path, value in phase.set.items())}")
