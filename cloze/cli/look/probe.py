"""`cloze probe`: what the layers and heads of checkpoints hold. Its help and its options are those of the registered probes."""

from __future__ import annotations

import copy
import inspect
import shlex
from collections.abc import Iterable, Mapping
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperOption

from cloze import registry
from cloze.cli.early import EarlyCommand
from cloze.cli.options import (
    AsJson,
    Command,
    Device,
    Encoding,
    WithFiles,
    annotations_of,
    options_of,
    parameters_of,
    set_signature,
)
from cloze.errors import UserError, propose
from cloze.probes import Probe
from cloze.probes.finding import Subject, as_text, plain, subjects
from cloze.recipe.parts import class_of

if TYPE_CHECKING:
    from cloze.decoding.reader import Checkpoint


class ProbeCommand(EarlyCommand):
    """`cloze probe`: its help has a line for each probe in place of PROBES, and `--with FILE` adds probes with their options."""

    def __init__(self, *arguments: Any, help: str, **settings: Any) -> None:
        summaries = {name: (inspect.getdoc(probe) or "").partition("\n")[0].rstrip(".") for name, probe in _probes().items()}
        width = max(map(len, summaries))
        lines = [f"{name:<{width}}  {text[:1].lower()}{text[1:]}" for name, text in summaries.items()]
        super().__init__(*arguments, help=help.replace("PROBES", "\n".join(lines)), **settings)
        self._known_probes = _probes()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Import the files before the options are read, which are those of all probes that there are now."""
        files = [path for word, path in pairwise(args) if word == "--with"]
        files += [word.removeprefix("--with=") for word in args if word.startswith("--with=")]
        if files:
            from cloze.recipe.user_files import import_files

            import_files(files)
        if files or _probes() != self._known_probes:
            from typer.main import get_command

            app = typer.Typer(add_completion=False)
            app.command(cls=ProbeCommand)(with_probes(probe))
            fresh = get_command(app)
            self.params, self.callback, self.help, self._known_probes = fresh.params, fresh.callback, fresh.help, _probes()
        self._show_options_of(next((word for word in args if word in _probes()), None))
        return super().parse_args(ctx, args)

    def _show_options_of(self, kind: str | None) -> None:
        """Leave out of the help what the probe `kind` does not use, or without one what not all probes use. What a shared option
        means is said in the words of that probe."""
        used, common = options_of(Probe if kind is None else class_of("probe", kind)), options_of(Probe)
        helps = {name: _help(parameter) for name, parameter in used.items() if name not in common}
        helps["most"] = _help_of_most(_probes().values() if kind is None else [class_of("probe", kind)])
        every = {name for probe in _probes().values() for name in annotations_of(probe)}
        for parameter in self.params:
            if isinstance(parameter, TyperOption):
                parameter.hidden = parameter.name in every and parameter.name not in used
                if parameter.name in helps:
                    parameter.help = f"{helps[parameter.name]}."


def with_probes(function: Command) -> Command:
    """A command with the options of all probes in place of `**options`."""

    @wraps(function)
    def call(**values: Any) -> None:
        function(**values)

    kind, checkpoints, context, out, steps, *rest = parameters_of(function)
    *names, last = _probes()
    kind = kind.replace(annotation=Annotated[str, typer.Argument(help=f"{', '.join(names)} or {last}.")])
    special, common = _merged_options(_probes())
    set_signature(call, [kind, checkpoints, context, out, *special, steps, *common, *rest])
    vars(call)["help_class"] = ProbeCommand
    return call


def _probes() -> dict[str, type[Probe[Any, Any]]]:
    """The registered probes by name."""
    return {name: class_of("probe", name) for name in registry.names("probe")}


def _merged_options(probes: Mapping[str, type[Probe[Any, Any]]]) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """The options that some probes have, whose help names these probes, and those that all have."""
    options: dict[str, inspect.Parameter] = {}
    users: dict[str, dict[str, list[str]]] = {}  # by option and help
    for name, probe in probes.items():
        for option, parameter in options_of(probe).items():
            options.setdefault(option, parameter)
            users.setdefault(option, {}).setdefault(_help(parameter), []).append(name)
    common = options_of(Probe)
    common["most"] = _with_help(common["most"], f"{_help_of_most(probes.values())}.")
    special = [
        _with_help(options[option], "; ".join(f"{', '.join(names)}: {text}" for text, names in by_help.items()) + ".")
        for option, by_help in users.items() if option not in common
    ]
    return special, list(common.values())


def _help_of_most(probes: Iterable[type[Probe[Any, Any]]]) -> str:
    """What --most means, with the numbers of sentences that these probes read without it."""
    limits = sorted(probe.sentences for probe in probes)
    ends = dict.fromkeys((f"{limits[0]:,}", f"{limits[-1]:,}"))
    return f"{_help(options_of(Probe)['most'])}; default: {' to '.join(ends)}"


def _help(parameter: inspect.Parameter) -> str:
    return str(get_args(parameter.annotation)[1].help)


def _with_help(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.help = text
    return parameter.replace(annotation=Annotated[kind, option])


def probe(
    kind: str,
    checkpoints: Annotated[list[Path], typer.Argument(help="Run folders or Hugging Face folders.")],
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="A folder for probe.json and probe.html.")] = None,
    steps: Annotated[str | None, typer.Option(help="Saved steps of one run: all, or 100,1000 (see training.keep_steps).")] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
    **options: Any,
) -> None:
    """Measure what the layers and heads of networks encode, and write a page with figures.

    \b
    PROBES

    `cloze probe geometry --help` lists the options of a probe.

    Examples: cloze probe geometry BERT GPT2 --text sentences.txt --out DIR; cloze probe heads TUNED --task test.tsv --out DIR;
    cloze probe layers RUN --task upos=train.conllu,test.conllu --steps all --out DIR
    """
    from cloze.cli.hints import typed
    from cloze.reports.probe import require_place, write_finding

    names = registry.names("probe")
    if kind not in names:
        raise UserError(f"unknown probe {kind!r}. {propose(kind, names)}\n  Usage: cloze probe PROBE CHECKPOINT…")
    if out is not None:
        require_place(out)
    measurement, selected = _build_probe(kind, context, options), subjects(checkpoints, steps)

    def load(subject: Subject) -> Checkpoint:
        from cloze.checkpoint.build import load_checkpoint
        from cloze.display import choose_display

        if len(selected) > 1 and choose_display().live:
            typer.echo(f"{subject.name} …", err=True)
        return load_checkpoint(subject.folder, device)

    finding = measurement.run(selected, load)
    if as_json:
        import json

        typer.echo(json.dumps(plain(finding.data), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        typer.echo(as_text(finding))
    if out is not None:
        page = write_finding(finding, out, command=typed())
        typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)


def _build_probe(kind: str, context: typer.Context, options: Mapping[str, Any]) -> Probe[Any, Any]:
    """The probe with the options that were typed; a `UserError` for one that it does not have."""
    cls = class_of("probe", kind)
    spellings = {
        parameter.name: (parameter.secondary_opts if parameter.default is True else parameter.opts)[0]
        for parameter in context.command.params
    }
    sources = {name: context.get_parameter_source(name) for name in options}
    chosen = {name: options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    fields = annotations_of(cls)
    if foreign := [spellings[name] for name in chosen if name not in fields]:
        uses = ", ".join(spellings[name] for name in fields if name not in annotations_of(Probe))
        raise UserError(f"{kind} does not use {foreign[0]}. Omit it. {kind} uses {uses}.")
    if idle := next((name for name in chosen if cls.needs.get(name, name) not in chosen), None):
        option, other = spellings[idle], spellings[cls.needs[idle]]
        raise UserError(f"{kind}: {option} changes nothing without {other}. Add that, or leave {option} out.")
    built: Probe[Any, Any] = cls(**chosen)
    return built


command = with_probes(probe)
