"""Checks the types of the arguments of public functions, so that a wrong one is a `UserError` and no traceback from within."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from cloze.errors import UserError, propose

P = ParamSpec("P")
R = TypeVar("R")

_SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,), Path: (Path,), int: (Integral,), float: (Real,), bool: (bool,), type(None): (type(None),),
}  # fmt: skip
_SHOWN = 100  # characters of a value in a message
_WORDS = {str: "text", Path: "a path", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
_EXAMPLES = {"budget": "such as '10m', '2000steps' or '50Mtokens'", "size": "such as 'tiny'", "device": "such as 'auto' or 'cpu'"}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function; an argument that has another type than its annotation says is a `UserError`.

    Only annotations of plain values are checked: texts, paths, numbers, truth values, None, and sequences of them.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        types_of, signature = _plain_types(function), inspect.signature(function)
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            require_known(function.__name__, kwargs, signature.parameters)
        for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
            if name in types_of and not any(_fits(kind, value) for kind in types_of[name]):
                words = " or ".join(dict.fromkeys(_in_words(kind) for kind in types_of[name]))
                example = f" {_EXAMPLES[name]}" if name in _EXAMPLES else ""
                raise UserError(f"{name}: got {_shown(value)}, expected {words}{example}.")
        return function(*args, **kwargs)

    return call


def require_known(function: str, names: Iterable[str], parameters: Collection[str]) -> None:
    """A `TypeError` for the name of an argument that a function does not have, with a similar one that it has."""
    for name in names:
        if name not in parameters:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'. {propose(name, parameters)}".rstrip())


def _shown(value: Any) -> str:
    """How Python writes a value, cut where that is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@lru_cache(maxsize=64)
def _plain_types(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The alternatives of the annotation of each parameter that takes only plain values."""
    parameter_types = {}
    for name, annotation in typing.get_type_hints(function).items():
        union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        kinds = typing.get_args(annotation) if union else (annotation,)
        if name != "return" and all(_is_plain(kind) for kind in kinds):
            parameter_types[name] = kinds
    return parameter_types


def _is_plain(kind: Any) -> bool:
    return kind in _SCALARS or (typing.get_origin(kind) is Sequence and all(map(_is_plain, _alternatives(kind))))


def _alternatives(sequence: Any) -> tuple[Any, ...]:
    (inner,) = typing.get_args(sequence)
    return typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else (inner,)


def _fits(kind: Any, value: Any) -> bool:
    if kind in _SCALARS:
        return isinstance(value, _SCALARS[kind]) and (kind is bool or not isinstance(value, bool))
    alone = isinstance(value, (str, Mapping)) or not isinstance(value, Collection)
    return not alone and all(any(_fits(alternative, item) for alternative in _alternatives(kind)) for item in value)


def _in_words(kind: Any) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    return "a list of " + " or ".join(f"{_WORDS[alternative].removeprefix('a ')}s" for alternative in _alternatives(kind))
