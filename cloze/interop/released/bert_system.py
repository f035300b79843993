"""The description of a released system that is built on BERT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable
from cloze.interop.mapping import MappingLine
from cloze.interop.model import Annotating, PortableTable


@dataclass(frozen=True)
class Knowledge:
    """What a network that looks up entities needs besides its weights."""

    tables: Mapping[str, PortableTable]
    input_edits: tuple[tuple[str, Mapping[str, Any]], ...]
    annotators: Mapping[str, Annotating]


@dataclass(frozen=True)
class BertBased:
    """A released system.

    Attributes:
        sign: How the name of a tensor ends that only its files have.
        architecture: Its table, whose `recipe` names the recipe that trains it.
        config: The authors' config file, for messages.
        bert: The BERT whose tokenizer it has, for messages.
        others: The beginnings of names of tensors that the network of cloze lacks, with a clause that says why they are refused.
        knowledge: From the folder and the arguments, what it looks up.
    """

    sign: str
    architecture: Architecture
    config: str
    bert: str
    others: Mapping[str, str] | None = None
    knowledge: Callable[[Path, Mapping[str, Any]], Knowledge] | None = None


def system_table(name: str, title: str, **parts: Any) -> Architecture:
    """The table of a system, of which transformers has no class."""
    return Architecture(
        name=name, title=title, classes=(), tokenizer_class="BertTokenizer",
        reading=encoder.READING, recipe=lambda model: name, assumed={}, **{"legal": {}, **parts},
    )  # fmt: skip


def classes_head(dense: str, norm: str, output: str, *, divergence: str, width: str = "D") -> HeadTable:
    """The head of the detector's probabilities of a region's classes, by the names of its parts; `width` is that of regions."""
    return HeadTable(
        role="classes", part="regress", sign=(f"{output}.weight",), objections=lambda head, arguments: [],
        read={"hidden": "item_hidden"},
        lines=(
            MappingLine("head.dense.*", f"{dense}.*", f"{width} {width}"), MappingLine("head.norm.*", f"{norm}.*", width),
            MappingLine("head.output.*", f"{output}.*", f"C {width}"),
        ),
        arguments=lambda config, tensors: {
            "set": "probabilities", "numbers": int(tensors[f"{output}.weight"].shape[0]), "reading": "hidden",
            "deviation": divergence, "transform": {"gelu": {"norm_epsilon": 1e-12}},
        },
    )  # fmt: skip
