"""The data structure of import and export: one network with its heads, as plain tensors and arguments.

`read.py` makes a `PortableModel` from a folder, `export.py` writes one. `cloze.checkpoint.build.load_checkpoint` builds
modules from it, and `cloze.checkpoint.publish` makes one of a run's modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from cloze.interop.arguments import flat
from cloze.interop.prompts import NO_PROMPTS, Prompts
from cloze.objectives.objective import Kind
from cloze.objectives.transforms import Transform
from cloze.registry import lookup, made_by, mark_of, parameters


@dataclass(frozen=True)
class PortableHead:
    """An objective's parameters: the registered part, its arguments, and `objective.state_dict()`.

    `read` maps readings to states of the network if the names differ; the key "" is the first reading.
    """

    part: str
    arguments: Mapping[str, Any]
    state: Mapping[str, Tensor]
    read: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind | None:
        """What commands may use the head for."""
        head_kind: Kind | None = class_of("objective", self.part).kind
        return head_kind

    def argument(self, name: str) -> Any:
        """The value of an argument: the given one, else the builder's default."""
        if name in self.arguments:
            return self.arguments[name]
        return defaults("objective", self.part).get(name)

    @property
    def sums_up(self) -> bool:
        """Whether it reads the state of the token that sums up a text."""
        return self.kind == "relation_prediction" or self.argument("reading") == "summary"

    @property
    def transform(self) -> Transform:
        """The part `transform` of a classifier's head."""
        value = self.argument("transform")
        parts: Mapping[str, Any] = {value: {}} if isinstance(value, str) else value or {}
        return next((lookup("transform", name)(**(arguments or {})) for name, arguments in parts.items()), None)


#: Objectives that share the head of a classifier but learn something else or say more → transformers' `problem_type`; None: that
#: of an ordinary classifier, which config.json does not name.
PROBLEMS: Mapping[str, str | None] = MappingProxyType({
    "regress": "regression", "several": "multi_label_classification", "soft_classification": None,
    "relation_classification": None, "listwise": None,
})


def is_of_texts(head: PortableHead) -> bool:
    """Whether a head of `PROBLEMS` is about whole texts, and not about what stands at positions."""
    return head.part in PROBLEMS and head.argument("reading") != "hidden"


def as_classifier(head: PortableHead) -> PortableHead:
    """A head of `PROBLEMS` as the classifier with the same parameters, which transformers has; any other head unchanged, also one
    with a further map behind its pooler."""
    if not is_of_texts(head) or {"head.pool.weight", "head.dense.weight"} <= head.state.keys():
        return head
    arguments = {name: head.argument(name) for name in ("set", "dropout", "transform", "output_bias")}
    arguments["classes"] = int(head.state["head.output.weight"].shape[0])
    if head.argument("pool") or "head.pool.weight" in head.state:
        pooled = {name: arguments[name] for name in ("set", "dropout", "classes")}
        if head.argument("relations"):
            pooled["relations"] = head.argument("relations")  # the names of the classes
        return PortableHead("relation_prediction", {**pooled, "pool": True}, head.state, head.read)
    return PortableHead("classify", {**arguments, "reading": head.argument("reading")}, head.state, head.read)


@dataclass(frozen=True)
class PortableTable:
    """A look-up table that a network needs to read text: the registered part, and its contents as tensors."""

    part: str
    arrays: Mapping[str, Tensor]


@dataclass(frozen=True)
class Annotating:
    """How a labelled layer that the network reads is made: the registered annotator, its arguments other than the file, and that
    file; None: the user gives it with the texts."""

    part: str
    arguments: Mapping[str, Any]
    file: Path | None = None


@dataclass(frozen=True)
class PortableModel:
    """A network and its heads outside any module.

    `arguments` are the network's, every derived value filled in (see `cloze.interop.arguments.complete`); `network` and the
    heads' states use our parameter names. `spare` holds tensors of a Hugging Face folder that no part of cloze uses (a pooler
    without an objective), under their names there, so that writing the folder again loses nothing. `input_edits` are the edits
    that compute further inputs from the tokens or from labelled layers, each a registered part and its arguments; `tables` are
    their look-up tables, `annotators` make the layers.
    `languages` are the names of the ids of the further input `language`. `prompts` are those of sentence-transformers.

    Of a changed network (`change:` in a recipe), `network` is the plain form, which any program reads. `changes` are the lasting
    changes, each a registered part and its arguments, and `changed` holds the tensors that are new or different in the changed
    network. If there is no plain form, `network` is the changed network, and `no_plain_form` says why.
    """

    arguments: Mapping[str, Any]
    order: str
    network: Mapping[str, Tensor]
    heads: Mapping[str, PortableHead] = field(default_factory=dict)
    part: str = "transformer"
    spare: Mapping[str, Tensor] = field(default_factory=dict)
    input_edits: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    tables: Mapping[str, PortableTable] = field(default_factory=dict)
    annotators: Mapping[str, Annotating] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    changes: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    changed: Mapping[str, Tensor] = field(default_factory=dict)
    no_plain_form: str = ""
    prompts: Prompts = NO_PROMPTS

    @property
    def network_type(self) -> Any:
        """The class of the network, whose attributes say what it can do."""
        return class_of("network", self.part)

    @property
    def answers(self) -> bool:
        """Whether a head reads the state of a decoder, so that the model writes another text than the one it reads."""
        writes = self.network_type.writes
        return writes is not None and any(writes in head.read.values() for head in self.heads.values())

    @property
    def plain(self) -> PortableModel:
        """The same network without its changes, if it has a plain form."""
        return self if self.no_plain_form else replace(self, changes=(), changed={})

    @cached_property
    def flat(self) -> Mapping[str, Any]:
        """The arguments by their paths, as the tables of architectures name them."""
        return flat(self.arguments, self.part)


def class_of(kind: str, part: str) -> Any:
    """The class of an edit, a network or an objective, whose attributes say what it does."""
    _register()
    return made_by(lookup(kind, part))


def _register() -> None:
    import cloze.exercises
    import cloze.networks
    import cloze.objectives  # noqa: F401  the imports register the parts


def defaults(kind: str, part: str) -> dict[str, Any]:
    """The defaults in a builder's signature, without the parameters that are supplied (`Given`)."""
    _register()
    signature = parameters(lookup(kind, part))
    return {
        name: parameter.default
        for name, parameter in signature.items()
        if parameter.default is not parameter.empty and mark_of(parameter) is None
    }
