"""A change saved without its base: the trained tensors of a changed network, and the SHA-256 of the base network.

A run that trains adapters or low-rank updates changes a few per cent of the network's parameters. `write_change` writes these,
the heads, and in `cloze/base.json` the folder of the base network. `open_folder` joins the two.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from cloze.atomic import require_new, whole_folder
from cloze.checkpoint.inputs import digests
from cloze.checkpoint.open_folder import BASE, open_folder
from cloze.checkpoint.peft import write_peft
from cloze.errors import CheckpointError
from cloze.interop import Imported
from cloze.interop.export import OWN_CHANGED, OWN_HEADS
from cloze.interop.files import DESCRIPTION, read_json, write_json, write_tensors
from cloze.recipe.changes import read_by
from cloze.tasks.tuned_folder import copy_task


def write_change(source: Path, out: Path, *, base: Path | None = None, peft: bool = False) -> list[str]:
    """Write the changed tensors of a run, and its heads, to the new folder `out`; returns remarks.

    `base` is the folder of the network that the run started from; the default is the one that the run records. With `peft`, the
    folder also has the files of peft, which can open it on the base. Raises `CheckpointError` for a network without changes, a
    missing or different base, or a folder that is not empty; with `peft`, for changes that peft lacks.
    """
    require_new(out)
    imported = open_folder(source)
    if not imported.model.changes:
        raise CheckpointError(
            f"{source}: its network has no change, such as lora or adapters, that could be saved alone.\n"
            "  Export it whole: --to huggingface."
        )
    networks = sorted(read_by(imported.model))
    if networks:
        raise CheckpointError(
            f"{source}: its network reads the states of {', '.join(networks)}, which a change saved alone would lack.\n"
            "  Export the folder whole: --to huggingface."
        )
    base = _base_of(source) if base is None else base
    changed = _changed(imported, base)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out, new=True) as stage:
        (stage / "cloze").mkdir()
        if peft:
            remarks = write_peft(stage, imported, base, folder=out.name)
        else:
            remarks = [f"cloze opens it with the network in {base}; transformers does not."]
        write_json(stage / BASE, {"folder": str(base.resolve()), "files": digests(base)})
        write_tensors(stage / OWN_CHANGED, changed)
        heads = {f"{name}/{key}": t for name, head in imported.model.heads.items() for key, t in head.state.items()}
        if heads:
            write_tensors(stage / OWN_HEADS, heads)
        write_json(stage / DESCRIPTION, json.loads(_description_file(source).read_text(encoding="utf-8")))
        copy_task(source, stage)
    return remarks


def _description_file(source: Path) -> Path:
    """The description of a folder; a `CheckpointError` if it has none."""
    path = source / DESCRIPTION
    if not path.is_file():
        raise CheckpointError(f"{source}: there is no {DESCRIPTION}; expected a run or a fine-tuned folder of cloze.")
    return path


def _base_of(source: Path) -> Path:
    """The folder of weights that a run started from, from its run.json."""
    paths = [source / "cloze" / "run.json", *sorted(source.glob("cloze/seeds/*/cloze/run.json"))]
    inputs: dict[str, Any] = next((read_json(path, "the run").get("inputs", {}) for path in paths if path.is_file()), {})
    origins: list[Any] = [*inputs.get("networks", {}).values(), inputs.get("init")]
    folders = [Path(origin["given"]) for origin in origins if origin]
    if len(folders) != 1 or not folders[0].is_dir():
        reason = f"{folders[0]} is not there" if len(folders) == 1 else f"{len(folders)} are known"
        raise CheckpointError(f"{source}: the network that it began with: {reason}. Name its folder: --base FOLDER.")
    return folders[0]


def _changed(imported: Imported, base: Path) -> dict[str, torch.Tensor]:
    """The tensors of a changed network that differ from its base or are not in it."""
    base_model, model = open_folder(base), imported.model
    tensors, base_tensors = {**model.network, **model.changed}, base_model.model.network
    wrong = next((name for name, t in base_tensors.items() if name not in tensors or tensors[name].shape != t.shape), None)
    if wrong is not None or base_model.model.changes or base_model.tokenizer.hash != imported.tokenizer.hash:
        what = (
            f"its {wrong} differs in shape" if wrong is not None
            else "its network is changed, too" if base_model.model.changes else "it has another tokenizer"
        )
        raise CheckpointError(
            f"{base}: is not the network that {imported.folder} began with: {what}.\n"
            "  Name the right folder with --base, or export the network whole: --to huggingface."
        )
    return {name: t for name, t in tensors.items() if name not in base_tensors or not torch.equal(t, base_tensors[name])}
