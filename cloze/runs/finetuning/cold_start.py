"""What a recipe of a task that needs no checkpoint (fastText's classifier) can start from, if not from random rows.

`with_vectors` is `--init VECTORS`: words begin with vectors from elsewhere. `going_on` puts such a recipe onto a checkpoint that
it has trained, which is trained further.
"""

from __future__ import annotations

from pathlib import Path

from cloze.checkpoint.build import Loaded
from cloze.checkpoint.several import START
from cloze.document import Node, from_data
from cloze.errors import TaskError
from cloze.recipe.load import read_tree

NAME = "vectors"  # of the table in the recipe


def with_vectors(recipe: str | Path, init: Path) -> Node:
    """A recipe whose network begins with the vectors of a file or a run, and whose vocabulary also has their words.

    The network, which must have the argument `vectors`, is as wide as they are. What holds no vectors is a `CheckpointError`.
    """
    from cloze.interop.vectors.opening import width_of

    width, tree = width_of(init), read_tree(recipe)
    network = tree.value.get("network")
    ((_, arguments),) = network.value.items() if network is not None and len(network.value) == 1 else ((None, None),)
    if arguments is None:
        raise TaskError(f"--init {init}: {recipe} has no single network. Name the table of vectors in the recipe itself.")
    table = from_data({"vectors": {"file": str(init), "words": "added"}}, tree.where)
    if "tables" not in tree.value:
        tree.put("tables", from_data({}, tree.where))
    tree.value["tables"].put(NAME, table)
    arguments.put("vectors", from_data(NAME, tree.where))
    arguments.put("width", from_data(width, tree.where))
    return tree


def going_on(recipe: str, loaded: Loaded) -> Node:
    """The recipe with the network, the words and the tables of a checkpoint, which must have the recipe's kind of network."""
    tree = read_tree(recipe)
    ((part, _),) = tree.value["network"].value.items()
    if loaded.imported.model.part != part:
        raise TaskError(
            f"--recipe {recipe}: trains a network {part} further, and {loaded.folder} is {loaded.imported.model.part}.\n"
            f"  To train such a classifier from the beginning: cloze finetune {recipe} --train FILE --dev FILE --out DIR"
        )
    values = {key: value for key, value in tree.value.items() if key not in _OF_CHECKPOINT}
    recipe_tree = Node(values, tree.where, tree.keys)
    recipe_tree.put("network", from_data({"from": START, "train": "all"}, tree.where))
    return recipe_tree


#: Keys of a recipe that say what a checkpoint says, too.
_OF_CHECKPOINT = ("text", "tables", "network", "order", "reading")
