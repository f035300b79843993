"""Before a command imports anything heavy: models and labelled text of the hub are fetched, and wrong paths fail at once.

The parameters of all commands are known by their names: an option that takes a model, labelled text or a file that must exist is
added to the list of its kind below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

CHECKPOINTS = ("checkpoint", "checkpoints")
#: Parameters that take the folder of a model, or its name on the Hugging Face Hub.
MODELS = (*CHECKPOINTS, "base", "draft", "model", "models", "rerank", "source", "tokenizer", "tokenizers", "what")
LABELLED_FILES = ("train", "dev", "test")
#: Parameters that take labelled text, alone or within `NAME=TRAIN,DEV`.
LABELLED = (*LABELLED_FILES, "against", "file", "files", "first", "inputs", "task", "tasks", "unlabelled")
CORPORA = ("corpus", "held_out")
#: Parameters that take files, each of which must exist unless it is one of several, as in `NAME=FILE`.
EXISTING = (*LABELLED_FILES, "file", "files")


class EarlyCommand(TyperCommand):
    """A command that looks for the paths that it was given before it runs."""

    def proposed(self, options: Sequence[str], words: Sequence[str]) -> list[str]:
        """Which of some options fit a command line with these words: here all."""
        return list(options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with local folders and files in place of the names of models and of labelled data sets. Raises a
        `UserError` if a path is missing or a budget cannot be read."""
        ctx.params |= {name: _fetched(ctx.params[name]) for name in MODELS if name in ctx.params}
        ctx.params |= {name: _with_tables(ctx.params[name]) for name in LABELLED if name in ctx.params}
        require_paths_of(ctx.params)
        if isinstance(budget := ctx.params.get("budget"), str):
            from cloze.training.schedule.budget import Budget

            Budget.parse(budget)
        return super().invoke(ctx)


def _fetched(value: Any) -> Any:
    """A path or a list of paths; a name on the hub as the folder of that model."""
    if isinstance(value, list | tuple):
        return [_fetched(entry) for entry in value]
    if not isinstance(value, str | Path) or "/" not in str(value):
        return value
    from cloze.hub import is_name, local_folder

    return type(value)(local_folder(value)) if is_name(value) else value


def _with_tables(value: Any) -> Any:
    """An option or a list of options, with local files in place of the names of data sets."""
    if isinstance(value, list | tuple):
        return [_with_tables(entry) for entry in value]
    if not isinstance(value, str) or "hf:/" not in value or any(map(str.isspace, value)):
        return value
    from cloze.corpus.readers.hub_tables import with_local_tables

    return with_local_tables(value)


def require_paths_of(arguments: Mapping[str, Any]) -> None:
    """Raise the error for the first path among the values of a command that does not exist.

    The name of a recipe that needs no checkpoint may stand in place of one; `-` and addresses are no paths.
    """
    for path in _missing(arguments, CHECKPOINTS):
        from cloze.missing import SCRATCH_TASKS, require_checkpoint

        if path.name not in SCRATCH_TASKS:
            require_checkpoint(path)
    for path in _missing(arguments, EXISTING):
        from cloze.corpus.readers.text_files import require_files

        require_files([path])
    for path in _missing(arguments, CORPORA):
        from cloze.corpus.readers.files import require_paths

        require_paths([str(path)])


def _missing(arguments: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Path]:
    """The paths among the values of these parameters that do not exist."""
    from cloze.hub import is_name

    for name in names:
        value = arguments.get(name)
        for entry in value if isinstance(value, list | tuple) else [value]:
            text = "-" if entry is None else str(entry)
            elsewhere = text == "-" or any(mark in text for mark in (":/", "=", "*")) or is_name(text)
            if not elsewhere and not Path(text).exists():
                yield Path(text)
