"""Whether a recipe reads a frozen network in the order that it was trained in, and which recipe would. `origins.py`
calls this."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from cloze.document import Node, read_yaml
from cloze.recipe.faults import Faults

if TYPE_CHECKING:  # imports torch, which recipes without checkpoints do not need
    from cloze.interop import Imported

#: Orders of which a network that has learned one knows nothing of another.
APART = ("open", "left_to_right", "right_to_left")


def check_order(tree: Node, label: str, checkpoint: Imported, path: str, faults: Faults) -> None:
    """Add a fault if the recipe reads its network `label`, which is never trained, in an order that the checkpoint has not seen.

    A recipe without `reading` takes the checkpoint's order, and one with a mixture may have several.
    """
    network = dict(tree.value["networks"].items()).get(label) if "networks" in tree.value else None
    train = None if network is None else network.value.get("train")
    if train is None or train.value != "none" or "reading" not in tree.value or "mixture" in tree.value:
        return
    order, trained = _order(tree), checkpoint.model.order
    if order == trained or order not in APART or trained not in APART or order in checkpoint.reading.orders:
        return
    name = tree.value.get("name")
    faults.add(
        train.where, f"{path}.from",
        f"{checkpoint.folder} was trained to read in the order {trained}, and the recipe reads it in the order {order}.",
        f"Bind a checkpoint that reads in the order {order}{recipes_for(trained, '' if name is None else str(name.value))}.",
    )


def recipes_for(order: str, recipe: str) -> str:
    """The end of a hint, which names the recipes whose teacher reads in this order; empty if `recipe` has no teacher."""
    files = {file.name.removesuffix(".yaml"): file for file in (resources.files("cloze") / "recipes" / "distillation").iterdir()}
    if recipe not in files:
        return ""
    orders = {name: _order(read_yaml(file.read_text(encoding="utf-8"), name)) for name, file in files.items() if name != recipe}
    names = sorted(name for name, teacher_order in orders.items() if teacher_order == order)
    return f", or take a recipe for a teacher that reads in the order {order}: {', '.join(names)}" if names else ""


def _order(tree: Node) -> str:
    """The order of a recipe as written."""
    node = tree.value.get("order")
    return "open" if node is None else str(node.plain())
