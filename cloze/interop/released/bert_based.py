"""Systems of pictures, films and entities that are built on BERT: the weights of their authors, next to their configs.

A folder has one file of weights, the JSON configs of the authors' code, and the tokenizer of the BERT that they started from.
The names of the tensors identify the system. Its table is an `Architecture` that is not registered, since transformers has no
class for it; the roles of its heads are the names that they have in the recipe.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cloze.errors import CheckpointError
from cloze.interop.architecture import ACTIVATIONS_BACK
from cloze.interop.arguments import nested
from cloze.interop.files import read_json
from cloze.interop.heads import read_heads
from cloze.interop.model import PortableModel
from cloze.interop.pickled import read_unwrapped, tensor_names
from cloze.interop.read import (
    VOCAB_SIZE,
    Imported,
    config_arguments,
    drop_ignored,
    fitting_tokenizer,
    modernised,
    network_state,
)
from cloze.interop.released.bert_system import BertBased, Files
from cloze.interop.released.ernie_thu import ERNIE_THU
from cloze.interop.released.knowbert import KNOWBERT
from cloze.interop.released.of_pictures import UNITER, VILBERT, VISUAL_BERT, VL_BERT
from cloze.interop.released.univl import UNIVL
from cloze.interop.released.words import Split
from cloze.interop.vectors.vectors import Vectors
from cloze.text.tokenizer import Tokenizer

SYSTEMS = (UNITER, VILBERT, VL_BERT, VISUAL_BERT, ERNIE_THU, UNIVL, KNOWBERT)
_ENDINGS = (".pt", ".bin", ".model", ".th")


def find(source: Path) -> Mapping[str, Path]:
    """`weights`: the one file in the folder, or the file itself, that holds tensors of one of the systems."""
    if _is_archive(source):
        return {"archive": source}
    files = [source] if source.is_file() else sorted(path for path in source.iterdir() if path.suffix in _ENDINGS)
    if len(files) != 1 or files[0].suffix not in _ENDINGS:
        return {}
    try:
        names = tensor_names(files[0])
    except CheckpointError:  # the function that reads the weights reports what is wrong
        return {}
    return {"weights": files[0]} if any(system.is_in(names) for system in SYSTEMS) else {}


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The network with those heads that the authors' file and the recipe both have; other tensors are named in a remark.

    Errors: no config or tokenizer in the folder, missing or misshapen tensors, a variant that cloze lacks: `CheckpointError`.
    """
    if "archive" in files:
        raise CheckpointError(
            f"{files['archive']}: a packed archive; expected a folder with its files.\n"
            f"  Unpack it, and import FOLDER: mkdir FOLDER && tar -xzf {files['archive']} -C FOLDER"
        )
    path = files["weights"]
    folder, weights = path.parent, read_unwrapped(path)
    system = next(system for system in SYSTEMS if system.is_in(weights))
    architecture = system.architecture
    if words is not None or split != "punctuation":
        raise CheckpointError(f"{path}: {architecture.title} has BERT's word pieces; leave --words and --split out.")
    for ending, what in system.unsupported.items():
        if name := next((name for name in weights if name.endswith(ending)), None):
            raise CheckpointError(f"{path}: {name} {what}; cloze's network has none, so this model cannot be imported.")
    _drop_repeats(weights, system.repeats, path)
    config = _config(folder, system) | {key: _layers(weights, lead) for key, lead in system.counted.items()}
    config |= {
        key: tensor.shape[axis] for key, (ending, axis) in system.measured.items() for name, tensor in weights.items()
        if name.endswith(ending) and tensor.dim() > axis
    }  # fmt: skip
    architecture = system.variant(architecture, config)
    arguments, (tensors, base) = config_arguments(folder, config, architecture), modernised(weights, architecture)
    sizes = architecture.table_sizes(arguments, config.get("vocab_size", VOCAB_SIZE), base=base, pad=0)
    network = network_state(architecture, arguments, tensors, sizes, str(path))
    tables, remarks = read_heads(architecture, config, tensors, network, arguments, sizes, str(path))
    drop_ignored(architecture, tensors, base)
    tokenizer = Tokenizer.load(folder)
    model = PortableModel(
        nested(arguments, architecture.part), "open", network,
        {role: replace(head, read=table.read) for role, (table, head) in tables.items()}, part=architecture.part,
        **system.knowledge(Files(folder, config, tensors, tokenizer)),
    )
    tokenizer, about_tokens = fitting_tokenizer(folder, tokenizer, model)
    if tensors:
        remarks = [*remarks, f"used by no part of cloze: {', '.join(sorted(tensors)[:4])}{' …' if len(tensors) > 4 else ''}."]
    return Imported(
        folder=folder, architecture=None, model=model, tokenizer=tokenizer, reading=architecture.reading,
        remarks=(*remarks, *about_tokens), trained_by=architecture.recipe(model),
    )


def _is_archive(source: Path) -> bool:
    """Whether a path is a packed folder that begins with a config."""
    if not source.is_file() or not source.name.endswith((".tar.gz", ".tgz")):
        return False
    try:
        with tarfile.open(source, "r:gz") as archive:
            member = archive.next()
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return False
    return member is not None and Path(member.name).name == "config.json"


def _drop_repeats(weights: dict[str, Any], repeats: Mapping[str, str], path: Path) -> None:
    """Remove the tensors that repeat another one. Errors: one that differs from it is a `CheckpointError`."""
    for name, source in repeats.items():
        copied, original = weights.pop(name, None), weights.get(source)
        if copied is not None and original is not None and not torch.equal(copied, original):
            raise CheckpointError(
                f"{path}: {name} differs from {source}; cloze's network has one tensor for both, so this model cannot be "
                "imported."
            )


def _layers(names: Iterable[str], lead: str) -> int:
    """How many layers have names that begin with `lead` and their number."""
    numbers = (name.removeprefix(lead).partition(".")[0] for name in names if name.startswith(lead))
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def _config(folder: Path, system: BertBased) -> dict[str, Any]:
    """The one JSON file of the folder that gives the width of a network, with values that cloze has, and those of its stacks."""
    title = system.architecture.title
    files = [path for path in sorted(folder.glob("*.json")) if path.name not in system.stacks.values()]
    contents = {path: read_json(path, f"the config of {title}") for path in files}
    configs = [(path, values) for path, values in contents.items() if "hidden_size" in values]
    if len(configs) != 1:
        count = "no config of a network" if not configs else f"{len(configs)} configs, {configs[0][0].name} among them"
        raise CheckpointError(
            f"{folder}: {count}; the weights are those of {title}, which needs exactly one.\n"
            f"  Put {system.config} next to them, and the tokenizer of {system.bert}."
        )
    path, config = configs[0]
    for key, values in {"hidden_act": tuple(ACTIVATIONS_BACK), **system.architecture.legal}.items():
        if config.get(key, values[0]) not in values:
            raise CheckpointError(
                f"{path}: {key} is {config[key]!r}; cloze's network has {' or '.join(map(repr, values))} there, so this model "
                "cannot be imported."
            )
    if missing := [file for file in system.stacks.values() if not (folder / file).exists()]:
        raise CheckpointError(
            f"{folder}: no {', '.join(missing)}; {title} needs several configs.\n"
            "  Put all of them next to the weights. They come with the authors' code or archive."
        )
    for prefix, file in system.stacks.items():
        of_stack = read_json(folder / file, f"a config of {title}")
        config |= {f"{prefix}{key}": value for key, value in of_stack.items()}
    return config
