"""K-Adapter: the files of adapters that its authors released, next to the network that they read (microsoft/K-Adapter)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.mapping import MappingLine, TableSizes, to_ours
from cloze.interop.pickled import read_unwrapped, tensor_names
from cloze.interop.read import Imported, import_folder
from cloze.interop.released.bert_system import stack
from cloze.interop.released.words import Split
from cloze.interop.vectors.vectors import Vectors

FILE = "pytorch_model.bin"
_SIGN = "adapter.0.down_project.weight"
#: How the folder of an adapter begins → its name in cloze's recipes, in the order in which they stand around the network.
_NAMES = MappingProxyType({"fac": "facts", "lin": "words"})
_MODULES, _HEAD_WIDTH = 3, 64  # `adapter_list` of their scripts; 768 numbers in 12 heads (`AdapterConfig`)
_TRAINING: Mapping[str, Any] = MappingProxyType({"at": None, "dropout": 0.1, "std": 2e-4})  # `AdapterConfig`


def find(source: Path) -> Mapping[str, Path]:
    """The files of adapters by name: each in a folder of its own, such as `fac-adapter/pytorch_model.bin`, or the file itself."""
    paths = [source] if source.is_file() else sorted([*source.glob(FILE), *source.glob(f"*/{FILE}")])
    return {path.parent.name: path for path in paths if path.name == FILE and _holds_adapter(path)}


def _holds_adapter(path: Path) -> bool:
    try:
        return any(name.removeprefix("module.") == _SIGN for name in tensor_names(path))
    except CheckpointError:  # the function that reads a network reports what is wrong with it
        return False


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The frozen network with the adapters around it. Heads read what an adapter makes of its states.

    Differs: two adapters are joined by the mean of what both make, because the authors draw a new map for every task
    (`task_dense`). Their maps to relations and to the heads of words are left out: no file names the classes.

    Errors: no network in the folder, an adapter of another shape, or of neither kind: `CheckpointError`.
    """
    first = next(iter(files.values()))
    folder = first.parent.parent
    if words is not None or split != "punctuation":
        raise CheckpointError(f"{first}: K-Adapter has the tokens of the network that it reads; leave --words and --split out.")
    if not (folder / "config.json").exists():
        raise CheckpointError(
            f"{first}: the weights are those of an adapter of K-Adapter; {folder} lacks the network that it reads.\n"
            "  Put the folders fac-adapter and lin-adapter into that of roberta-large, and import that folder."
        )
    trunk = import_folder(folder)
    if not trunk.model.network_type.one_stack or trunk.model.changes:
        raise CheckpointError(
            f"{folder}: is not a Transformer of one stack, as an adapter of K-Adapter needs.\n"
            "  Put the adapters into the folder of roberta-large."
        )
    paths = {_name(path): path for path in files.values()}
    if len(paths) < len(files):
        raise CheckpointError(f"{folder}: {', '.join(files)} are adapters of one kind; expected one of each. Move one away.")
    network, changes = dict(trunk.model.network), list[tuple[str, Mapping[str, Any]]]()
    remarks = [
        "Which layers an adapter reads is not in its file: the embeddings, the layer below the middle and that two below the top "
        "(0, 11 and 22 of 24), as in the authors' scripts."
    ]
    for name, path in sorted(paths.items()):
        arguments, tensors, rest = _adapter(path, width=trunk.model.arguments["width"], number=len(changes))
        changes.append(("knowledge_adapter", {"name": name, **arguments}))
        network |= tensors
        if rest:
            names = f"{', '.join(rest[:4])}{' …' if len(rest) > 4 else ''} of {path.parent.name}"
            remarks.append(f"used by no part of cloze: {names}.")
    if len(changes) > 1:
        remarks.append("No file says how tasks join the two adapters: heads read their mean, and tuning trains the map.")
    if trunk.model.heads:
        remarks.append(f"left out, since adapters change what heads read: {', '.join(trunk.model.heads)}.")
    model = replace(
        trunk.model, network=network, heads={}, spare={}, changes=tuple(changes),
        no_plain_form="a knowledge adapter has layers of its own, which cannot be merged into weights.",
    )
    return replace(trunk, architecture=None, model=model, labels=(), remarks=(*trunk.remarks, *remarks), trained_by="k-adapter")


def _name(path: Path) -> str:
    """The name of an adapter by that of its folder."""
    name = next((name for start, name in _NAMES.items() if path.parent.name.startswith(start)), None)
    if name is None:
        raise CheckpointError(
            f"{path}: the weights of an adapter of K-Adapter; expected its folder to be called fac-adapter or lin-adapter.\n"
            "  Rename the folder."
        )
    return name


def _adapter(path: Path, *, width: int, number: int) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """The arguments of an adapter next to a network of this width, its tensors as the `number`-th around the network, and the
    names of those that are left over."""
    tensors = read_unwrapped(path)
    modules = {name.split(".")[1] for name in tensors if name.startswith("adapter.")}
    layers = {name.split(".")[4] for name in tensors if name.startswith("adapter.0.encoder.layer.")}
    inner, read_width = tensors[_SIGN].shape if tensors[_SIGN].dim() == 2 else (0, 0)
    if modules != set(map(str, range(_MODULES))) or inner == 0 or inner % _HEAD_WIDTH or read_width != width:
        raise CheckpointError(
            f"{path}: {len(modules)} modules of {inner} numbers that read states of {read_width}; expected {_MODULES} modules of "
            f"a multiple of {_HEAD_WIDTH} numbers, and states of {width}.\n"
            "  The adapter belongs to another network: put it into the folder of the one that it was trained with, roberta-large."
        )
    ours = f"outside.{number}."
    lines = [
        MappingLine(f"{ours}join.*", "com_dense.*", "N 2N"),
        *(line for module in sorted(modules) for line in (
            MappingLine(f"{ours}blocks.{module}.down.*", f"adapter.{module}.down_project.*", "D N"),
            *stack(f"{ours}blocks.{module}.layers.{{i}}.", f"adapter.{module}.encoder.layer.{{i}}."),
            MappingLine(f"{ours}blocks.{module}.up.*", f"adapter.{module}.up_project.*", "N D"),
        )),
    ]  # fmt: skip
    sizes = TableSizes(letters={"N": width, "D": inner, "I": 4 * inner}, counts={"i": len(layers)})
    state = to_ours(lines, tensors, sizes, str(path))
    if number:
        state[f"{ours}both.weight"] = torch.cat([torch.eye(width), torch.eye(width)], 1) / 2
        state[f"{ours}both.bias"] = torch.zeros(width)
    arguments = {**_TRAINING, "width": inner, "heads": inner // _HEAD_WIDTH, "layers": len(layers)}
    return arguments, state, sorted(tensors)
