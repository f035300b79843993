"""Read any folder of a model: one of cloze or of transformers, a change that was saved without its base, or a folder of peft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloze.checkpoint.inputs import digests
from cloze.checkpoint.peft import read_peft
from cloze.checkpoint.plain_form import in_plain_form
from cloze.errors import CheckpointError
from cloze.interop import Imported, PortableHead, PortableModel, import_folder
from cloze.interop.config import is_adapter
from cloze.interop.export import OWN_CHANGED, OWN_HEADS
from cloze.interop.files import DESCRIPTION, read_json, read_tensors
from cloze.interop.own import own_description
from cloze.reading import Reading

#: Of a change that was saved alone: the folder of its base, and the digests of the weights there (`saved_change.py` writes it).
BASE = Path("cloze") / "base.json"


def open_folder(folder: Path) -> Imported:
    """Read a folder: any that `import_folder` reads, or a change that cloze or peft saved alone."""
    if (folder / BASE).is_file():
        return _read_change(folder)
    if is_adapter(folder):
        return read_peft(folder)
    return import_folder(folder)


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
