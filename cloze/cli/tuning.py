"""The part of `cloze finetune` that trains a recipe, and tells what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def run_recipe(
    checkpoint: Path, *, task: str, train: str, dev: str, test: str | None, out: Path, recipe: str | None,
    overrides: Sequence[str], show: bool, extend: bool, seeds: Sequence[int], device: str, quiet: bool, as_json: bool,
) -> None:
    """Train the recipe of a task onto a checkpoint, or print it."""
    from cloze.assembly.build import load_checkpoint
    from cloze.assembly.canonical import to_yaml
    from cloze.assembly.finetune import finetune, measured_on, recipe_onto
    from cloze.cli.quiet import silence

    if show:
        print(to_yaml(recipe_onto(recipe or task, load_checkpoint(checkpoint), overrides=overrides).canonical()), end="")
        return
    with silence(on=quiet or as_json, results=True):
        tuned = finetune(
            checkpoint, task=task, train=[train], dev=[dev], out=out, seeds=seeds, recipe=recipe, overrides=overrides,
            device=device, extend=extend,
        )
        if not all(outcome.finished for outcome in tuned.outcomes.values()):
            import typer

            raise typer.Exit(next(o.exit_code for o in tuned.outcomes.values() if not o.finished))
        if test is not None:
            tuned = measured_on(tuned, [test], "test")
    told(tuned.described, out, as_json=as_json)


def told(described: Mapping[str, Any], out: Path, *, as_json: bool) -> None:
    """Print what came of it: the dev metrics, over all seeds, and those on a test set."""
    import json

    if as_json:
        print(json.dumps({"out": str(out), **described}, indent=2))
        return
    trials = described["trials"]
    print(f"{'':<11}  dev")
    for name, one in described["spread"].items():
        more = f" ± {one['deviation']:.4f} over {len(trials)} seeds" if len(trials) > 1 else ""
        print(f"{name:<11}  {one['mean']:.4f}{more}")
    for name, value in described.get("test", {}).items():
        print(f"test {name}: {value:.4f}")
    best = next(trial for trial in trials if trial["seed"] == described["seed"])
    print(f"{out}: seed {best['seed']}, epoch {best['epoch']} of {best['epochs']}")
