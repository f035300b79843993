"""Options of commands: those that several take, each with one meaning and one line of help, and fields of dataclasses.

`with_options` puts the fields of a dataclass into the signature of a command:

    @with_options(ScoreOptions)
    def score(options: ScoreOptions, as_json: bool = False) -> None: ...

becomes, for typer, a function with the fields of `ScoreOptions` as parameters:

    def score(checkpoint: Path, texts: list[str], …, as_json: bool = False) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Concatenate, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from cloze.errors import TaskError
from cloze.runs.options import ENCODING, ITEMS, WITH_FILES

T = TypeVar("T")
Command = Callable[..., None]

Encoding = Annotated[str | None, ENCODING]
WithFiles = Annotated[list[Path] | None, WITH_FILES]
Items = Annotated[list[str] | None, ITEMS]
Annotate = Annotated[list[str] | None, typer.Option(help="Annotators, such as entity=mentions:FILE.")]
Batch = Annotated[int, typer.Option(min=1, help="Texts per batch.")]
Length = Annotated[int | None, typer.Option(min=2, help="Tokens to read; default: as trained.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16 (three digits) or auto.")]
Columns = Annotated[str | None, typer.Option(help="For files without a header: column names, a,b,c.")]
FileFormat = Annotated[str | None, typer.Option("--format", help="tsv, csv, jsonl, parquet; default: by file name.")]
Quoting = Annotated[str, typer.Option(help="Quotes: auto, none, standard.")]
Seed = Annotated[int | None, typer.Option(help="Seed of random choices; default: 0.")]
Task = Annotated[str | None, typer.Option(help="Which of several; or retrieval, link_prediction, ….")]
Candidates = Annotated[str | None, typer.Option(help="Wrong answers to rank per question: a number, or all.")]
Unknown = Annotated[str, typer.Option(help="What lacks a vector: skip, or zero.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def count_of(candidates: str) -> int | None:
    """How many wrong answers `--candidates` asks for; None: all."""
    if candidates == "all":
        return None
    if not candidates.isascii() or not candidates.isdigit() or int(candidates) < 1:
        raise TaskError(f"--candidates {candidates}: expected all, or the number of wrong answers to draw per question: 100.")
    return int(candidates)


# ---- the fields of a dataclass as options ----------------------------------------------------------------------------


def with_options(
    kind: type[T], help_before: Mapping[str, str] | None = None
) -> Callable[[Callable[Concatenate[T, ...], None]], Command]:
    """Replace the first parameter of a command, a dataclass, by the options that its fields are.

    If the command has a parameter with the name of a field, it replaces that field's option, and the command receives its value.
    Help lists the other parameters last; `help_before` maps one to the field before which help lists it.
    """

    def with_fields(command: Callable[Concatenate[T, ...], None]) -> Command:
        command_parameters = {parameter.name: parameter for parameter in parameters_of(command)[1:]}
        options = options_of(kind)
        parameters = options | command_parameters

        @wraps(command)
        def call(**values: Any) -> None:
            field_values = {name: values[name] for name in options.keys() - command_parameters if values[name] is not None}
            command(kind(**field_values), **{name: values[name] for name in command_parameters})

        order: list[str] = []
        for field in annotations_of(kind):
            order += [name for name, next_field in (help_before or {}).items() if next_field == field]
            order.append(field)
        set_signature(call, [parameters[name] for name in dict.fromkeys([*order, *parameters]) if name in parameters])
        return call

    return with_fields


def parameters_of(command: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters of a command with their annotations, without `**options`."""
    hints = get_type_hints(command, include_extras=True)
    return [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def options_of(kind: type) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass that are options, as parameters of a command."""
    return {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=_as_typed(hint),
            default=inspect.Parameter.empty if field.default is MISSING else None if field.default == () else field.default,
        )
        for field, hint in zip(fields(kind), annotations_of(kind).values(), strict=True) if hasattr(hint, "__metadata__")
    }


def _as_typed(hint: Any) -> Any:
    """The annotation of a field as typer reads it: of several types the first, of a sequence a list, of a `Literal` text,
    whose values the command checks."""
    kinds = get_args(hint.__origin__) if get_origin(hint.__origin__) in (Union, UnionType) else (hint.__origin__,)
    first: Any = kinds[0]
    if get_origin(first) is Sequence:
        entry = get_args(first)[0]
        first = list[get_args(entry)[0] if get_origin(entry) is UnionType else entry]  # type: ignore[misc]
    elif get_origin(first) is Literal:
        first = str
    return Annotated[first | None if NoneType in kinds else first, *hint.__metadata__]


def set_signature(command: Command, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a command the parameters that typer is to read."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def annotations_of(kind: type) -> dict[str, Any]:
    """The fields of a dataclass with their annotations, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}
