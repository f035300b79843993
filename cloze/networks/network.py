"""What every network promises: fields in, states out, tables to tie to and depth groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks.hooks import count_hooks
from cloze.networks.cost import Operations, SequenceSize, size_of
from cloze.networks.remembered import RememberedRows

States = Mapping[str, Tensor]
StackKind = Literal["attention", "recurrent"]
Summary = Literal["first", "last", "mean"]


class TokenSequence(NamedTuple):
    """A further sequence that a network reads, such as the decoder's: the fields of one view, (B, T) each.

    `vectors` (B, T, W) are the states of another network that has read it.
    """

    tokens: Tensor
    position_ids: Tensor | None = None
    block: Tensor | None = None
    vectors: Tensor | None = None


class StateKind(NamedTuple):
    """The shape of a state in the legend of `cloze/fields.py`, and which tokens the state of a token may depend on.

    `order`: those that the order allows; `before`: of these, those of a lower number; `left_to_right`, `right_to_left`: itself
    and those on one side, whatever the order is; `itself`; `all_but_itself`; `paragraph`: no token of the row, only which
    paragraph it belongs to; `cell`, `all`: in networks that read no texts.
    """

    shape: str
    sees: str


#: What every network gives besides its states: its parameters by name.
PARAMETERS = "parameters"


def reading_kinds(sees: str) -> dict[str, StateKind]:
    """The kinds of the states that `reading_states` gives."""
    return {"hidden": StateKind("B L D", sees), "layers": StateKind("S B L D", sees), "summary": StateKind("E D", sees)}


def attention_kinds(sees: str, prefix: str = "") -> dict[str, StateKind]:
    """The kinds of the states of attention, by layer and head, that a network of Transformer layers gives."""
    shapes = {"scores": "L", "attention": "L", "queries": "W", "keys": "W", "values": "W", "content": "W"}
    return {prefix + name: StateKind(f"N B H L {last}", sees) for name, last in shapes.items()}


def named_sizes(arguments: str, **rows: tuple[int, ...]) -> Mapping[str, Mapping[str, int]]:
    """The sizes of a network by name, each a row of values for the `arguments`.

    >>> dict(named_sizes("layers width", tiny=(2, 128)))
    {'tiny': {'layers': 2, 'width': 128}}
    """
    names = arguments.split()
    return MappingProxyType({name: dict(zip(names, row, strict=True)) for name, row in rows.items()})


class Network(nn.Module, ABC):
    """A module that turns the fields of a view into the states that are wanted: the base class of every network.

    Every network has `takes`, `gives`, `width`, `embeddings`, `layers` and `forward`; all other members have defaults.
    `cloze/checkpoint/checks/members.py` checks them.
    """

    #: All fields that it can use, not only those that it needs, as in other parts. Those of a further sequence have full names
    #: (`decoder.tokens`) and reach `forward` as one `TokenSequence` under the name of their view.
    takes: frozenset[str]
    #: The fields that it cannot do without.
    needs: frozenset[str] = frozenset({"tokens"})
    #: Its states. One that reads texts gives `layers` (S, B, L, D): the embeddings and every layer, as far as they are as wide as
    #: the top one, which is the last of them.
    gives: Mapping[str, StateKind]
    #: The width of `hidden`.
    width: int
    #: The widths of states of another width.
    widths: Mapping[str, int] = MappingProxyType({})
    #: The table of tokens, or a module that has it as `tokens`; there it is None if words are read by their characters.
    embeddings: Any
    #: The layers in order.
    layers: Sequence[Any]
    #: Hooks that changes such as adapters put around its layers: an empty `nn.ModuleList`, whose `LayerHook`s `forward` calls
    #: after every layer (`hooks.after_layer`). Without it, these changes are refused.
    around: nn.ModuleList
    #: What its layers are, for the laws that fit a recipe to a budget; None: no law was measured.
    stack: ClassVar[StackKind | None] = None
    #: Whether its layers are one stack of Transformer layers (`Layer`) over a text.
    one_stack: ClassVar[bool] = False
    #: What a token sees if the order does not say it, in words, by state; `hidden` stands for states not listed.
    sees: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: The state that is computed only at `positions`, if the caller gives them.
    positions_state: ClassVar[str] = "hidden"
    #: Whether it can continue from the state of the previous step: `forward` then takes `carry` (names → tensors, the lane first,
    #: or None) and, if `carry` is wanted, gives the next one, detached; rows with `restarts` start from zeros.
    carries: bool = False

    #: The most tokens of a row; None: any number.
    max_length: int | None = None
    #: Whether it also reads rows of more than `max_length` tokens.
    unlimited: bool = False
    #: The sizes of its tables of further ids.
    inputs: Mapping[str, int] = MappingProxyType({})
    #: The sets of items that it reads with a text, such as regions of a picture, and the width of their features.
    item_sets: Mapping[str, int] = MappingProxyType({})
    #: How many `characters` spell a word without an id; None: as many as its layer of characters takes, if it has one.
    per_word: int | None = None
    #: Whether it is a table of single words and reads no texts.
    of_words: ClassVar[bool] = False
    #: Whether its rows are the triples of a graph, and no texts.
    of_triples: ClassVar[bool] = False
    #: Whether its rows belong to the documents of one corpus, so that neither another corpus nor a task goes on with them.
    of_documents: ClassVar[bool] = False
    #: The state of a decoder that writes another text than the one that is read; None: it has no decoder.
    writes: str | None = None

    #: The token whose state is the `summary` of a row, or the `mean` of all of them.
    summary_of: ClassVar[Summary] = "first"
    #: Whether `summary_of` means a token of the decoder.
    summarises_decoder: ClassVar[bool] = False
    #: Whether the state of one token is a poor summary, as in an LSTM; texts are then classified by all of their tokens.
    pooled: ClassVar[bool] = False

    #: The arguments of its named sizes.
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = MappingProxyType({})
    #: Whether a fitted network with learned positions begins with heads at offsets (`initial.offsets`).
    fits_offsets: ClassVar[bool] = False
    #: Networks whose checkpoints can initialise this one: they have the same tensors under the same names.
    compatible_parts: ClassVar[frozenset[str]] = frozenset()
    #: Modules that such a checkpoint may lack, each as a whole.
    may_be_missing: tuple[str, ...] = ()
    #: The paths of arguments that name look-up tables, `*` for any name; a checkpoint holds these tables, since the network
    #: always reads them.
    looks_up: ClassVar[tuple[str, ...]] = ()
    #: Arguments that name a table from which its rows begin; a checkpoint, whose rows are trained, forgets them.
    begins_with: ClassVar[tuple[str, ...]] = ()
    #: Linear maps that published checkpoints have and nothing reads, by their names.
    unread: tuple[str, ...] = ()
    #: What it remembers of rows, while somebody asks for the same rows several times; None: nothing.
    remembered: RememberedRows | None = None

    @property
    def token_tables(self) -> Mapping[str, Any]:
        """Embeddings that heads may tie to: by default the table of tokens, unless words are read by their characters."""
        table = self.embeddings if isinstance(self.embeddings, nn.Embedding) else self.embeddings.tokens
        return {} if table is None else {"tokens": table}

    @property
    def vector_tables(self) -> Mapping[str, Any]:
        """All tables of vectors that heads may tie to, by name: `token_tables`, and those of further inputs and of senses."""
        return self.token_tables

    @property
    def compressible(self) -> Sequence[nn.Embedding]:
        """The tables that compression may round or prune: by default the table of tokens, if words are not read by their
        characters."""
        return [table for table in self.token_tables.values() if isinstance(table, nn.Embedding)]

    @property
    def encoder_and_decoder(self) -> Sequence[Any]:
        """The encoder and the decoder, if both are stacks of Transformer layers; otherwise empty."""
        return ()

    @property
    def maps(self) -> Mapping[str, nn.Linear]:
        """Linear maps of numbers that heads may tie to, by the name of what they read; by default there are none."""
        return {}

    def rotate_by(self, positions: Any) -> None:
        """Rotate by other positions, a `choices.Rotary`, from now on; nothing happens where positions are not rotary."""

    def __call__(self, **inputs: Any) -> Any:
        """`forward`, through the `NetworkHook`s that changes have added; the last one is outermost. What it remembers is not
        computed again."""
        call: Callable[..., Any] = super().__call__
        for hook in self.outside:
            call = partial(hook.call, self, call)
        return call(**inputs) if self.remembered is None else self.remembered.call(self, call, **inputs)

    @property
    def outside(self) -> Sequence[Any]:
        """The `NetworkHook`s around the whole network (in files, `outside.*`). The list is created when the first is added, so
        that other networks have the same modules, and state dicts the same names, as without hooks."""
        hooks: Any = self._modules.get("outside")
        return () if hooks is None else hooks

    def add_network_hook(self, hook: nn.Module) -> None:
        """Add a `NetworkHook` around the whole network; it is called before those that are there."""
        if not self.outside:
            self._modules["outside"] = nn.ModuleList()
        self.outside.append(hook)  # type: ignore[attr-defined]

    @abstractmethod
    def forward(self, *args: Any, **fields: Any) -> Mapping[str, Any]:
        """The wanted states of the fields of a view. The order and what is wanted are `order` and `want`."""

    @property
    def layer_state_count(self) -> int:
        """S: how many states `layers` holds, those of another width left out."""
        return 1 + len(self.layers)

    def summarise(self, hidden: Tensor, *, tokens: Tensor, block: Tensor | None, summaries: Tensor | None) -> Tensor:
        """The summaries (E, D) of states (B, L, D): those at the flat positions `summaries`, or one per row, by `summary_of`."""
        if summaries is not None:
            return hidden.flatten(0, 1)[summaries]
        if self.summary_of == "mean":
            real = torch.ones_like(tokens, dtype=torch.bool) if block is None else block > 0
            return (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        return hidden[:, 0] if self.summary_of == "first" else hidden.flatten(0, 1)[last_positions(tokens, block)]

    def depth_groups(self) -> list[nn.Module]:
        """Embeddings first, then the layers in order: the units of sharding, freezing, layer-wise rates and probes."""
        return [self.embeddings, *self.layers]

    def finish(self, x: Tensor) -> Tensor:
        """What a head reads if the last layer gives x (…, D), such as its final norm; by default x itself. The last of `layers`
        is finished, the others are not; `cloze look` finishes them to show what the head predicts from each."""
        return x

    def initial_values(self, checkpoint: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Values of `may_be_missing` modules, by name, that follow from the tensors of a `checkpoint`; by default none."""
        return {}

    @property
    def layer_widths(self) -> Sequence[int]:
        """The widths of the layers' outputs, which adapters in `around` read; empty if the layers are `Layer`s."""
        return ()

    def cache(self) -> Any:
        """An empty cache for reading a text piece by piece; None: the usual one of attention, with an entry per layer.

        A cache of another kind has `length`, `layers` (lists of tensors, the row first, which beam search reorders) and
        `forgets`, whether `forget(count)` takes tokens back.
        """
        return None

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Count the products of a pass, from its input upwards, for the sequence that it reads (`counted.fields` has all that it
        reads). By default every token meets every module, in the order of registration."""
        for name, module in self.named_children():
            if name == "layers":
                self.count_layers(counted, size)
            elif name not in ("around", "outside"):
                counted.add(size, module)

    def count_layers(self, counted: Operations, size: SequenceSize) -> None:
        """Count the products of the layers in turn."""
        for number in range(len(self.layers)):
            self.count_layer(counted, number, size)

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Count the products of a layer and of what changes have put around it."""
        hooks: Any = self._modules.get("around") or ()
        counted.add(size, self.layers[number])
        count_hooks(counted, hooks, number, size)

    def flops(self, fields: Mapping[str, Tensor], *, want: frozenset[str], positions: Tensor | None = None) -> float:
        """Floating-point operations of a pass, forward and backward."""
        counted = Operations(fields, want=want, positions=positions)
        self.count_operations(counted, size_of(fields))
        return counted.total


def state_width(network: Network, read: Mapping[str, str]) -> int:
    """The width of the state that readings are bound to, `hidden` if they are not: the network's, or that in `widths`."""
    return next((network.widths[path] for path in (read.values() or ["hidden"]) if path in network.widths), network.width)


def reading_states(
    want: frozenset[str], hidden: Tensor, layer_states: Sequence[Tensor], summaries: Tensor | None
) -> dict[str, Any]:
    """Of `hidden` (B, L, D), `layers` (S, B, L, D) and `summary` (E, D) those that are wanted.

    `layer_states` are the input of every layer and the output of the last one, which `layers` replaces by `hidden`; states of
    another width are left out of `layers`. `summaries` are the flat positions of the summary tokens, by default the first of
    each row.
    """
    states: dict[str, Any] = {}
    if "hidden" in want:
        states["hidden"] = hidden
    if "summary" in want:
        states["summary"] = hidden[:, 0] if summaries is None else hidden.flatten(0, 1)[summaries]
    if "layers" in want:
        states["layers"] = torch.stack([*(x for x in layer_states[:-1] if x.shape[-1] == hidden.shape[-1]), hidden])
    return states


def last_positions(tokens: Tensor, block: Tensor | None) -> Tensor:
    """The flat position of the last real token of every row (B, L): (B,)."""
    batch, length = tokens.shape
    first = torch.arange(batch, device=tokens.device) * length
    if block is None:
        return first + length - 1
    columns = torch.arange(length, device=tokens.device)
    return first + torch.where(block > 0, columns, 0).amax(1)


def require_order(network: str, order: object, own_order: str) -> None:
    """Refuse, with a `RecipeError`, an order of reading that is not the network's own."""
    if not isinstance(order, str) or order != own_order:
        recipe_order = order if isinstance(order, str) else "that of each row"
        raise RecipeError(
            f"order: {network} reads in the order {own_order} alone, and the recipe has {recipe_order}, "
            "in which all of its networks read.\n"
            f"  Write `order: {own_order}` in the recipe, or start from a checkpoint that was trained in this order."
        )
