"""`--with FILE`: a verb that may meet parts of a user's own imports the file that registers them before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _imported(files: list[Path] | None) -> list[Path]:
    if files:
        from cloze.recipe.user_files import import_files

        import_files(files)
    return files or []


Annotate = Annotated[list[str] | None, typer.Option(help="Annotators, such as entity=mentions:FILE.")]
Items = Annotated[list[str] | None, typer.Option("--items", help="Items of pictures: regions=features.npz.")]
WithFiles = Annotated[
    list[Path] | None, typer.Option("--with", help="A Python file that registers parts.", callback=_imported)
]
