"""Checkpoints by the names that a recipe binds them to, for `load_recipe`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cloze.checkpoint.borrowed import network_folder
from cloze.document import Node
from cloze.recipe.faults import Faults
from cloze.recipe.origins import origins_in

if TYPE_CHECKING:  # imports torch, which recipes without checkpoints do not need
    from cloze.interop import Imported


class BoundCheckpoints(dict[str, Path]):
    """The folder of each checkpoint by its name in the recipe (`from: NAME`); implements `recipe.CheckpointFolders`.

    `--bind` gives sources and tables, too, so that there may be other names.
    """

    def described(self, name: str, label: str) -> Imported:
        """The network `label` of a checkpoint, else its exported one, without tensors.

        A recipe is loaded a dozen times while it is fitted, and a folder is read once as long as its files stay the same.
        """
        folder = network_folder(self[name], label)
        files = [path.stat() for part in (folder, folder / "cloze") for path in sorted(part.glob("*")) if path.is_file()]
        return _described(folder, tuple((file.st_ino, file.st_mtime_ns, file.st_size) for file in files))

    def complete(self, root: Node, faults: Faults) -> None:
        """Complete `reading`, and other keys that the recipe omits, unless it states how text is read."""
        folders = {name: folder for name, folder in self.items() if name in origins_in(root)}
        if "reading" in root.value or not folders:
            return
        from cloze.checkpoint.build import load_checkpoint  # torch, for recipes that begin with a checkpoint
        from cloze.checkpoint.complete import CheckpointFacts, put_onto

        put_onto(root, {name: CheckpointFacts.of(load_checkpoint(folder)) for name, folder in folders.items()}, faults)


@lru_cache(maxsize=4)
def _described(folder: Path, files: tuple[tuple[int, int, int], ...]) -> Imported:
    """A folder without its tensors, as long as its `files` have these inodes, times and sizes."""
    from cloze.checkpoint.open_folder import open_folder

    imported = open_folder(folder)
    return replace(imported, model=replace(imported.model, network={}, heads={}, spare={}, tables={}, changed={}))
