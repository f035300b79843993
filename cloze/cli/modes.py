"""A command that does several things has a dataclass of options for each, a mode.

`takes_options_of` puts the fields of all modes into the signature of a command (`options.with_options` those of one dataclass).
`mode_of` finds the mode that the options ask for and refuses those of other modes, and `HelpByMode` groups them in `--help`.
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import typer

from cloze.cli.early import EarlyCommand
from cloze.cli.options import Command, annotations_of, options_of, parameters_of, set_signature
from cloze.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Mode(ABC):
    """One of the things that a command does. The fields are its options, annotated for typer; modes may share an option.

    Attributes:
        purpose: What it is for, in messages and as the title of its options in help.
        how: The options that ask for it; empty for the mode that needs none, which is the last of a command.
    """

    purpose: ClassVar[str]
    how: ClassVar[str] = ""

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether the arguments and options of a command ask for this mode."""
        return True


M = TypeVar("M", bound=Mode)
_WORDS = "cloze.words"  # where a command keeps its words in the context
_SCREEN = 36  # options of all modes that are listed together


def usual_first(modes: Sequence[type[M]]) -> list[type[M]]:
    """The mode that no option asks for, and then the others, as help lists them."""
    return [modes[-1], *modes[:-1]]


def takes_options_of(*modes: type[Mode]) -> Callable[[Command], Command]:
    """Replace `**options` in the signature of a command by the options of its modes; an option that modes share comes once."""
    options = {name: option for mode in usual_first(modes) for name, option in options_of(mode).items()}

    def changed(command: Command) -> Command:
        parameters = parameters_of(command)
        first = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
        rest = [parameter for parameter in parameters if parameter not in first]
        set_signature(command, [*first, *rest[:1], *options.values(), *rest[1:]])
        vars(command)["help_class"] = type("Help", (HelpByMode,), {"modes": modes})
        return command

    return changed


def class_of(command: Command) -> type[EarlyCommand]:
    """The class of a command, which prints its help."""
    cls: type[EarlyCommand] = vars(command).get("help_class", EarlyCommand)
    return cls


def mode_of(modes: Sequence[type[M]], context: typer.Context, options: Mapping[str, Any]) -> M:
    """The first mode that the command asks for, with its options. Raises a `UserError` for an option of other modes
    alone."""
    chosen = next(mode for mode in modes if mode.asked(context.params))
    names = {field.name for field in fields(chosen)}
    for name in options:
        source = context.get_parameter_source(name)
        if name not in names and source is not None and source.name == "COMMANDLINE":
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise UserError(_foreign(option, [mode for mode in modes if name in annotations_of(mode)], chosen))
    return chosen(**{name: value for name, value in options.items() if name in names})


def _foreign(option: str, owners: Sequence[type[Mode]], chosen: type[Mode]) -> str:
    """Why an option has no meaning in the mode that was chosen."""
    purposes = [f"{mode.purpose} ({mode.how})" if mode.how else mode.purpose for mode in owners]
    either = " or ".join([", ".join(purposes[:-1]), purposes[-1]] if purposes[1:] else purposes)
    if not chosen.how:
        return f"{option} is for {either}. Ask for that, or omit {option}."
    return f"{option} has no meaning for {chosen.purpose} ({chosen.how}); it is for {either}.\n  Omit one of them."


class HelpByMode(EarlyCommand):
    """Help with the options of one mode, and a line for each other mode: `COMMAND OPTION --help` prints the help of that mode.

    Where all options of a command fit on a screen, all are listed, those that one mode alone has in a section of their own.
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

    def proposed(self, options: Sequence[str], words: Sequence[str]) -> list[str]:
        """Without the options of other modes than that of the words."""
        mode = self._asked(words)
        foreign = {name for other in self.modes for name in annotations_of(other)} - annotations_of(mode).keys()
        refused = {option for parameter in self.params if parameter.name in foreign for option in parameter.opts}
        return [option for option in options if option not in refused]

    def _asked(self, words: Sequence[str]) -> type[Mode]:
        """The mode whose options the words of a command name; else the usual one."""
        names = {name for parameter in self.params if (name := parameter.name) and not set(parameter.opts).isdisjoint(words)}
        for mode in self.modes[:-1]:
            foreign_names = {name for other in self.modes if other is not mode for name in annotations_of(other)}
            if names & annotations_of(mode).keys() - foreign_names or mode.how and not set(mode.how.split()) - {*words}:
                return mode
        return self.modes[-1]

    def _records(self, ctx: Any, modes: Sequence[type[Mode]]) -> dict[str, list[tuple[str, str]]]:
        """The arguments and options of some modes, by the title of their section."""
        owners = {
            name: [mode for mode in self.modes if name in annotations_of(mode)]
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
