"""What one architecture of transformers is made of: settings, tables of names, heads, classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.interop.mapping import Facts, Line
from cloze.interop.model import Head

#: Our activation → the name in config.json. Several of theirs mean one of ours: see `ACTIVATIONS_BACK`.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
ACTIVATIONS_BACK = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def same(value: Any) -> Any:
    """The value as it is."""
    return value


@dataclass(frozen=True)
class Setting:
    """One argument of our network and its key in config.json. `default` is transformers' own, where the key is absent."""

    ours: str
    theirs: str
    default: Any
    there: Callable[[Any], Any] = same
    back: Callable[[Any], Any] = same


@dataclass(frozen=True)
class HeadTable:
    """A head that transformers knows.

    `role` names it among the architecture's classes; `sign` are tensors that, all present, show it in a file. `lines` hold
    whether tied or not; `tied` and `untied` are added to them. `repeats` (tied) and `copies` (untied) name tensors that
    merely repeat another one: never needed in a file; copies are written because transformers looks for them.
    `objections(head, network arguments)` says in plain words why a head of that part does not fit.
    """

    role: str
    part: str
    sign: tuple[str, ...]
    lines: tuple[Line, ...]
    objections: Callable[[Head, Mapping[str, Any]], list[str]]
    arguments: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
    tied: tuple[Line, ...] = ()
    untied: tuple[Line, ...] = ()
    repeats: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)

    def rows(self, tie: bool) -> tuple[Line, ...]:
        """The lines in force."""
        return self.lines + (self.tied if tie else self.untied)


@dataclass(frozen=True)
class ModelClass:
    """A class of transformers, the roles of the heads it has, the auto class that opens it, the hub's pipeline word."""

    name: str
    roles: frozenset[str]
    auto: str
    pipeline: str | None = None


@dataclass(frozen=True)
class Architecture:
    """Everything cloze knows about one `model_type`.

    `fixed` are arguments of ours that the architecture does not leave open; `legal` are keys of config.json with the only
    values that we understand. `segments` is the line of the segment table (None: it has none), `project` the line between
    embeddings and layers of different widths. `ignored` are buffers in old files. `shifted`: positions begin after the id
    of [PAD]. `boundaries` are the roles that may stand for bos and for eos in config.json, the best first.
    """

    name: str
    title: str
    order: str
    settings: tuple[Setting, ...]
    fixed: Mapping[str, Any]
    assumed: Mapping[str, Any]
    legal: Mapping[str, tuple[Any, ...]]
    base: str
    body: tuple[Line, ...]
    heads: tuple[HeadTable, ...]
    classes: tuple[ModelClass, ...]
    tokenizer_class: str
    segments: Line | None = None
    project: Line | None = None
    ignored: tuple[str, ...] = ()
    shifted: bool = False
    boundaries: tuple[Sequence[str], Sequence[str]] = ((), ())

    def setting(self, ours: str) -> Setting:
        """The setting of one of our arguments."""
        return next(setting for setting in self.settings if setting.ours == ours)

    def rows(self, arguments: Mapping[str, Any]) -> tuple[Line, ...]:
        """The body's lines for a network with these arguments."""
        segments = (self.segments,) if self.segments and arguments["segments"] else ()
        differ = arguments["embedding_width"] != arguments["width"]
        return self.body + segments + ((self.project,) if self.project and differ else ())

    def facts(self, arguments: Mapping[str, Any], vocab_size: int, *, base: str, pad: int | None) -> Facts:
        """The sizes behind the letters of the tables."""
        sizes = {
            "V": vocab_size,
            "D": arguments["width"],
            "E": arguments["embedding_width"],
            "I": arguments["inner"],
            "P": arguments["longest"],
            "S": max(1, arguments["segments"]),
        }
        return Facts(sizes=sizes, layers=arguments["layers"], base=base, pad=pad or 0)

    def objections(self, arguments: Mapping[str, Any], order: str, pad: int | None) -> list[str]:
        """Why this architecture cannot be this network, in plain words; empty when it can."""
        wrong = [
            f"{name} is {arguments[name]!r}, transformers' {self.title} has {value!r}"
            for name, value in self.fixed.items()
            if arguments[name] != value
        ]
        if order != self.order:
            wrong.append(f"order is {order!r}, transformers' {self.title} has {self.order!r}")
        if self.project is None and arguments["embedding_width"] != arguments["width"]:
            wrong.append(f"transformers' {self.title} has no embedding_width of its own")
        if arguments["segments"] and self.segments is None:
            wrong.append(f"transformers' {self.title} has no segments")
        if self.shifted and (pad is None or pad > 15):
            wrong.append(f"transformers' {self.title} counts positions from the id of [PAD], which must be a small number")
        return wrong
