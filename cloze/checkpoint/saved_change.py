"""A change saved without its base: the trained tensors of a changed network, and the SHA-256 of the base network.

A run that trains adapters or low-rank updates changes a few per cent of the network's parameters. `write_change` writes these,
the heads, and in `cloze/base.json` the folder of the base network. `open_folder` joins the two. It also reads LoRA folders of
peft (`peft.py`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cloze.atomic import require_new, whole_folder
from cloze.checkpoint.inputs import digests
from cloze.checkpoint.peft import read_peft, write_peft
from cloze.checkpoint.plain_form import in_plain_form
from cloze.errors import CheckpointError
from cloze.interop import Imported, PortableHead, PortableModel, import_folder
from cloze.interop.config import is_adapter
from cloze.interop.export import OWN_CHANGED, OWN_HEADS
from cloze.interop.files import DESCRIPTION, read_json, read_tensors, write_json, write_tensors
from cloze.interop.own import own_description
from cloze.reading import Reading
from cloze.recipe.changes import read_by
from cloze.tasks.result import copy_task

BASE = Path("cloze") / "base.json"


def open_folder(folder: Path) -> Imported:
    """Read a folder: any that `import_folder` reads, or a change that cloze or peft saved alone."""
    if (folder / BASE).is_file():
        return _read_change(folder)
    if is_adapter(folder):
        return read_peft(folder)
    return import_folder(folder)


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


def _read_change(folder: Path) -> Imported:
    """The base of a change, with the change."""
    description = own_description(folder)
    if description is None:
        raise CheckpointError(f"{folder / DESCRIPTION}: there is no such file. The copy is incomplete: copy the folder again.")
    base = _verified(folder)
    base_model = import_folder(base)
    states = read_tensors(folder / OWN_HEADS) if (folder / OWN_HEADS).is_file() else {}
    heads = {
        name: PortableHead(
            head["part"], head["arguments"],
            {key.partition("/")[2]: t for key, t in states.items() if key.partition("/")[0] == name}, head.get("read") or {},
        )
        for name, head in description["heads"].items()
    }
    state = {**base_model.model.network, **read_tensors(folder / OWN_CHANGED)}
    model: PortableModel = replace(
        base_model.model, arguments=description["arguments"], network=state, heads=heads,
        changes=tuple((part, arguments) for change in description.get("changes", ()) for part, arguments in change.items()),
    )
    return replace(
        base_model, folder=folder, model=in_plain_form(model, base_model.tokenizer, {}),
        reading=Reading.of(description["reading"]),
        labels=tuple(description.get("labels") or ()), step=int(description.get("step") or 0),
    )


def _verified(folder: Path) -> Path:
    """The folder that a change belongs to, if it still holds the same weights."""
    content = read_json(folder / BASE, "the network that the change belongs to")
    base, files = Path(str(content.get("folder", ""))), content.get("files")
    base = base if base.is_absolute() else folder / base
    if not base.is_dir() or digests(base) != files:
        what = "there is no such folder" if not base.is_dir() else "its weights are others"
        raise CheckpointError(
            f"{folder / BASE}: the change belongs to the network in {base}: {what}.\n"
            "  Write the folder that holds that network there, after \"folder\"; its weights are checked."
        )
    return base
