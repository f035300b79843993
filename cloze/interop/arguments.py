"""A network's arguments in two forms: nested, as in recipes and builders, and flat, as in the tables of architectures.

The flat form of `norm: {post: {epsilon: 1e-5}}` is `norm: post` and `norm.epsilon: 1e-5`. A section has entries for its fields
only, `attention.biases`, or the single entry None if it is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cloze.errors import RecipeError
from cloze.registry import lookup, signature

Flat = Mapping[str, Any]

#: How an argument that is None follows from others, in networks with attention.
DERIVED: Mapping[str, Callable[[Flat], Any]] = MappingProxyType({
    "feed_forward.inner": lambda flat: 4 * flat["width"],
    "embedding.width": lambda flat: flat["width"],
    "dropout.attention": lambda flat: flat["dropout.hidden"],
    "positions.local_base": lambda flat: flat["positions.base"],
    "head_width": lambda flat: flat["width"] // flat["heads"],
    "decoder_layers": lambda flat: flat["layers"],
})

#: Values that say no more than None does, in networks with attention.
REDUNDANT: Mapping[str, Callable[[Flat], Any]] = MappingProxyType({
    "attention.head_width": lambda flat: flat["width"] / flat["heads"],
    "attention.key_value_heads": lambda flat: flat["heads"],
    "attention.output_bias": lambda flat: flat["attention.biases"],
})


def complete(arguments: Mapping[str, Any], part: str = "transformer") -> dict[str, Any]:
    """A network's arguments with every default and every derived value filled in, parts and sections as data.

    Raises `ValueError`, with a message for users, for a part that does not exist.
    """
    return nested(derived(flat(arguments, part)), part)


def flat(arguments: Mapping[str, Any], part: str = "transformer") -> dict[str, Any]:
    """A network's arguments, and the defaults of those left out, by their paths."""
    return dict(_flat(_builder(part), arguments, ""))


def derived(arguments: Flat) -> dict[str, Any]:
    """Flat arguments, with the values that follow from others filled in, and without those of `REDUNDANT`."""
    full = dict(arguments)
    for name, derive in DERIVED.items() if "heads" in full else ():
        if name in full and full[name] is None:
            full[name] = derive(full)
    for name, plain in REDUNDANT.items():
        if full.get(name) is not None and full[name] == plain(full):
            full[name] = None
    if "embedding.project" in full:
        full["embedding.project"] = bool(full["embedding.project"]) or full["embedding.width"] != full["width"]
    return full


def default_arguments(arguments: Flat, part: str) -> dict[str, Any]:
    """The flat arguments of a network with the same parts, sizes and sections, and everything else at its default."""
    chosen = {name: value for name, value in arguments.items() if "." not in name}
    sizes: Flat = {name: chosen[name] for name in ("width", "heads", "layers") if name in chosen}
    return derived({**flat(nested(chosen, part), part), **sizes})


def nested(arguments: Flat, part: str = "transformer") -> dict[str, Any]:
    """Flat arguments in the nested form that `cloze.recipe.builders.build` takes; entries that belong to no part are left out."""
    return _nested(_builder(part), arguments, "")


def _builder(part: str) -> Callable[..., Any]:
    import cloze.networks  # noqa: F401  the import registers the parts

    return lookup("network", part)


def _flat(builder: Callable[..., Any], arguments: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    accepted = signature(builder)
    if extra := [name for name in arguments if name not in accepted]:
        yield from ((f"{prefix}{name}", arguments[name]) for name in extra)  # reported where the network is built
    for name, argument in accepted.items():
        path = f"{prefix}{name}"
        if argument.given or argument.live or (argument.required and name not in arguments):
            continue
        value = argument.with_defaults(arguments[name]) if name in arguments else argument.default
        if argument.part_kind is not None and value is not None:
            chosen, inner = _part(value, path)
            yield path, chosen
            yield from _flat(_known(argument.part_kind, chosen, path), inner, f"{path}.")
        elif argument.sections is not None:
            for key, inner in value.items():
                yield from _flat(argument.sections, inner, f"{path}.{key}.")
        elif argument.section is not None and value is not None:
            inner = value if isinstance(value, Mapping) else {next(iter(argument.fields)): value}
            yield from _flat(argument.section, inner, f"{path}.")
        else:
            yield path, list(value) if isinstance(value, tuple) else value  # as in JSON


def _part(value: Any, path: str) -> tuple[str, Mapping[str, Any]]:
    """The name of a part and its arguments."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"{path} is {value!r}, expected one part.")
    ((name, inner),) = value.items()
    return str(name), inner or {}


def _known(kind: str, name: str, path: str) -> Callable[..., Any]:
    try:
        return lookup(kind, name)
    except RecipeError as error:
        raise ValueError(f"{path}: {error}") from None


def _nested(builder: Callable[..., Any], arguments: Flat, prefix: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, argument in signature(builder).items():
        path = f"{prefix}{name}"
        if argument.part_kind is not None:
            inside = any(key.startswith(f"{path}.") for key in arguments)
            if path not in arguments and not inside:
                continue
            chosen = arguments[path] if path in arguments else next(iter(argument.default))
            is_name = isinstance(chosen, str)
            tree[name] = {chosen: _nested(_known(argument.part_kind, chosen, path), arguments, f"{path}.")} if is_name else chosen
        elif argument.given or argument.live:
            continue
        elif argument.sections is not None:
            below = (key.removeprefix(f"{path}.") for key in arguments if key.startswith(f"{path}."))
            names = dict.fromkeys(key.partition(".")[0] for key in below)
            tree[name] = {key: _nested(argument.sections, arguments, f"{path}.{key}.") for key in names}
        elif argument.section is not None and any(key.startswith(f"{path}.") for key in arguments):
            inner = _nested(argument.section, arguments, f"{path}.")
            tree[name] = None if argument.default is None and all(value is None for value in inner.values()) else inner
        elif path in arguments:
            tree[name] = arguments[path]
    return tree
