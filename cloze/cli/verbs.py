"""Every verb of the `cloze` executable: its module, its line in the overview, and how it is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from cloze.errors import UserError, propose

if TYPE_CHECKING:
    import typer


class Verb(NamedTuple):
    """The module of a verb in `cloze.cli`, in the folder of its section, and its line in the overview."""

    module: str
    help: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Recipes": {
        "list": Verb("recipes.list_", "list every recipe in one table"),
        "show": Verb("recipes.show", "print a recipe in full, or describe a run, a checkpoint or a store"),
        "diff": Verb("recipes.diff", "show how two recipes differ"),
        "check": Verb("recipes.check", "check a recipe and show what each edit does"),
        "explain": Verb("recipes.explain", "explain a part: what it does, its keys and defaults, recipes that use it"),
    },
    "Text": {
        "corpus": Verb("text.corpus", "build: encode text into a token store; check: find problems in text"),
        "vocab": Verb("text.vocab", "fit: measure how well vocabularies fit a text; candidates: words to add"),
        "link": Verb("text.link", "find the names of entities in a text, for cloze corpus build --annotate"),
        "features": Verb("text.features", "turn regions of pictures into features, for cloze corpus build --items"),
        "peek": Verb("text.peek", "show examples: what is hidden, shown and predicted"),
    },
    "Train": {
        "pretrain": Verb("train.pretrain", "pre-train a recipe on a corpus within a budget; resumable"),
        "finetune": Verb("train.finetune", "fine-tune a checkpoint on labelled text"),
        "augment": Verb("train.augment", "write more labelled rows for a student by replacing words"),
        "evaluate": Verb("train.evaluate", "measure a fine-tuned checkpoint, or word vectors"),
        "predict": Verb("train.predict", "label texts, or generate a text for each"),
        "best": Verb("train.best", "find the best model for your text and a few labels, and keep it"),
        "compare": Verb("train.compare", "find the best recipe at an equal budget, with its uncertainty"),
        "sweep": Verb("train.sweep", "find the best values of a recipe; the worst trials stop early"),
    },
    "Use": {
        "fill": Verb("use.fill", "fill masked words"),
        "generate": Verb("use.generate", "continue a text"),
        "embed": Verb("use.embed", "turn sentences into vectors"),
        "retrieve": Verb("use.retrieve", "find the best passages for a query"),
        "score": Verb("use.score", "measure how probable sentences are; minimal pairs; bits per byte"),
        "neighbours": Verb("use.neighbours", "find the nearest words"),
        "analogy": Verb("use.analogy", "complete an analogy: man is to king as woman is to …?"),
        "words": Verb("use.words", "find the odd one out or classes of words; retrofit vectors to a lexicon"),
        "import": Verb("use.import_", "turn a Hugging Face folder or a file of word vectors into a checkpoint"),
        "compress": Verb("use.compress", "write a smaller checkpoint: fewer layers, heads, weights or bits"),
        "speed": Verb("use.speed", "measure the size and the speed of networks"),
        "export": Verb("use.export", "write a folder to publish, or word vectors to a file"),
    },
    "Look": {
        "look": Verb("look.look", "write a page that shows what a network computes for a text"),
        "probe": Verb("look.probe", "measure what layers and heads encode: geometry, heads, layers, …"),
        "report": Verb("look.report", "write an HTML page about one or several runs"),
        "demo": Verb("look.demo", "pre-train and fine-tune in a few minutes; needs no data"),
    },
}
VERBS: dict[str, Verb] = {name: verb for section in SECTIONS.values() for name, verb in section.items()}


def overview() -> str:
    """The text of `cloze --help`: every verb in one screen, written without loading any of them."""
    lines = [
        "cloze: train and use language models. Usage: cloze COMMAND [ARGUMENTS]. Help: cloze COMMAND --help",
    ]
    for title, verbs in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<12}{verb.help}" for name, verb in verbs.items()]
    lines += [
        "Start here:  cloze demo, then cloze pretrain quick --corpus TEXT --budget 10m --out RUN",
        "Completion:  eval \"$(cloze --show-completion bash)\"      (or zsh) in your shell's start-up file",
    ]
    return "\n".join(lines)


def load_verb(name: str) -> typer.Typer:
    """The typer application of one verb. Raises a `UserError` that names the nearest if the verb is unknown."""
    import typer

    from cloze.cli.modes import class_of

    if name not in VERBS:
        raise UserError(f"unknown command {name!r}. {propose(name, VERBS)}\n  cloze --help lists every command.")
    module = import_module(f"cloze.cli.{VERBS[name].module}")
    app = vars(module).get("app")
    if app is None:
        # plain help: one line per option instead of boxes, and no need to load rich
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
        )
        app.command(cls=class_of(module.command))(module.command)
    application: typer.Typer = app
    return application
