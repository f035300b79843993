"""Pictures next to labelled text: the `--items` of `cloze finetune`, as a recipe writes them, and of `predict` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloze.checkpoint.annotators import sources_that_take
from cloze.checkpoint.build import Loaded
from cloze.decoding.pictures import files_of, first_picture, require_items, shown_pictures
from cloze.document import Node, from_data
from cloze.errors import TaskError
from cloze.tasks.pictures import AboutPictures

#: The column with the key of a row's picture, unless the user names another.
USUAL = "image"


def item_arguments(loaded: Loaded, files: Sequence[str], picture: str | None) -> dict[str, Any]:
    """The arguments of the source of labelled text: the arrays that the checkpoint's network reads, their `files` (`NAME=FILE` or
    `FILE`), and the column with the key of a row's `picture`. Files that the network cannot read are an error."""
    if not files:
        return {}
    item_files = files_of(loaded, files)
    sets = {name: first_picture(name, path) for name, path in item_files.items()}
    require_items(loaded, sets, " ".join(item_files.values()))
    takes: frozenset[str] = loaded.network.takes  # type: ignore[assignment]
    items = {
        name: [array for array, kind in item_set.kinds.items() if kind.field(name, array) in takes]
        for name, item_set in sets.items()
    }
    return {"items": items, "item_files": item_files, "picture": picture or USUAL}


def add_items(tree: Node, arguments: Mapping[str, Any]) -> None:
    """Give every source of labelled text of a recipe as written, and of its stages, the items of pictures."""
    for source, source_arguments in sources_that_take("item_files", tree) if arguments else ():
        for name, value in arguments.items():
            source_arguments.put(name, from_data(value, source.where))


def with_pictures(loaded: Loaded, given: Sequence[str], examples: Sequence[Any]) -> Loaded:
    """A fine-tuned checkpoint with the pictures that sets of examples name, from files of items. Without files it stays as it
    is."""
    if not given:
        return loaded
    named = [
        example_set.pictures for example_set in examples
        if isinstance(example_set, AboutPictures) and example_set.pictures is not None
    ]
    if not named:
        raise TaskError(f"--items {given[0]}: {loaded.folder} was tuned on texts without pictures. Leave --items out.")
    return replace(loaded, pictures=shown_pictures(loaded, given, [key for keys in named for key in keys]))
