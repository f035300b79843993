"""The description of a released system that is built on BERT, and what their tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable
from cloze.interop.architectures.visual_bert import MASKED_LM
from cloze.interop.mapping import MappingLine

#: The common part of the tables: transformers has no class for these systems.
TABLE: Mapping[str, Any] = {
    "classes": (), "assumed": {}, "tokenizer_class": "BertTokenizer", "reading": encoder.READING,
}  # fmt: skip
FIXED: Mapping[str, Any] = {"norm_epsilon": 1e-12, "initial": "normal"}


@dataclass(frozen=True)
class BertBased:
    """A released system.

    Attributes:
        sign: How the name of a tensor ends that only its files have.
        config: The authors' config file, for messages.
        bert: The BERT whose tokenizer it has, for messages.
        architecture: Its table. The roles of its heads are their names in the recipe.
        stacks: Files of the authors that describe further stacks, by the prefix that their keys get in the config.
        counted: Keys of the config that give a number of layers, by the weights: how the names of these layers begin.
        repeats: Tensors that repeat another one, which cloze has once.
        unsupported: Endings of the names of tensors that the network of cloze lacks, with a clause that says what they are.
        knowledge: From the folder, further fields of `PortableModel`.
    """

    sign: str
    config: str
    bert: str
    architecture: Architecture
    stacks: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    repeats: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    knowledge: Callable[[Path], Mapping[str, Any]] = lambda folder: {}


def stack(ours: str, theirs: str) -> tuple[MappingLine, ...]:
    """The lines of BERT's layers for another stack; the names of its layers begin with `ours` and `theirs`."""
    def moved(name: str) -> str:
        return name.replace("{base}encoder.layer.{i}.", theirs)

    return tuple(
        replace(
            line, ours=line.ours.replace("layers.{i}.", ours),
            theirs=moved(line.theirs) if isinstance(line.theirs, str) else tuple(map(moved, line.theirs)),
        )
        for line in encoder.body() if line.ours.startswith("layers.")
    )  # fmt: skip


def words_head(lead: str = "cls.") -> HeadTable:
    """The head of masked words, whose tensors begin with `lead`."""
    def renamed(lines: tuple[MappingLine, ...]) -> tuple[MappingLine, ...]:
        return tuple(replace(line, theirs=str(line.theirs).replace("cls.", lead)) for line in lines)

    return replace(
        MASKED_LM, role="token_prediction", sign=(MASKED_LM.sign[0].replace("cls.", lead),), lines=renamed(MASKED_LM.lines),
        tied=renamed(MASKED_LM.tied), untied=(), copies={},
        repeats={f"{lead}predictions.decoder.weight": "{base}embeddings.word_embeddings.weight"},
    )


def regression(role: str, sign: str, lines: tuple[MappingLine, ...], *, norm: bool = True, **arguments: Any) -> HeadTable:
    """A head of numbers of a region, as many as the tensor `sign` has rows, after a dense map and GELU."""
    transform = {"gelu": {"norm_epsilon": 1e-12} if norm else {}}
    return HeadTable(
        role=role, part="regress", sign=(sign,), lines=lines, read={"hidden": "item_hidden"},
        objections=lambda head, _: [],
        arguments=lambda config, tensors: {
            "set": "probabilities", "reading": "hidden", "transform": transform, "numbers": len(tensors[sign]), **arguments,
        },
    )  # fmt: skip
