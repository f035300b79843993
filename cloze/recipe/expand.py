"""A recipe as written → the same tree with every short form written out.

Keys become plural, parts become `{name: {argument: value}}`, and a network's `from`, `change`, `train`, … move from its arguments
to the level of its name. `--set` is applied to this form, before `grammar.py` reads it, so a value path does
not depend on the form that the author chose.
"""

from __future__ import annotations

from cloze.document import Node
from cloze.recipe.faults import Faults
from cloze.recipe.paths import NEXT_TO_PART, SINGULAR
from cloze.recipe.recipe import TrainingSpec
from cloze.recipe.schema import arguments_of, expand_arguments, expand_part, unknown_keys

KEYS = (
    "name", "paper", "notes", "sources", "corpus", "texts", "text", "tables", "networks", "network", "tie", "reading", "order",
    "exercise", "passes", "objectives", "mixture", "mixing", "schedule", "training", "task", "export", "stages",
)
# Keys that hold parts or further keys, never a plain value.
SECTIONS = frozenset(KEYS) - {"name", "paper", "notes", "tie", "order", "mixing", "export"}
ENTRY_KEYS = ("source", "order", "exercise", "passes", "objectives", "odds", "task")
PASS_KEYS = ("name", "network", "view", "take", "objectives", "grad")
TEXT_KEYS = ("normalise", "tokenizer", "words", "annotate", "line_ends")
_PARTS_OF_TEXT = frozenset({"normalise", "tokenizer", "annotate"})
_PARTS_OF_NETWORK = frozenset({"average", "change", "start"})
_PARTS_OF_PASS = frozenset({"take", "objectives"})


def expand(root: Node, faults: Faults) -> None:
    """Write out every short form, in place."""
    if not root.is_mapping:
        faults.add(root.where, "", "a recipe is a mapping of keys such as name, network and training.")
        return
    unknown_keys(root, KEYS, "", faults)
    for singular, plural in SINGULAR.items():
        _plural(root, singular, plural, faults)
    for name, text in _children(root, "texts", faults):
        _text(text, f"texts.{name}", faults)
    for name, source in _children(root, "sources", faults):
        expand_part("source", source, f"sources.{name}", faults)
    for name, table in _children(root, "tables", faults):
        expand_part("table", table, f"tables.{name}", faults)
    for name, network in _children(root, "networks", faults):
        _network(network, f"networks.{name}", faults)
    _entry(root, "", faults)
    for name, entry in _children(root, "mixture", faults):
        if entry.value is None:
            entry.value = {}
        if _is_mapping(entry, f"mixture.{name}", faults):
            unknown_keys(entry, ENTRY_KEYS, f"mixture.{name}", faults)
            _entry(entry, f"mixture.{name}.", faults)
    training = root.value.get("training")
    if training is not None and _is_mapping(training, "training", faults):
        expand_arguments(arguments_of(TrainingSpec), training, "training", faults)


def structure(root: Node) -> list[tuple[Node, frozenset[str] | None]]:
    """The mappings of an expanded recipe that hold parts, each with the keys that do; None: all of its keys."""
    sections = {key: root.value[key] for key in ("texts", "sources", "tables", "networks", "mixture") if key in root.value}
    inner = {key: [value for _, value in node.items() if value.is_mapping] for key, node in sections.items()}
    entries = [root, *inner.get("mixture", ())]
    passes = [run for entry in entries if "passes" in entry.value for run in entry.value["passes"].value or ()]
    layers = [text.value["annotate"] for text in inner.get("texts", ()) if "annotate" in text.value]
    return [
        *((node, SECTIONS) for node in entries),
        *((node, _PARTS_OF_TEXT) for node in inner.get("texts", ())),
        *((node, _PARTS_OF_NETWORK) for node in inner.get("networks", ())),
        *((node, _PARTS_OF_PASS) for node in passes),
        *((node, None) for node in (*sections.values(), *layers)),
    ]


def _plural(root: Node, singular: str, plural: str, faults: Faults) -> None:
    node = root.value.get(singular)
    if node is None:
        return
    if plural in root.value:
        faults.add(root.place(singular), singular, f"{singular} and {plural} are both written.", f"Keep {plural}.")
        return
    where = root.place(singular)
    del root.value[singular]
    root.put(plural, Node({"main": node}, where, {"main": where}))


def _children(root: Node, key: str, faults: Faults) -> list[tuple[str, Node]]:
    node = root.value.get(key)
    if node is None or not _is_mapping(node, key, faults):
        return []
    if not node.value:
        faults.add(node.where, key, "is empty.", f"Name at least one under {key}.")
    for name in node.value:
        if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
            faults.add(node.place(name), f"{key}.{name}", "a name has letters, digits, _ and - only.")
    return [(str(name), inner) for name, inner in node.items()]


def _is_mapping(node: Node, path: str, faults: Faults) -> bool:
    if not node.is_mapping:
        faults.add(node.where, path, f"expected a mapping, got {node.plain()!r}.")
    return node.is_mapping


def _text(text: Node, path: str, faults: Faults) -> None:
    if not _is_mapping(text, path, faults):
        return
    unknown_keys(text, TEXT_KEYS, path, faults)
    if text.value.get("normalise") is None or text.value["normalise"].value is None:
        text.put("normalise", Node({}, text.where))
    words = text.value.get("words")
    if words is not None and words.value is not None:
        expand_part("segmenter", words, f"{path}.words", faults)
    annotate = text.value.get("annotate")
    if annotate is not None and annotate.value is not None and _is_mapping(annotate, f"{path}.annotate", faults):
        for name, layer in annotate.items():
            expand_part("annotator", layer, f"{path}.annotate.{name}", faults)
    if "tokenizer" in text.value:
        expand_part("tokenizer", text.value["tokenizer"], f"{path}.tokenizer", faults)
    else:
        faults.add(text.where, path, 'needs "tokenizer".', "For example `tokenizer: {wordpiece: {size: 30522}}`.")


def _network(network: Node, path: str, faults: Faults) -> None:
    if network.is_mapping and set(network.value) <= NEXT_TO_PART and not network.value.keys().isdisjoint({"from", "average"}):
        named = None
    else:
        for key, inner in list(network.items()):
            if key not in NEXT_TO_PART and inner.is_mapping:
                _lift(network, inner)
        expand_part("network", network, path, faults, NEXT_TO_PART)
        named = network.part
    train = network.value.get("train") if network.is_mapping else None
    if train is not None and train.is_mapping:
        expand_part("unfreezing", train, f"{path}.train", faults)
    start = network.value.get("start") if network.is_mapping else None
    if start is not None and start.value is not None:
        expand_part("start", start, f"{path}.start", faults)
    changes = network.value.get("change") if network.is_mapping else None
    if changes is not None:
        _parts("change", changes, f"{path}.change", faults)
    network.part = named


def _lift(network: Node, inner: Node) -> None:
    """Move reserved arguments from among a network's own arguments to the level of its name."""
    for key in sorted(NEXT_TO_PART & set(inner.value)):
        network.put(key, inner.value.pop(key))


def _entry(node: Node, prefix: str, faults: Faults) -> None:
    order = node.value.get("order")
    if order is not None and order.is_mapping:
        expand_part("order", order, f"{prefix}order", faults)
    if "exercise" in node.value:
        _parts("edit", node.value["exercise"], f"{prefix}exercise", faults)
    if "objectives" in node.value:
        _parts("objective", node.value["objectives"], f"{prefix}objectives", faults)
    passes = node.value.get("passes")
    if passes is None:
        return
    if "objectives" in node.value:
        faults.add(node.place("objectives"), f"{prefix}objectives", "objectives and passes are both written.",
                   "`objectives` is short for one pass; keep `passes`.")
    if not passes.is_list:
        faults.add(passes.where, f"{prefix}passes", "expected a list of passes.", "For example `- {network: main}`.")
        return
    for index, run in enumerate(passes.value):
        path = f"{prefix}passes[{index}]"
        if not _is_mapping(run, path, faults):
            continue
        unknown_keys(run, PASS_KEYS, path, faults)
        if "objectives" in run.value:
            _parts("objective", run.value["objectives"], f"{path}.objectives", faults)
        if "take" in run.value and _is_mapping(run.value["take"], f"{path}.take", faults):
            _take(run.value["take"], f"{path}.take", faults)


def _take(take: Node, path: str, faults: Faults) -> None:
    """`field: pass.state` stays; `name: {from: …}` is a rewriter."""
    for name, value in list(take.items()):
        if value.is_mapping and value.part is None:
            part = Node({name: value}, value.where, {name: take.place(name)})
            expand_part("rewriter", part, path, faults)
            take.value[name] = part


def _parts(kind: str, node: Node, path: str, faults: Faults) -> None:
    if not node.is_list:
        faults.add(node.where, path, f"expected a list of parts of kind {kind}.", "Begin each with `- `.")
        return
    for index, item in enumerate(node.value):
        expand_part(kind, item, f"{path}[{index}]", faults)
