"""What a network must have, checked on the one that was built, so that a mistake in a user's class is reported before training.

check_model.py calls `network_faults`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter, methodcaller
from typing import Any

from cloze import fields
from cloze.errors import hidden_error
from cloze.networks.network import Network, StateKind

#: Members that every network sets, in the class or in `__init__`: what each must be, and whether a value is that.
_MEMBERS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "takes": (
        'a set of the names of fields that `forward` can use, such as frozenset({"tokens", "block"})',
        lambda value: isinstance(value, (set, frozenset)) and all(isinstance(name, str) for name in value),
    ),
    "gives": (
        'a mapping from the name of each state to its StateKind, such as reading_kinds("order")',
        lambda value: isinstance(value, Mapping) and all(isinstance(kind, StateKind) for kind in value.values()),
    ),
    "width": ("the width of the state `hidden`, a whole number", lambda value: isinstance(value, int)),
}
#: Members that some networks define otherwise: they are checked by what is computed from them.
_COMPUTED: Mapping[str, str] = {
    "embeddings": "the table of tokens, or a module that has the table as `tokens`",
    "layers": "the layers in order, such as a torch.nn.ModuleList",
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "vector_tables": attrgetter("vector_tables"), "depth_groups": methodcaller("depth_groups"),
    "layer_state_count": attrgetter("layer_state_count"),
}  # fmt: skip


def network_faults(network: Network) -> Iterator[str]:
    """What is wrong with the members of a network, one sentence each."""
    kind = type(network).__name__
    lacking = [name for name in _MEMBERS if not hasattr(network, name)]
    for name in lacking:
        yield f"{kind} has no `{name}`: {_MEMBERS[name][0]}."
    wrong = [name for name, (_, fits) in _MEMBERS.items() if name not in lacking and not fits(getattr(network, name))]
    for name in wrong:
        yield f"`{name}` of {kind} is {getattr(network, name)!r}; expected {_MEMBERS[name][0]}."
    if lacking or wrong:
        return
    read = [name for name in _READ if name != "layer_state_count" or "layers" in network.gives]
    yield from dict.fromkeys(fault for name in read if (fault := _computed_fault(network, name)) is not None)
    yield from _forward_faults(network)


def _computed_fault(network: Network, name: str) -> str | None:
    """Why a member cannot be computed: the network lacks what it is computed from, or its own code fails."""
    try:
        _READ[name](network)
    except AttributeError as error:
        cause, kind = hidden_error(error), type(network).__name__
        if cause.obj is network and cause.name is not None and cause.name in _COMPUTED:
            return f"{kind} has no `{cause.name}`: {_COMPUTED[cause.name]}."
        return f"`{name}` of {kind} cannot be computed: AttributeError: {cause}."
    return None


def _forward_faults(network: Network) -> Iterator[str]:
    """Where the parameters of `forward` do not fit `takes` and `needs`."""
    for name in sorted(network.needs - network.takes):
        yield f'`needs` has "{name}", which `takes` lacks.'
    parameters = inspect.signature(network.forward).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    passed = {name: _argument(name) for name in network.takes} | {"want": "want"}
    for name, argument in sorted(passed.items()):
        if argument not in parameters:
            yield f'`forward` has no parameter `{argument}`, and is called with it (`takes` has "{name}").'
    always = {_argument(name) for name in network.needs} | {"want"} | ({"order"} & network.takes)
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty or name in always:
            continue
        if name == "order":
            yield '`forward` requires `order`, which `takes` lacks: add "order" there.'
        else:
            yield f"`forward` requires `{name}`, and is also called without it: give it a default, {name}=None."


def _argument(name: str) -> str:
    """The parameter of `forward` that gets a field: its name without the set, or the view of a further sequence."""
    view, field, _ = fields.split(name)
    return "order" if field == "visible" else field if view == "main" else view
