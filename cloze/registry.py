"""Kind and name → builder, the class or function that makes a part. Its signature is the schema of its arguments in a recipe.

    @register("edit", "mask")
    class Mask: ...

A builder's keyword parameters are what a recipe may write. Three annotations change that:

- `Given[T]`: filled by cloze (see `recipe/builders.py`), illegal in a recipe;
- `Live[float]`: a number or a schedule part, as is every number of a `Schedulable` kind. Parts of other kinds receive a number
  or a function of the share of the budget spent (`Clock.share`);
- `Part["kind"]`: a nested part of that kind. `Annotated[Learned | Rotary, PartMark("positions")]` takes these parts of the kind
  and no others.

A parameter annotated with a dataclass is a section: a mapping of that class's fields, which has no name of its own. With
`dict[str, …]` of a dataclass, it holds several sections by name.

This module stores builders and is the only one that reads their annotations:

    lookup(kind, name)     the builder; `recipe.parts.builder_of` imports the package of its kind first and checks its base class
    made_by(builder)       the class of what it makes; of a part by kind and name, `recipe.parts.class_of`
    parameters(builder)    its parameters as `inspect` has them, with those that `**name` passes on
    signature(builder)     the same, each described as an `Argument`
    arguments_of(builder)  of these, what a recipe may write; `recipe.schema.arguments_of_part` adds keys such as an edit's `in`

`recipe/schema.py` checks a recipe against the arguments, `recipe/builders.py` calls the builders.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from cloze.errors import RecipeError, UnknownPart

#: How the modules of users' files begin (`--with`).
USER_MODULE = "cloze_user_"

T = TypeVar("T")
Builder = TypeVar("Builder", bound=Callable[..., Any])


class GivenMark:
    """Marks a parameter that cloze fills in."""


class InsteadMark:
    """Marks a value in place of which a recipe may write a part of this kind, as a mapping."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class LiveMark(InsteadMark):
    """Marks a number that may follow a schedule."""

    def __init__(self) -> None:
        super().__init__("schedule")


class Schedulable:
    """The base of a kind whose parts, if they are dataclasses, may follow a schedule with each of their numbers.

    `described`: arguments that cannot follow a schedule, because `task.json` records them; mapped to their names there.
    """

    described: ClassVar[Mapping[str, str]] = MappingProxyType({})


class PartMark:
    """Marks a parameter that is a nested part of `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


Given = Annotated[T, GivenMark()]
"""`Given[int]` annotates a parameter that cloze fills in; a recipe cannot set it."""

Live = Annotated[T, LiveMark()]
"""`Live[float]` annotates a number that a recipe may also give as a schedule."""


class Part:
    """`Part["rate"]` annotates a parameter that is itself a part of that kind."""

    def __class_getitem__(cls, kind: str) -> Any:
        return Annotated[Any, PartMark(kind)]


_builders: dict[str, dict[str, Callable[..., Any]]] = {}


def register(kind: str, name: str) -> Callable[[Builder], Builder]:
    """A decorator that makes a class or function the part `name` of a kind: an edit, a network, an objective, …

    Its keyword parameters become the keys that a recipe may write.

    Raises:
        RecipeError: Other code is registered under this name.
    """

    def bind(builder: Builder) -> Builder:
        builders = _builders.setdefault(kind, {})
        old = builders.get(name)
        if old is not None and (old.__module__, old.__qualname__) != (builder.__module__, builder.__qualname__):
            raise RecipeError(
                f"{kind} {name!r} is already registered by {old.__module__}.{old.__qualname__}; "
                f"{builder.__module__}.{builder.__qualname__} must take another name."
            )
        builders[name] = builder
        return builder

    return bind


def made_by(builder: Callable[..., Any]) -> type:
    """The class of what a builder makes: the builder itself if it is a class, else its return annotation.

    The attributes of the class can then be read before a part is built. A function without the annotation is a `RecipeError`.
    """
    cls = builder if isinstance(builder, type) else _signature(builder).return_annotation
    if not isinstance(cls, type) or cls is inspect.Signature.empty:
        raise RecipeError(f"{builder.__module__}.{builder.__qualname__} does not say what it returns. Write -> and the class.")
    return cls


def names(kind: str) -> list[str]:
    """The registered names of one kind, sorted."""
    return sorted(_builders.get(kind, {}))


def kinds() -> list[str]:
    """All kinds that have at least one builder."""
    return sorted(_builders)


def made_in(module: str) -> bool:
    """Whether some part was registered by a module."""
    return any(builder.__module__ == module for builders in _builders.values() for builder in builders.values())


def forget(module: str) -> dict[tuple[str, str], Callable[..., Any]]:
    """Remove the parts that a module registered, and return them by kind and name."""
    parts = {
        (kind, name): builder for kind, builders in _builders.items() for name, builder in builders.items()
        if builder.__module__ == module
    }
    for kind, name in parts:
        del _builders[kind][name]
    return parts


def lookup(kind: str, name: str) -> Callable[..., Any]:
    """The builder registered under `name`; an unknown name is a `RecipeError` naming the nearest."""
    try:
        return _builders[kind][name]
    except KeyError:
        raise UnknownPart(kind, name, names(kind)) from None


def recorded_parts(tree: Any, kind: str, cls: type) -> Iterator[Mapping[str, Any]]:
    """The arguments of the parts of a kind, in a recipe as plain data, whose class is `cls` or inherits from it."""
    ours = {name for name, builder in _builders.get(kind, {}).items() if issubclass(made_by(builder), cls)}
    inner = tree.items() if isinstance(tree, Mapping) else [("", item) for item in tree] if isinstance(tree, list) else ()
    for name, value in inner:
        if name in ours and isinstance(value, Mapping):
            yield value
        yield from recorded_parts(value, kind, cls)


def parameters(builder: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The builder's parameters by name, annotations resolved, without `self`.

    A constructor that takes `**name` passes it on, so it also has the parameters of the constructor above it.
    """
    by_name = {name: p for name, p in _signature(builder).parameters.items() if name != "self"}
    passed = next((name for name, p in by_name.items() if p.kind is p.VAR_KEYWORD), None)
    if passed is None or not isinstance(builder, type):
        return by_name
    above = iter([cls for cls in builder.__mro__ if "__init__" in vars(cls)][1:])
    del by_name[passed]
    return by_name | {name: p for name, p in parameters(next(above)).items() if name not in by_name}


@functools.cache
def _signature(builder: Callable[..., Any]) -> inspect.Signature:
    """Evaluated once: reading a recipe asks for the same hundred signatures hundreds of times."""
    return inspect.signature(builder, eval_str=True)


@dataclasses.dataclass(frozen=True)
class Argument:
    """One parameter of a builder: its annotation, and its default as a recipe writes it (see `as_data`)."""

    annotation: Any
    default: Any = inspect.Parameter.empty

    @classmethod
    def of_part(cls, kind: str, default: Any = inspect.Parameter.empty) -> Argument:
        """An argument that holds a part of this kind."""
        return cls(Annotated[Any, PartMark(kind)], default)

    @classmethod
    def of_part_list(cls, kind: str, default: Any = inspect.Parameter.empty) -> Argument:
        """An argument that holds a list of parts of this kind."""
        return cls(list[Annotated[Any, PartMark(kind)]], default)

    @classmethod
    def of_named_parts(cls, kind: str, default: Any = inspect.Parameter.empty) -> Argument:
        """An argument that holds parts of this kind by name."""
        return cls(dict[str, Annotated[Any, PartMark(kind)]], default)

    @property
    def required(self) -> bool:
        """Whether the recipe must write it."""
        return self.default is inspect.Parameter.empty

    @functools.cached_property
    def given(self) -> bool:
        """Whether cloze supplies it, so that a recipe may not."""
        return any(isinstance(mark, GivenMark) for mark in marks(self.annotation))

    @functools.cached_property
    def live(self) -> bool:
        """Whether a recipe may write a schedule part instead of the number."""
        return any(isinstance(mark, LiveMark) for mark in marks(self.annotation))

    @functools.cached_property
    def instead_kind(self) -> str | None:
        """The kind of the part that a mapping stands for in place of a plain value: `schedule` for a live number."""
        return next((mark.kind for mark in marks(self.annotation) if isinstance(mark, InsteadMark)), None)

    @functools.cached_property
    def part_kind(self) -> str | None:
        """The kind of part it holds, if it is a `Part[kind]`."""
        return part_kind_of(self.annotation)

    @functools.cached_property
    def list_kind(self) -> str | None:
        """The kind of the parts that it lists, if it is a `list[Part[kind]]`."""
        return part_kind_of(get_args(self.annotation)[0]) if get_origin(self.annotation) is list else None

    @functools.cached_property
    def parts_kind(self) -> str | None:
        """The kind of the parts that it holds by name, if it is a `dict[str, Part[kind]]`."""
        mappings = [option for option in (self.annotation, *get_args(self.annotation)) if get_origin(option) is dict]
        return next((kind for mapping in mappings if (kind := part_kind_of(get_args(mapping)[1]))), None)

    @functools.cached_property
    def section(self) -> type | None:
        """The dataclass of the section that it holds; None for a part and for any other value."""
        mapping = get_origin(self.annotation) is dict
        options = () if self.part_kind or mapping else (self.annotation, *get_args(self.annotation))
        return next((option for option in options if _is_section(option)), None)

    @functools.cached_property
    def sections(self) -> type | None:
        """The dataclass of the sections that it holds by name, if it is a `dict[str, …]` of one."""
        option = get_args(self.annotation)[1] if get_origin(self.annotation) is dict else None
        return option if _is_section(option) else None

    @functools.cached_property
    def fields(self) -> Arguments:
        """The arguments of its section, or of each of its sections."""
        section = self.section or self.sections
        return {} if section is None else arguments_of(section)

    @property
    def choices(self) -> list[str] | None:
        """The names of the parts that it may hold, those of its union; None: all of the kind."""
        if self.part_kind is None or get_args(self.annotation)[0] is Any:
            return None
        classes = tuple(option for option in _options(self.annotation) if isinstance(option, type) and option is not type(None))
        builders = _builders.get(self.part_kind, {}).items()
        return sorted(
            name for name, builder in builders
            if not classes or (isinstance(builder, type) and issubclass(builder, classes))
        )

    def with_defaults(self, value: Any) -> Any:
        """The value of a part or section, as data, with what it leaves out from the default if that is the same part.

        `schema.expand_part` has done so in a recipe already, but not in arguments from elsewhere, such as `cloze/network.json`.

        `positions: relative` of a network whose default is `RelativeDistances(untie=True)` is `{"relative": {"untie": True, …}}`.
        """
        default = self.default if isinstance(self.default, Mapping) else {}
        if self.part_kind is None:
            return {**default, **value} if self.section is not None and isinstance(value, Mapping) else value
        part = {value: {}} if isinstance(value, str) else value
        if not isinstance(part, Mapping):
            return value
        return {name: {**default.get(name, {}), **(inner or {})} for name, inner in part.items()}


Arguments = Mapping[str, Argument]


def _is_section(option: Any) -> bool:
    return isinstance(option, type) and dataclasses.is_dataclass(option)


@functools.cache
def signature(builder: Callable[..., Any]) -> Arguments:
    """Every parameter of a builder, also those that cloze supplies. An annotation that cannot be evaluated is a `RecipeError`."""
    try:
        accepted = parameters(builder)
    except NameError as error:
        name = f"{builder.__module__}.{builder.__qualname__}"
        raise RecipeError(f"the signature of {name} cannot be read: {error}.") from None
    return {
        name: Argument(_marked(builder, name, p.annotation), as_data(p.default, part_kind_of(p.annotation)))
        for name, p in accepted.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def arguments_of(builder: Callable[..., Any]) -> dict[str, Argument]:
    """What a recipe may write for a builder: its parameters that are neither `Given` nor private."""
    return {name: p for name, p in signature(builder).items() if not (p.given or name.startswith("_"))}


def _marked(builder: Callable[..., Any], name: str, annotation: Any) -> Any:
    """The annotation of a parameter, with the mark of a schedule if it is a number of a `Schedulable` kind."""
    if not (isinstance(builder, type) and issubclass(builder, Schedulable) and dataclasses.is_dataclass(builder)):
        return annotation
    fixed = name in builder.described or any(isinstance(mark, (LiveMark, GivenMark)) for mark in marks(annotation))
    return annotation if fixed or not is_number(annotation) else Annotated[annotation, LiveMark()]


def mark_of(parameter: inspect.Parameter) -> GivenMark | LiveMark | PartMark | None:
    """The mark of a parameter's annotation, if it carries one."""
    return next((mark for mark in marks(parameter.annotation) if isinstance(mark, (GivenMark, LiveMark, PartMark))), None)


def is_number(annotation: Any) -> bool:
    """Whether an annotation takes numbers, or numbers and nothing: a float, or a whole number with bounds.

    >>> is_number(float | None), is_number(int), is_number(str)
    (True, False, False)
    """
    base = _base(annotation)
    return base is float or (base is int and _bounded(annotation))


def is_whole(annotation: Any) -> bool:
    """Whether an annotation takes whole numbers only."""
    return _base(annotation) is int


def takes_numbers(annotation: Any) -> bool:
    """Whether a number is among the values that an annotation takes, next to those of other types.

    >>> takes_numbers(float | list[str]), takes_numbers(str | list[float])
    (True, False)
    """
    if get_origin(annotation) is Annotated:
        return takes_numbers(get_args(annotation)[0])
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any(_base(option) in (int, float) for option in options)


def _base(annotation: Any) -> Any:
    """The type of an annotation without marks, bounds and `None`; itself if it is of several types."""
    if get_origin(annotation) is Annotated:
        return _base(get_args(annotation)[0])
    options = [option for option in get_args(annotation) if option is not type(None)]
    return _base(options[0]) if get_origin(annotation) in (Union, UnionType) and len(options) == 1 else annotation


def _bounded(annotation: Any) -> bool:
    return any(get_origin(option) is Annotated for option in (annotation, *get_args(annotation)))


def marks(annotation: Any) -> tuple[Any, ...]:
    """The metadata of an `Annotated` type: the marks of this module, and bounds."""
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def part_kind_of(annotation: Any) -> str | None:
    """The kind of part that an annotation marks; None for any other."""
    return next((mark.kind for mark in marks(annotation) if isinstance(mark, PartMark)), None)


def _options(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, including those of nested aliases."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    inner = get_args(annotation)
    return (
        tuple(option for member in inner for option in _options(member)) if inner
        else (annotation,) if annotation is not Any else ()
    )


def as_data(value: Any, kind: str | None = None) -> Any:
    """A default as a recipe writes it: a part of `kind` as `{name: {argument: value}}`, a section as a mapping, else itself."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    accepted = signature(type(value))
    fields = {name: as_data(vars(value)[name], p.part_kind) for name, p in accepted.items() if not p.given}
    if kind is None:
        return fields
    return {next(name for name, builder in _builders[kind].items() if builder is type(value)): fields}
