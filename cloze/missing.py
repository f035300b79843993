"""What to say of a checkpoint that is not there: a recipe, a name without its owner, or a wrong path. Imports nothing heavy."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from cloze.errors import CheckpointError, did_you_mean, nearest, nearest_path

RECIPES = Path(__file__).parent / "recipes"
SCRATCH_TASKS = frozenset(file.stem for file in (RECIPES / "own_tasks").glob("*.yaml"))  # they begin without a checkpoint
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FOLDER = "a folder with config.json, model.safetensors and a tokenizer in it"


def require_checkpoint(path: Path, *, expected: str = _FOLDER) -> None:
    """Raise a `CheckpointError` if nothing is at a path. It names the next step: pre-training, if the path is the name of a
    recipe, or the form of names on the Hugging Face Hub."""
    if not path.exists():
        raise CheckpointError(f"{path}: {_explained(path, expected)}")


def _explained(path: Path, expected: str) -> str:
    name = str(path)
    recipes = [file.stem for file in RECIPES.glob("*.yaml")]
    if name in recipes:
        return f"is a recipe, not a checkpoint. Pre-train it first: {_pretrain(name)}"
    missing = f"there is no such file or folder; expected {expected}."
    close = get_close_matches(name, recipes, n=1, cutoff=0.75)
    if close:
        return f"{missing} Did you mean the recipe {close[0]!r}? Pre-train it first: {_pretrain(close[0])}"
    if not _HUB_NAME.fullmatch(name) or (path.parent != Path() and path.parent.exists()):
        return f"{missing} {nearest_path(path)}".rstrip()
    siblings = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
    owner = "" if "/" in name else f"\n  A model of the Hugging Face Hub is named with its owner: ORG/{name}"
    return f"{missing} {did_you_mean(nearest(path.name, siblings))}".rstrip() + owner


def _pretrain(recipe: str) -> str:
    return f"cloze pretrain {recipe} --corpus TEXT --budget 10m --out {recipe}-run"
