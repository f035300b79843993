"""The description of an architecture of transformers: settings, tables of names, heads, classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from cloze.interop.arguments import default_arguments, flat
from cloze.interop.mapping import MappingLine, TableSizes
from cloze.interop.model import PortableHead, PortableModel
from cloze.reading import Reading
from cloze.text.tokenizer import Tokenizer

#: Our activation → the name in config.json. Several of their names map to one of ours: see `ACTIVATIONS_BACK`.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
ACTIVATIONS_BACK = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

#: Arguments that `Architecture.objections` checks by itself, whatever the tables say.
_CHECKED_APART = frozenset({"segments", "embedding", "embedding.width", "head_width", "positions.max_length"})


def same(value: Any) -> Any:
    """The value unchanged."""
    return value


@dataclass(frozen=True)
class Setting:
    """One argument of our network, by its path (`norm.epsilon`), and its key in config.json.

    `default` is transformers' value for an absent key. `there` turns our value into theirs, `back` theirs into ours.
    """

    ours: str
    theirs: str
    default: Any
    there: Callable[[Any], Any] = same
    back: Callable[[Any], Any] = same

    @property
    def is_number(self) -> bool:
        """Whether it is a rate or a size, which a recipe may give as a schedule."""
        return isinstance(self.default, int | float) and not isinstance(self.default, bool)


@dataclass(frozen=True)
class HeadTable:
    """A head that transformers knows.

    Attributes:
        role: Its name among the architecture's classes.
        part: The registered objective that it is in cloze.
        sign: The tensors whose presence shows that a file contains it.
        lines: The lines of its table that apply whether it is tied or not.
        tied: Further lines if its output rows are the token table.
        untied: Further lines if they are not.
        repeats: Tied tensors, each with the one that it repeats: a file need not contain them.
        copies: Untied tensors, each with the one that it repeats; they are written because transformers looks for them.
        shares: Untied tensors that transformers takes from the token table if a file lacks them.
        tie: The value of our argument where the head is tied.
        objections: From the head and the network's arguments, the reasons why a head of that part does not fit.
        arguments: From a config and the tensors of the file, the arguments of our head.
        read: Binds its readings to states, as in `PortableHead`.
        required: The keys of config.json that belong to the head, with the values that it needs. With another value, it is a
            different head, which cloze lacks.
        if_absent: The values of those keys that a config lacks; those of other keys in `required` are as required.
        to_config: From the head, further keys that express its arguments.
        by_class: Another head has tensors of the same names, so only a folder that names a class with this role contains it.
        at_mask: It reads the state of the text's last [MASK], in place of that of the token that sums up the text.
    """

    role: str
    part: str
    sign: tuple[str, ...]
    lines: tuple[MappingLine, ...]
    objections: Callable[[PortableHead, Mapping[str, Any]], list[str]]
    arguments: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
    tied: tuple[MappingLine, ...] = ()
    untied: tuple[MappingLine, ...] = ()
    repeats: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[str, ...] = ()
    tie: bool | str = True
    read: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    if_absent: Mapping[str, Any] = field(default_factory=dict)
    to_config: Callable[[PortableHead], Mapping[str, Any]] = lambda head: {}
    by_class: bool = False
    at_mask: bool = False

    def all_lines(self, tie: bool) -> tuple[MappingLine, ...]:
        """The lines that apply to a head that is tied, or is not."""
        return self.lines + (self.tied if tie else self.untied)

    def new_arguments(self) -> dict[str, Any]:
        """The arguments of a new head of this kind that say which layers stand between the states and the outputs."""
        arguments = self.arguments({}, {name: torch.empty(1, 1, device="meta") for name in self.sign})
        return {name: value for name, value in arguments.items() if name not in ("classes", "set", "reading")}


#: Roles of heads whose outputs are classes with names (`id2label`).
NAMED_ROLES = frozenset({"answers", "classifier", "tagger"})


@dataclass(frozen=True)
class ModelClass:
    """A class of transformers, the roles of its heads, the auto class that opens it, and the Hub's name of its pipeline. `base`:
    the prefix of the body in this class, where it is not that of the architecture."""

    name: str
    roles: frozenset[str]
    auto: str
    pipeline: str | None = None
    base: str | None = None


class ReadingFacts(NamedTuple):
    """What a folder says about how its texts are read: config.json with the keys of generation_config.json, the settings in
    tokenizer_config.json, and the tokenizer."""

    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Architecture:
    """Everything that cloze knows about one `model_type`.

    Attributes:
        settings: Each pairs one argument of the network, by its path, with one key of config.json.
        fixed: Arguments that have only one possible value in the architecture.
        assumed: Arguments that a folder does not contain. All others must have their builder's default.
        legal: Keys of config.json with the values that cloze supports; the first is that of an absent key.
        base: The prefix of the body's tensors in classes with heads.
        body: The lines of every network.
        reading: How it reads text if the folder does not say so.
        reading_of: For networks that are told languages by tokens, or read texts otherwise in one class: from a folder's facts,
            how it reads text, its tokenizer with the languages, and remarks; None: as every folder.
        recipe: From a model, the name of the recipe for it, for a folder that does not say how it was trained.
        part: The network part that it expresses.
        orders: Its possible orders, the usual one first.
        order_of: Reads the order from a config.
        resemblance: From a model and the kind of its tokenizer, how much it resembles this system. 0: not more than any other;
            the highest wins among choices that are equally good.
        from_config: From a config, the arguments that are not in a single key. Raises `ValueError` with a message for users if a
            value is unknown.
        to_config: From the arguments and the order, the keys that `from_config` reads.
        further_objections: From the arguments, the reasons why they do not fit that `objections` does not give by itself.
        remarks: From the arguments, remarks on how transformers reads such a model differently by default.
        ties: From a config, whether the output rows are the token table.
        tokens: Keys of config.json that hold an id, with the possible roles, the best first.
        further: Lines that depend on the arguments.
        counts: The ranges of `{i}`, `{j}` and `{k}`.
        sizes: Letters besides those of `table_sizes`.
        segments: The line of the segment table; None: it has none.
        project: The line between embeddings and layers of different widths.
        copies: Names under which files repeat the token table.
        ignored: Buffers in old files.
        computed: From the arguments, tensors of the network that files may lack because they follow from the arguments.
        blank: Buffers that must be zero because our network lacks them.
        renamed: The name of a tensor in the tables by its name in a file, without `base`, for names that files may have besides.
        repeated: From the arguments, the names under which a tensor is written instead of its name in the tables.
        buffers: From the arguments, tensors of a file that follow from these, under their names without `base`: written, and
            compared when read. A file may lack them.
        embeddings: The kinds of embeddings that it has.
        paddings: The ids that [PAD] may have where learned positions begin after it; empty: positions begin with 0.
        fixed_shifted: Whether fixed positions begin after the id of [PAD]: `positions.first` is that id plus one.
        unused: Tensors of classes with heads that compute nothing with them: written as zeros where the model brings none.
        carried: How the names of further tensors in the body begin. cloze has no use for them and writes them as it read them.
        longest: From a config, the most tokens that transformers' network reads as ours does; None: as many as it reads.
        has_pooler: Whether the class without heads has a pooling layer.
        framed: Whether the tokenizer of a folder says which special tokens stand around a text; if it does not, `reading` says.
        generates: Whether transformers generates with it.
        until: The last version of transformers that has the classes; None: the newest has them.
    """

    name: str
    title: str
    settings: tuple[Setting, ...]
    fixed: Mapping[str, Any]
    assumed: Mapping[str, Any]
    legal: Mapping[str, tuple[Any, ...]]
    base: str
    body: tuple[MappingLine, ...]
    heads: tuple[HeadTable, ...]
    classes: tuple[ModelClass, ...]
    tokenizer_class: str
    reading: Reading
    recipe: Callable[[PortableModel], str]
    reading_of: Callable[[ReadingFacts], tuple[Reading, Tokenizer, list[str]] | None] = lambda facts: None
    part: str = "transformer"
    orders: tuple[str, ...] = ("open",)
    order_of: Callable[[Mapping[str, Any]], str] | None = None
    resemblance: Callable[[PortableModel, str], int] = lambda model, kind: 0
    from_config: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda config: {}
    to_config: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda arguments, order: {}
    further_objections: Callable[[Mapping[str, Any]], list[str]] = lambda arguments: []
    remarks: Callable[[Mapping[str, Any]], list[str]] = lambda arguments: []
    ties: Callable[[Mapping[str, Any]], bool] = lambda config: bool(config.get("tie_word_embeddings", True))
    tokens: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"bos_token_id": (), "eos_token_id": ()})
    further: Callable[[Mapping[str, Any]], tuple[MappingLine, ...]] = lambda arguments: ()
    counts: Callable[[Mapping[str, Any]], Mapping[str, int]] = lambda arguments: {"i": arguments["layers"]}
    sizes: Callable[[Mapping[str, Any]], Mapping[str, int]] = lambda arguments: {}
    segments: MappingLine | None = None
    project: MappingLine | None = None
    copies: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    computed: Callable[[Mapping[str, Any]], Mapping[str, torch.Tensor]] = lambda arguments: {}
    blank: tuple[str, ...] = ()
    renamed: Callable[[str], str] = same
    repeated: Callable[[Mapping[str, Any]], Mapping[str, Sequence[str]]] = lambda arguments: {}
    buffers: Callable[[Mapping[str, Any]], Mapping[str, torch.Tensor]] = lambda arguments: {}
    embeddings: tuple[str, ...] = ("table",)
    paddings: Sequence[int] = ()
    fixed_shifted: bool = False
    unused: tuple[MappingLine, ...] = ()
    carried: tuple[str, ...] = ("pooler", "encoder")
    longest: Callable[[Mapping[str, Any]], int | None] = lambda config: None
    has_pooler: bool = False
    framed: bool = False
    generates: bool = False
    until: str | None = None

    @property
    def bases(self) -> list[str]:
        """Every prefix of the body."""
        return list(dict.fromkeys([self.base, *(cls.base for cls in self.classes if cls.base is not None)]))

    def base_of(self, cls: ModelClass) -> str:
        """The prefix of the body in a class; empty in the one without heads."""
        return (self.base if cls.base is None else cls.base) if cls.roles else ""

    def base_in(self, names: Iterable[str]) -> str:
        """The prefix that the tensors of these names have before the body; empty if there is none."""
        names = list(names)
        return next((base for base in self.bases if any(name.startswith(base) for name in names)), "")

    def setting(self, ours: str) -> Setting | None:
        """The setting of one of our arguments; None if `from_config` and `to_config` handle it."""
        return next((setting for setting in self.settings if setting.ours == ours), None)

    def lines(self, arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
        """The lines of a network with these arguments; its heads have their own."""
        segments = (self.segments,) if self.segments and arguments.get("segments") else ()
        project = (self.project,) if self.project and arguments.get("embedding.project") else ()
        return self.body + tuple(self.further(arguments)) + segments + project

    def keys(self, arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
        """The keys of config.json that express the arguments; a number that follows a schedule is written as 0.0."""
        config = dict(self.to_config(arguments, order))
        for setting in self.settings:
            if setting.ours not in arguments:
                config[setting.theirs] = setting.default
                continue
            value = arguments[setting.ours]
            config[setting.theirs] = setting.there(0.0 if isinstance(value, Mapping) and setting.is_number else value)
        return config

    def table_sizes(self, arguments: Mapping[str, Any], vocab_size: int, *, base: str, pad: int | None) -> TableSizes:
        """The sizes that the letters of the tables stand for; I only if the network has a feed-forward."""
        letters = {
            "V": vocab_size,
            "D": arguments["width"],
            "E": arguments.get("embedding.width") or arguments["width"],
            "P": arguments.get("positions.max_length") or 0,
            "S": max(1, arguments.get("segments") or 0),
        }
        if "feed_forward.inner" in arguments:
            letters["I"] = arguments["feed_forward.inner"]
        letters.update(self.sizes(arguments))
        return TableSizes(letters=letters, counts=self.counts(arguments), base=base, pad=pad or 0)

    def objections(self, arguments: Mapping[str, Any], order: str, pad: int | None) -> list[str]:
        """The reasons why this architecture cannot express this network; empty if it can."""
        wrong = [
            f"{name} is {arguments.get(name)!r}, transformers' {self.title} has {value!r}"
            for name, value in self._demanded(arguments).items()
            if arguments.get(name) != value
        ]
        if order not in self.orders:
            wrong.append(f"order is {order!r}, transformers' {self.title} has {' or '.join(map(repr, self.orders))}")
        if self.project is None and self.setting("embedding.width") is None and _narrower(arguments):
            wrong.append(f"transformers' {self.title} has embeddings as wide as the layers")
        if arguments.get("embedding") not in (None, *self.embeddings):
            expected = " or ".join(f"`{kind}`" for kind in self.embeddings)
            wrong.append(f"tokens are read by `{arguments['embedding']}`, transformers' {self.title} has {expected}")
        if arguments.get("segments") and self.segments is None and self.setting("segments") is None:
            wrong.append(f"transformers' {self.title} has no segments")
        if self.setting("head_width") is None and _headed(arguments):
            wrong.append(f"transformers' {self.title} has no head_width of its own")
        if self.paddings and pad not in self.paddings:
            ids = f"{self.paddings[0]}" if len(self.paddings) == 1 else f"{self.paddings[0]} to {self.paddings[-1]}"
            wrong.append(f"transformers' {self.title} counts positions from the id of [PAD], which must be {ids} and is {pad}")
        if self.fixed_shifted and arguments.get("positions.first") != (0 if pad is None else pad) + 1:
            first = arguments.get("positions.first")
            wrong.append(f"positions.first is {first!r}, transformers' {self.title} counts from one more than the id of [PAD]")
        return wrong + self.further_objections(arguments)

    def pad_of(self, arguments: Mapping[str, Any]) -> int:
        """The id of [PAD] that such a network has here, where no tokenizer says it."""
        return max(0, arguments.get("positions.first", 1) - 1) if self.fixed_shifted else 0

    def _demanded(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The required value of every argument that the folder cannot express; how weights began does not change a network."""
        expressed = {setting.ours for setting in self.settings} | set(self.assumed) | set(self.fixed)
        expressed |= set(self.from_config(self.keys(arguments, self.orders[0])))
        defaults, inside_parts = flat({}, self.part), default_arguments(arguments, self.part)
        # A part must be the builder's default, and the values inside a part the defaults of that part.
        usual = {name: value if "." in name else defaults.get(name, value) for name, value in inside_parts.items()}
        demands = {
            name: usual.get(name) for name in arguments
            if name not in expressed | _CHECKED_APART and not name.startswith("initial.") and (name in defaults or "." in name)
        }
        if "embedding.project" in demands:
            demands["embedding.project"] = _narrower(arguments)
        return {**demands, **self.fixed}


def _narrower(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("embedding.width", arguments["width"]) != arguments["width"])


def _headed(arguments: Mapping[str, Any]) -> bool:
    """Whether there are heads, with a width of their own."""
    return (arguments.get("head_width") or 0) * arguments.get("heads", 0) not in (0, arguments["width"])


#: Every architecture by its `model_type`, in the order of their files' imports.
ARCHITECTURES: dict[str, Architecture] = {}


def add(architecture: Architecture) -> Architecture:
    """Make an architecture known to import and export."""
    ARCHITECTURES[architecture.name] = architecture
    return architecture
