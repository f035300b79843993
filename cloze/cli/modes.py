"""The options of a verb are the fields of a dataclass; a verb that does several things has one for each, a mode.

`with_options` puts the fields of one dataclass into the signature of a command, `takes_options_of` those of all modes. `mode_of`
finds the mode that the options ask for and refuses those of other modes, and `HelpByMode` groups them in `--help`.

    @with_options(ScoreOptions)
    def score(options: ScoreOptions, as_json: bool = False) -> None: ...

becomes, for typer, a function with the fields of `ScoreOptions` as parameters:

    def score(checkpoint: Path, texts: list[str], …, as_json: bool = False) -> None: ...
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Concatenate, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from cloze.cli.early import EarlyCommand
from cloze.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Mode(ABC):
    """One of the things that a verb does. The fields are its options, annotated for typer; modes may share an option.

    Attributes:
        purpose: What it is for, in messages and as the title of its options in help.
        how: The options that ask for it; empty for the mode that needs none, which is the last of a verb.
    """

    purpose: ClassVar[str]
    how: ClassVar[str] = ""

    @classmethod
    def asked(cls, given: Mapping[str, Any]) -> bool:
        """Whether the arguments and options of a command ask for this mode."""
        return True


M = TypeVar("M", bound=Mode)
T = TypeVar("T")
_WORDS = "cloze.words"  # where a command keeps its words in the context
_SCREEN = 36  # options of all modes that are listed together
Command = Callable[..., None]


def usual_first(modes: Sequence[type[M]]) -> list[type[M]]:
    """The mode that no option asks for, and then the others, as help lists them."""
    return [modes[-1], *modes[:-1]]


def takes_options_of(*modes: type[Mode]) -> Callable[[Command], Command]:
    """Replace `**options` in the signature of a command by the options of its modes; an option that modes share comes once."""
    options = {name: option for mode in usual_first(modes) for name, option in _options(mode).items()}

    def changed(command: Command) -> Command:
        parameters = _parameters(command)
        first = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
        rest = [parameter for parameter in parameters if parameter not in first]
        _sign(command, [*first, *rest[:1], *options.values(), *rest[1:]])
        vars(command)["help_class"] = type("Help", (HelpByMode,), {"modes": modes})
        return command

    return changed


def with_options(
    kind: type[T], help_before: Mapping[str, str] | None = None
) -> Callable[[Callable[Concatenate[T, ...], None]], Command]:
    """Replace the first parameter of a command, a dataclass, by the options that its fields are.

    A further parameter with the name of a field takes its place, and the value goes to the command itself. Help lists the other
    parameters last; `help_before` maps one to the field before which help lists it.
    """

    def changed(command: Callable[Concatenate[T, ...], None]) -> Command:
        command_parameters = {parameter.name: parameter for parameter in _parameters(command)[1:]}
        options = _options(kind)
        followers = (help_before or {}).items()
        places = {field: [name for name, follower in followers if follower == field] for field in _annotations(kind)}
        parameters = options | command_parameters
        order = [name for field, names in places.items() for name in (*names, field) if name in parameters]

        @wraps(command)
        def call(**values: Any) -> None:
            chosen = {name: values[name] for name in options.keys() - command_parameters if values[name] is not None}
            command(kind(**chosen), **{name: values[name] for name in command_parameters})

        _sign(call, list(({name: parameters[name] for name in order} | command_parameters).values()))
        return call

    return changed


def _parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters of a command with their annotations, without `**options`."""
    hints = get_type_hints(command, include_extras=True)
    return [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def _options(kind: type) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass that are options, as parameters of a command."""
    return {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=_as_typed(hint),
            default=inspect.Parameter.empty if field.default is MISSING else None if field.default == () else field.default,
        )
        for field, hint in zip(fields(kind), _annotations(kind).values(), strict=True) if hasattr(hint, "__metadata__")
    }


def _as_typed(hint: Any) -> Any:
    """The annotation of a field as typer reads it: of several types the first, of a sequence a list."""
    kinds = get_args(hint.__origin__) if get_origin(hint.__origin__) in (Union, UnionType) else (hint.__origin__,)
    first: Any = kinds[0]
    if get_origin(first) is Sequence:
        entry = get_args(first)[0]
        first = list[get_args(entry)[0] if get_origin(entry) is UnionType else entry]  # type: ignore[misc]
    elif get_origin(first) is Literal:
        first = str
    return Annotated[first | None if NoneType in kinds else first, *hint.__metadata__]


def _sign(command: Command, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a command the parameters that typer is to read."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def class_of(command: Command) -> type[EarlyCommand]:
    """The class of a verb, which prints its help."""
    verb: type[EarlyCommand] = vars(command).get("help_class", EarlyCommand)
    return verb


def mode_of(modes: Sequence[type[M]], context: typer.Context, options: Mapping[str, Any]) -> M:
    """The first mode that the command asks for, with its options. Raises a `UserError` for an option of other modes
    alone."""
    chosen = next(mode for mode in modes if mode.asked(context.params))
    names = {field.name for field in fields(chosen)}
    for name in options:
        source = context.get_parameter_source(name)
        if name not in names and source is not None and source.name == "COMMANDLINE":
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise UserError(_foreign(option, [mode for mode in modes if name in _annotations(mode)], chosen))
    return chosen(**{name: value for name, value in options.items() if name in names})


def _foreign(option: str, owners: Sequence[type[Mode]], chosen: type[Mode]) -> str:
    """Why an option has no meaning in the mode that was chosen."""
    purposes = [f"{mode.purpose} ({mode.how})" if mode.how else mode.purpose for mode in owners]
    either = " or ".join([", ".join(purposes[:-1]), purposes[-1]] if purposes[1:] else purposes)
    if not chosen.how:
        return f"{option} is for {either}. Ask for that, or omit {option}."
    return f"{option} has no meaning for {chosen.purpose} ({chosen.how}); it is for {either}.\n  Omit one of them."


def _annotations(mode: type) -> dict[str, Any]:
    """The options of a mode with their annotations, in order."""
    hints = get_type_hints(mode, include_extras=True)
    return {field.name: hints[field.name] for field in fields(mode)}


class HelpByMode(EarlyCommand):
    """Help with the options of one mode, and a line for each other mode: `VERB OPTION --help` prints the help of that mode.

    Where all options of a verb fit on a screen, all are listed, those that one mode alone has in a section of their own.
    """

    modes: ClassVar[Sequence[type[Mode]]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words of the command: --help is answered before options are read."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options that modes share, and those of each mode."""
        sections = self._records(ctx, self.modes)
        if sum(map(len, sections.values())) <= _SCREEN:
            _write(formatter, sections)
            return
        current_mode = self._asked(ctx.meta.get(_WORDS, ()))
        _write(formatter, self._records(ctx, [current_mode]))
        if current_mode is self.modes[-1]:
            uses = [(mode.how, _purpose(mode)) for mode in self.modes if mode.how]
            _write(formatter, {f"Other uses; for their options: {ctx.command_path} {uses[0][0]} --help": uses})
        else:
            _write(formatter, {"Other uses": [(f"{ctx.command_path} --help", "lists them.")]})

    def _asked(self, words: Sequence[str]) -> type[Mode]:
        """The mode whose options the words of a command name; else the usual one."""
        names = {name for parameter in self.params if (name := parameter.name) and not set(parameter.opts).isdisjoint(words)}
        for mode in self.modes[:-1]:
            foreign_names = {name for other in self.modes if other is not mode for name in _annotations(other)}
            if names & _annotations(mode).keys() - foreign_names or mode.how and not set(mode.how.split()) - {*words}:
                return mode
        return self.modes[-1]

    def _records(self, ctx: Any, modes: Sequence[type[Mode]]) -> dict[str, list[tuple[str, str]]]:
        """The arguments and options of some modes, by the title of their section."""
        owners = {
            name: [mode for mode in self.modes if name in _annotations(mode)]
            for parameter in self.params if (name := parameter.name)
        }
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        sections |= {_title(mode): [] for mode in usual_first(self.modes) if mode in modes}
        for parameter in self.get_params(ctx):
            users = owners.get(str(parameter.name), [])
            if users and not set(users) & set(modes):
                continue
            title = "Arguments" if parameter.param_type_name == "argument" else _title(users[0]) if len(users) == 1 else "Options"
            if (record := parameter.get_help_record(ctx)) is not None:
                sections[title].append(record)
        return sections


def _write(formatter: Any, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _title(mode: type[Mode]) -> str:
    return f"{_purpose(mode)} ({mode.how})" if mode.how else _purpose(mode)


def _purpose(mode: type[Mode]) -> str:
    return mode.purpose[0].upper() + mode.purpose[1:]
