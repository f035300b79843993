"""A network's arguments, complete; and by their paths (`norm.epsilon`), as the tables of architectures name them.

A part stands in the flat form under its parameter's name, `norm: post`, with its own arguments behind that, `norm.epsilon: 1e-5`.
A section has its fields alone, and None where there is no section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from cloze.errors import RecipeError
from cloze.registry import PartMark, as_data, lookup, mark_of, parameters, section_of

Flat = Mapping[str, Any]

#: What None means for an argument of a network with attention: it follows from others.
DERIVED: Mapping[str, Callable[[Flat], Any]] = MappingProxyType({
    "feed_forward.inner": lambda flat: 4 * flat["width"],
    "embedding.width": lambda flat: flat["width"],
    "dropout.attention": lambda flat: flat["dropout.hidden"],
    "positions.local_base": lambda flat: flat["positions.base"],
    "head_width": lambda flat: flat["width"] // flat["heads"],
    "decoder_layers": lambda flat: flat["layers"],
})


def complete(arguments: Mapping[str, Any], part: str = "transformer") -> dict[str, Any]:
    """A network's arguments with every default and every derived value filled in, parts and sections as data.

    Raises `ValueError`, in plain words, for parts that are none.
    """
    return nested(derived(flat(arguments, part)), part)


def flat(arguments: Mapping[str, Any], part: str = "transformer") -> dict[str, Any]:
    """A network's arguments, and the defaults of those left out, by their paths."""
    return dict(_flat(_builder(part), arguments, ""))


def derived(arguments: Flat) -> dict[str, Any]:
    """Flat arguments with every value filled in that follows from others."""
    full = dict(arguments)
    for name, derive in DERIVED.items() if "heads" in full else ():
        if name in full and full[name] is None:
            full[name] = derive(full)
    if "embedding.project" in full:
        full["embedding.project"] = bool(full["embedding.project"]) or full["embedding.width"] != full["width"]
    return full


def usual(arguments: Flat, part: str) -> dict[str, Any]:
    """The flat arguments of a network with the same parts, sizes and sections, and all else at its default."""
    chosen = {name: value for name, value in arguments.items() if "." not in name}
    sizes: Flat = {name: chosen[name] for name in ("width", "heads", "layers") if name in chosen}
    return derived({**flat(nested(chosen, part), part), **sizes})


def nested(arguments: Flat, part: str = "transformer") -> dict[str, Any]:
    """Flat arguments as `cloze.assembly.given.build` takes them; what a part does not have is left out."""
    return _nested(_builder(part), arguments, "")


def _builder(part: str) -> Callable[..., Any]:
    import cloze.networks  # noqa: F401  the import registers the parts

    return lookup("network", part)


def _flat(builder: Callable[..., Any], arguments: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    slots = parameters(builder)
    if extra := [name for name in arguments if name not in slots]:
        yield from ((f"{prefix}{name}", arguments[name]) for name in extra)  # reported where the network is built
    for name, slot in slots.items():
        mark, section, path = mark_of(slot), section_of(slot.annotation), f"{prefix}{name}"
        if mark is not None and not isinstance(mark, PartMark):
            continue
        kind = mark.kind if isinstance(mark, PartMark) else None
        if name not in arguments and slot.default is slot.empty:
            continue
        value = arguments.get(name, as_data(slot.default, kind))
        if kind is not None and value is not None:
            chosen, inner = _part(value, path)
            yield path, chosen
            yield from _flat(_known(kind, chosen, path), inner, f"{path}.")
        elif section is not None and value is not None:
            inner = value if isinstance(value, Mapping) else {fields(section)[0].name: value}
            yield from _flat(section, inner, f"{path}.")
        else:
            yield path, value


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
    made: dict[str, Any] = {}
    for name, slot in parameters(builder).items():
        mark, section, path = mark_of(slot), section_of(slot.annotation), f"{prefix}{name}"
        if isinstance(mark, PartMark):
            inside = any(key.startswith(f"{path}.") for key in arguments)
            if path not in arguments and not inside:
                continue
            chosen = arguments[path] if path in arguments else next(iter(as_data(slot.default, mark.kind)))
            named = isinstance(chosen, str)
            made[name] = {chosen: _nested(_known(mark.kind, chosen, path), arguments, f"{path}.")} if named else chosen
        elif mark is None and section is not None and any(key.startswith(f"{path}.") for key in arguments):
            inner = _nested(section, arguments, f"{path}.")
            made[name] = None if slot.default is None and all(value is None for value in inner.values()) else inner
        elif mark is None and path in arguments:
            made[name] = arguments[path]
    return made
