"""The heads in a folder, recognised by the tensors that are the `sign` of a `HeadTable`; cloze's own folders name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.architecture import Architecture, HeadTable
from cloze.interop.config import classes_of
from cloze.interop.export import OWN_HEADS
from cloze.interop.files import DESCRIPTION, WEIGHTS, read_tensors
from cloze.interop.mapping import TableSizes, to_ours
from cloze.interop.model import PortableHead, defaults
from cloze.interop.purpose import as_meant, purpose_of


def read_heads(
    architecture: Architecture,
    config: Mapping[str, Any],
    tensors: dict[str, Tensor],
    network: Mapping[str, Tensor],
    arguments: Mapping[str, Any],
    sizes: TableSizes,
    path: str,
) -> tuple[dict[str, tuple[HeadTable, PortableHead]], list[str]]:
    """The heads whose signs are in the file by their role, each with its table; and remarks. Their tensors are taken out of
    `tensors`; `network` is the state of the network, already under our names."""
    heads: dict[str, tuple[HeadTable, PortableHead]] = {}
    remarks: list[str] = []
    for table in architecture.heads:
        tie = architecture.ties(config)
        if tie:
            tie, notes = _drop_repeats(table, tensors, network, sizes, path)
        else:
            notes = _share(table, architecture, config, tensors, network)
        remarks += notes
        if not _present(table, architecture, config, tensors, sizes, tie):
            continue
        other = _other_head(table, config)
        if other:
            remarks.append(f"{other}, so this head is left out.")
            continue
        head_arguments = table.arguments(config, tensors)
        if "tie" in defaults("objective", table.part):
            head_arguments["tie"] = table.tie if tie else False
        if not tie:
            for copy, source in table.copies.items():  # 4.57 ties the two and keeps only the name of the copy
                tensor = tensors.pop(copy, None)
                if tensor is not None:
                    tensors.setdefault(source, tensor)
        outputs = head_arguments.get("classes", head_arguments.get("numbers", 0))
        state = to_ours(table.all_lines(tie), tensors, sizes.with_letters(C=outputs), path)
        head = PortableHead(table.part, head_arguments, state)
        for reason in table.objections(head, arguments):
            raise CheckpointError(f"{path}: the head {table.role} cannot be read: {reason}.")
        heads[table.role] = (table, head)
    return heads, remarks or _absent(architecture, config, heads)


def _absent(architecture: Architecture, config: Mapping[str, Any], heads: Mapping[str, Any]) -> list[str]:
    """A remark on a class whose head the file does not hold."""
    candidates = classes_of(architecture, config)
    complete = {cls.name for cls in candidates if not cls.roles - heads.keys()}  # a class may have two tables for one head
    classes = [cls for cls in candidates if cls.name not in complete]
    return [f"config.json names {cls.name}, and the file lacks its head ({', '.join(sorted(cls.roles))})." for cls in classes[:1]]


def _present(
    table: HeadTable,
    architecture: Architecture,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    sizes: TableSizes,
    tie: bool,
) -> bool:
    if not _class_allows(table, architecture, config):
        return False
    if not table.all_lines(tie):  # no tensors of its own: only the class in config.json shows whether there is a head
        return _class_predicts(table, architecture, config)
    return all(name.replace("{base}", sizes.base) in tensors for name in table.sign)


def _class_allows(table: HeadTable, architecture: Architecture, config: Mapping[str, Any]) -> bool:
    """Whether the class in config.json allows this head, if several heads have tensors of the same names."""
    candidates = classes_of(architecture, config)
    if table.by_class:
        return any(table.role in cls.roles for cls in candidates)
    roles = {other.role for other in architecture.heads if other.by_class and set(other.sign) & set(table.sign)}
    return not any(cls.roles & roles for cls in candidates)


def _class_predicts(table: HeadTable, architecture: Architecture, config: Mapping[str, Any]) -> bool:
    """Whether the folder's class has this head; a folder that names no class may have it."""
    without = {cls.name for cls in architecture.classes if table.role not in cls.roles}
    return not without.intersection(config.get("architectures") or ())


def _other_head(table: HeadTable, config: Mapping[str, Any]) -> str:
    """The values in config.json that make the head different from ours, in words; empty if there are none."""
    values = {key: config.get(key, table.if_absent.get(key, expected)) for key, expected in table.required.items()}
    wrong = [
        f"{key} is {values[key]!r}, where cloze has {expected!r}"
        for key, expected in table.required.items()
        if values[key] != expected and (values[key] or expected)
    ]
    return f"config.json: {'; '.join(wrong)} in the head {table.role}" if wrong else ""


def _share(
    table: HeadTable,
    architecture: Architecture,
    config: Mapping[str, Any],
    tensors: dict[str, Tensor],
    network: Mapping[str, Tensor],
) -> list[str]:
    """Fill tensors of an untied head that the file lacks with the token table's values, as transformers does."""
    absent = [name for name in table.shares if name not in tensors]
    if not absent or not _class_predicts(table, architecture, config):
        return []
    tensors.update({name: network["embeddings.tokens.weight"].clone() for name in absent})
    return [
        f"{absent[0]} is not in the file: transformers uses the token table in its place, here it is a copy of that table, "
        "which training changes on its own."
    ]


def _drop_repeats(
    table: HeadTable, tensors: dict[str, Tensor], network: Mapping[str, Tensor], sizes: TableSizes, path: str
) -> tuple[bool, list[str]]:
    """Remove copies of tied tensors. Returns whether the head is tied; in transformers 5 it is not if its rows differ."""
    for name, source in table.repeats.items():
        copy = tensors.get(name)
        origin = network.get("embeddings.tokens.weight") if "{base}" in source else tensors.get(source)
        if copy is None or origin is None:
            continue
        if torch.equal(copy, origin):
            del tensors[name]
        elif not table.untied or "{base}" not in source:
            raise CheckpointError(
                f"{path}: {name} differs from {source.replace('{base}', sizes.base)}; cloze's network has one tensor for "
                "both, so this model cannot be imported."
            )
        else:
            return False, [
                f"{name} differs from {source.replace('{base}', sizes.base)}, although config.json ties the two "
                "(tie_word_embeddings): both are kept, as transformers 5 does."
            ]
    return True, []


def default_names(heads: Mapping[str, tuple[HeadTable, PortableHead]], config: Mapping[str, Any]) -> dict[str, str]:
    """The roles of heads by the names that they get where a folder gives them none: the name that the recipe of their task uses,
    else the part, or the role where a name repeats."""
    names: dict[str, str] = {}
    for role, (table, _) in heads.items():
        purpose = purpose_of(role, config)
        name = table.part if purpose is None else purpose.head
        names[role if name in names else name] = role
    return names


def named_heads(
    heads: Mapping[str, tuple[HeadTable, PortableHead]], description: Mapping[str, Any] | None, folder: Path,
    config: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, PortableHead]:
    """The heads under the names and arguments in cloze/network.json, including those that transformers lacks; without that file,
    under their `default_names` and as config.json means them. `heads`: by role, each with its table."""
    if description is None:
        return {
            name: as_meant(replace(heads[role][1], read=heads[role][0].read), purpose_of(role, config))
            for name, role in default_names(heads, config).items()
        }
    stored = read_tensors(folder / OWN_HEADS) if (folder / OWN_HEADS).exists() else {}
    result: dict[str, PortableHead] = {}
    for name, entry in description["heads"].items():
        if entry["role"] in heads:
            table, head = heads[entry["role"]]
            result[name] = PortableHead(entry["part"], entry["arguments"], head.state, entry.get("read") or table.read)
        elif entry["role"] is None:
            state = {key.removeprefix(name + "/"): t for key, t in stored.items() if key.startswith(name + "/")}
            result[name] = PortableHead(entry["part"], entry["arguments"], state, entry.get("read", {}))
        else:
            raise CheckpointError(
                f"{folder / WEIGHTS}: the head {name!r} is missing, which {DESCRIPTION} promises.\n"
                "  The copy is incomplete: copy the whole folder again."
            )
    return result
