"""Every command of the `cloze` executable: its module, its line in the overview, and how it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from cloze.errors import UserError, propose

if TYPE_CHECKING:
    import typer


class CommandEntry(NamedTuple):
    """The module of a command in `cloze.cli`, in the folder of its section, and its line in the overview."""

    module: str
    help: str


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Recipes": {
        "list": CommandEntry("recipes.list_", "list every recipe in one table"),
        "show": CommandEntry("recipes.show", "print a recipe in full, or describe a run, a checkpoint or a store"),
        "diff": CommandEntry("recipes.diff", "show how two recipes differ"),
        "check": CommandEntry("recipes.check", "check a recipe and show what each edit does"),
        "explain": CommandEntry("recipes.explain", "explain a part: what it does, its keys and defaults, recipes that use it"),
        "schema": CommandEntry("recipes.schema", "print a JSON schema, with which editors complete and check recipes"),
    },
    "Text": {
        "corpus": CommandEntry("text.corpus", "build: encode text into a token store; check: find problems in text"),
        "vocab": CommandEntry("text.vocab", "fit: measure how well vocabularies fit a text; candidates: words to add"),
        "link": CommandEntry("text.link", "find the names of entities in a text, for cloze corpus build --annotate"),
        "features": CommandEntry("text.features", "turn regions of pictures into features, for cloze corpus build --items"),
        "peek": CommandEntry("text.peek", "show examples: what is hidden, shown and predicted"),
    },
    "Train": {
        "pretrain": CommandEntry("train.pretrain", "pre-train a recipe on a corpus within a budget; resumable"),
        "finetune": CommandEntry("train.finetune", "fine-tune a checkpoint on labelled text"),
        "augment": CommandEntry("train.augment", "write more labelled rows for a student by replacing words"),
        "evaluate": CommandEntry("train.evaluate", "measure a fine-tuned checkpoint, or word vectors"),
        "predict": CommandEntry("train.predict", "label texts, or generate a text for each"),
        "best": CommandEntry("train.best", "find the best model for your text and a few labels, and keep it"),
        "compare": CommandEntry("train.compare", "find the best recipe at an equal budget, with its uncertainty"),
        "sweep": CommandEntry("train.sweep", "find the best values of a recipe; the worst trials stop early"),
    },
    "Use": {
        "fill": CommandEntry("use.fill", "fill masked words"),
        "generate": CommandEntry("use.generate", "continue a text"),
        "embed": CommandEntry("use.embed", "turn sentences into vectors"),
        "retrieve": CommandEntry("use.retrieve", "find the best passages for a query"),
        "score": CommandEntry("use.score", "measure how probable sentences are; minimal pairs; bits per byte"),
        "neighbours": CommandEntry("use.neighbours", "find the nearest words"),
        "analogy": CommandEntry("use.analogy", "complete an analogy: man is to king as woman is to …?"),
        "words": CommandEntry("use.words", "find the odd one out or classes of words; retrofit vectors to a lexicon"),
        "import": CommandEntry("use.import_", "turn a Hugging Face folder or a file of word vectors into a checkpoint"),
        "compress": CommandEntry("use.compress", "write a smaller checkpoint: fewer layers, heads, weights or bits"),
        "speed": CommandEntry("use.speed", "measure the size and the speed of networks"),
        "export": CommandEntry("use.export", "write a folder to publish, or word vectors to a file"),
    },
    "Look": {
        "look": CommandEntry("look.look", "write a page that shows what a network computes for a text"),
        "probe": CommandEntry("look.probe", "measure what layers and heads encode: geometry, heads, layers, …"),
        "report": CommandEntry("look.report", "write an HTML page about one or several runs"),
        "demo": CommandEntry("look.demo", "pre-train and fine-tune in a few minutes; needs no data"),
    },
}
COMMANDS: dict[str, CommandEntry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def overview() -> str:
    """The text of `cloze --help`: every command in one screen, written without loading any of them."""
    lines = [
        "cloze: train and use language models. Usage: cloze COMMAND [ARGUMENTS]. Help: cloze COMMAND --help",
    ]
    for title, entries in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<12}{entry.help}" for name, entry in entries.items()]
    lines += [
        "Start here:  cloze demo, then cloze pretrain quick --corpus TEXT --budget 10m --out RUN",
        "Completion:  eval \"$(cloze --show-completion bash)\"      (or zsh) in your shell's start-up file",
    ]
    return "\n".join(lines)


def load_command(name: str) -> typer.Typer:
    """The typer application of one command. Raises a `UserError` that names the nearest if the command is unknown."""
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}. {propose(name, COMMANDS)}\n  cloze --help lists every command.")
    module = import_module(f"cloze.cli.{COMMANDS[name].module}")
    application: typer.Typer = vars(module).get("app") or _application(module.command)
    return application


@cache
def _application(command: Callable[..., Any]) -> typer.Typer:
    """The application of a command that has no commands of its own."""
    import typer

    from cloze.cli.modes import class_of

    # plain help: one line per option instead of boxes, and no need to load rich
    application = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    application.command(cls=class_of(command))(command)
    return application


@cache
def parser_of(application: typer.Typer) -> Any:
    """What reads the options of an application and runs it; made once, since programs may run many command lines."""
    from typer.main import get_command

    return get_command(application)
