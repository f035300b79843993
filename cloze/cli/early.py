"""Checks that the paths on a command line exist, before a command imports anything heavy, so that a wrong path fails at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

CHECKPOINTS = ("checkpoint", "checkpoints")
FILES = ("train", "dev", "test")  # of labelled text
CORPORA = ("corpus",)


class EarlyCommand(TyperCommand):
    """A command that looks for the paths that it was given before it runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless a path is missing: then a `UserError`, as the command itself would raise."""
        require_paths_of(ctx.params)
        return super().invoke(ctx)


def require_paths_of(arguments: Mapping[str, Any]) -> None:
    """Raise the error for the first path among the values of a command that does not exist.

    A recipe that begins without a checkpoint may stand in the place of one, and `-` and addresses are no paths.
    """
    for path in _missing(arguments, CHECKPOINTS):
        from cloze.missing import OWN_TASKS, require_checkpoint

        if path.name not in OWN_TASKS:
            require_checkpoint(path)
    for path in _missing(arguments, FILES):
        from cloze.corpus.readers.text_files import require_files

        require_files([path])
    for path in _missing(arguments, CORPORA):
        from cloze.corpus.readers.files import require_paths

        require_paths([str(path)])


def _missing(arguments: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        value = arguments.get(name)
        for entry in value if isinstance(value, list | tuple) else [value]:
            if entry is not None and str(entry) != "-" and ":/" not in str(entry) and not Path(entry).exists():
                yield Path(entry)
