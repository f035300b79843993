"""Checks the arguments of public functions, so that a wrong one is a `UserError`, neither ignored nor a traceback from within."""

from __future__ import annotations

import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import lru_cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from cloze.bounds import LARGEST
from cloze.errors import UserError, propose

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,), Path: (Path,), int: (Integral,), float: (Real,), bool: (bool,), type(None): (type(None),),
}  # fmt: skip
_SHOWN = 100  # characters of a value in a message
_WORDS = {str: "text", Path: "a path", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
_EXAMPLES = {
    "budget": "such as '10m', '2000steps' or '50Mtokens'", "size": "such as 'tiny'", "device": "such as 'auto' or 'cpu'",
    **dict.fromkeys(("finder", "reranker", "draft"), "such as cloze.load('FOLDER')"),
}
#: How a bound of a number is tested, and how it reads.
_BOUNDS: dict[type, tuple[Callable[[Any, Any], bool], str]] = {
    Ge: (operator.ge, "of at least"), Gt: (operator.gt, "above"), Le: (operator.le, "of at most"), Lt: (operator.lt, "below"),
}


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function; an argument that has another type than its annotation says, or is outside of its bounds, is a `UserError`.

    Only annotations of plain values are checked: texts, paths, numbers (with bounds: `cloze.bounds`), truth values, None,
    objects of one class, and sequences of plain values.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        types_of, signature = _plain_types(function), inspect.signature(function)
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            require_known(function.__name__, kwargs, signature.parameters)
        _require(types_of, signature.bind_partial(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return call


def with_checked_methods(cls: type[C]) -> type[C]:
    """A class whose public methods check their arguments, as `check_arguments` says."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, check_arguments(method))
    return cls


def require_types(options: type, values: Mapping[str, Any]) -> None:
    """A `UserError` for a value of another type than a `TypedDict` of options says; names that it lacks are not looked at."""
    _require(_plain_types(options), values)


def _require(types_of: Mapping[str, tuple[Any, ...]], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if name in types_of and not any(_fits(kind, value) for kind in types_of[name]):
            words = " or ".join(dict.fromkeys(_in_words(kind) for kind in types_of[name]))
            example = f" {_EXAMPLES[name]}" if name in _EXAMPLES else ""
            raise UserError(f"{name}: got {_shown(value)}, expected {words}{example}.")


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
    for name, annotation in typing.get_type_hints(function, include_extras=True).items():
        union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        kinds = typing.get_args(annotation) if union else (annotation,)
        if name != "return" and all(_is_plain(kind) for kind in kinds):
            parameter_types[name] = kinds
    return parameter_types


def _is_plain(kind: Any) -> bool:
    if typing.get_origin(kind) is Annotated:
        return _is_plain(typing.get_args(kind)[0])
    return kind in _SCALARS or _is_class(kind) or (
        typing.get_origin(kind) is Sequence and all(_is_plain(inner) and not _is_class(inner) for inner in _alternatives(kind))
    )


def _is_class(kind: Any) -> bool:
    """Whether a kind is a class of cloze, whose objects users make with its functions."""
    return isinstance(kind, type) and kind.__module__.partition(".")[0] == "cloze" and Protocol not in kind.__bases__


def _alternatives(sequence: Any) -> tuple[Any, ...]:
    (inner,) = typing.get_args(sequence)
    return typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else (inner,)


def _fits(kind: Any, value: Any) -> bool:
    if typing.get_origin(kind) is Annotated:
        plain, *bounds = typing.get_args(kind)
        return _fits(plain, value) and all(_within(bound, value) for bound in bounds)
    if _is_class(kind):
        return isinstance(value, kind)
    if kind in _SCALARS:
        return isinstance(value, _SCALARS[kind]) and (kind is bool or not isinstance(value, bool))
    alone = isinstance(value, (str, Mapping)) or not isinstance(value, Collection)
    return not alone and all(any(_fits(alternative, item) for alternative in _alternatives(kind)) for item in value)


def _within(bound: Any, value: Any) -> bool:
    holds, _ = _BOUNDS[type(bound)]
    return holds(value, *astuple(bound))


def _in_words(kind: Any) -> str:
    if typing.get_origin(kind) is Annotated:
        plain, *bounds = typing.get_args(kind)
        limits = [f"{_BOUNDS[type(bound)][1]} {limit}" for bound in bounds for limit in astuple(bound) if limit != LARGEST]
        return f"{_in_words(plain)} {' and '.join(limits)}"
    if _is_class(kind):
        return f"a {kind.__name__}"
    if kind in _WORDS:
        return _WORDS[kind]
    return "a list of " + " or ".join(f"{_WORDS[alternative].removeprefix('a ')}s" for alternative in _alternatives(kind))
