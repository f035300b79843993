"""The folders of a checkpoint's networks, which are its own or references to networks that a run has borrowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.checkpoint.inputs import digests
from cloze.errors import CheckpointError
from cloze.recipe.recipe import Recipe
from cloze.untrusted import parse_json, read_small

#: Where a run keeps its networks other than the exported one: a folder for each, or NAME.json for one that is borrowed.
NETWORKS = Path("cloze") / "networks"


def origins_of(recipe: Recipe, folders: Mapping[str, Path]) -> dict[str, Path]:
    """The folder that each network with an origin starts from; `folders` are those of stages and checkpoints, by name."""
    return {
        name: network_folder(folders[network.origin], name)
        for name, network in recipe.networks.items() if network.origin is not None
    }


def network_folder(folder: Path, name: str) -> Path:
    """The folder of a checkpoint's network of this name, else of its exported network. Follows a reference."""
    inner = folder / NETWORKS / name
    if inner.is_dir():
        return inner
    reference = inner.with_name(f"{name}.json")
    return _follow(reference) if reference.is_file() else folder


def reference_to(origin: Path, run: Path) -> dict[str, Any]:
    """What a run records of a borrowed network: its folder, relative if inside the run, and the SHA-256 of its weights."""
    origin, run = origin.resolve(), run.resolve()
    location = origin.relative_to(run).as_posix() if origin.is_relative_to(run) else str(origin)
    return {"folder": location, "files": digests(origin)}


def _follow(reference: Path) -> Path:
    """The folder that a reference names; it must still hold the same weights."""
    try:
        content = parse_json(read_small(reference))
        location, files = str(content["folder"]), dict(content["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{reference}: is damaged. Copy it again from where it was made.") from None
    run = next((folder for folder in reference.absolute().parents if (folder / "cloze" / "run.json").is_file()), Path())
    folder = run / location
    current_digests = digests(folder) if folder.is_dir() else None
    if current_digests != files:
        what = "there is no such folder" if current_digests is None else "its weights have changed"
        raise CheckpointError(
            f"{reference}: the network {reference.stem!r} was borrowed from {folder}: {what}.\n"
            "  Put that checkpoint back where it was."
        )
    return folder


def write_reference(path: Path, reference: Mapping[str, Any]) -> None:
    """Write the reference to a borrowed network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(reference, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
