"""The description of a released system that is built on BERT, and what their tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable
from cloze.interop.architectures.visual_bert import MASKED_LM
from cloze.interop.mapping import MappingLine
from cloze.text.tokenizer import Tokenizer

#: The common part of the tables: transformers has no class for these systems.
TABLE: Mapping[str, Any] = {
    "classes": (), "assumed": {}, "tokenizer_class": "BertTokenizer", "reading": encoder.READING,
}  # fmt: skip
FIXED: Mapping[str, Any] = {"norm_epsilon": 1e-12, "initial": "normal"}


class Files(NamedTuple):
    """What is read of a system besides its network: its folder, its config, the tensors that are left, and its tokenizer."""

    folder: Path
    config: Mapping[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer


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
        measured: Keys of the config that give a size, by the weights: how the name of a tensor ends, and its axis of this size.
        repeats: Tensors that repeat another one, which cloze has once.
        unsupported: Endings of the names of tensors that the network of cloze lacks, with a clause that says what they are.
        variant: From its table and a config, the table of a model with this config.
        knowledge: From what is read, further fields of `PortableModel`; it takes the tensors that it uses.
    """

    sign: str
    config: str
    bert: str
    architecture: Architecture
    stacks: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    repeats: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    variant: Callable[[Architecture, Mapping[str, Any]], Architecture] = lambda architecture, config: architecture
    knowledge: Callable[[Files], Mapping[str, Any]] = lambda files: {}

    def is_in(self, names: Iterable[str]) -> bool:
        """Whether a file with tensors of these names is one of the system."""
        return any(name.endswith(self.sign) for name in names)


def stack(our_lead: str, upstream: str, *, width: str = "D", inner: str = "I") -> tuple[MappingLine, ...]:
    """The lines of BERT's layers for another stack; the names of its layers begin with `our_lead` and `upstream`. `width` and
    `inner` are the letters of its sizes."""
    def moved(name: str) -> str:
        return name.replace("{base}encoder.layer.{i}.", upstream)

    return tuple(
        replace(
            line, ours=line.ours.replace("layers.{i}.", our_lead),
            theirs=moved(line.theirs) if isinstance(line.theirs, str) else tuple(map(moved, line.theirs)),
            shape=" ".join(size[:-1] + {"D": width, "I": inner}[size[-1]] for size in line.shape.split()),
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
