"""Finds out what can be done with a network: the uses of a checkpoint, each tried up to its first check, and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloze.changes import Shape
from cloze.checkpoint.build import Loaded, build_step, load_checkpoint, plain_arguments
from cloze.decoding.generating.sequence import answers
from cloze.decoding.reader_and_head import to_fill, to_generate, to_score
from cloze.errors import ClozeError
from cloze.interop.vectors.checkpoint import has_vectors
from cloze.networks.blocks.initial import SkipInit
from cloze.recipe.changes import change_of, parse_change
from cloze.recipe.recipe import Recipe


@dataclass(frozen=True)
class CheckpointUses:
    """The network of a checkpoint, its size and the verbs that accept it; `fault` is the reason if it cannot be opened.

    `changes` are what was done to the network, as a recipe writes it, and `trained` is the number of parameters that a run with
    these changes trains. `answers`: it generates an answer to a text, not a continuation. `of_words`: it is a table of word
    vectors; `of_graph`: of the entities and relations of a graph.
    """

    network: str = ""
    parameters: int = 0
    heads: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    answers: bool = False
    of_words: bool = False
    of_graph: bool = False
    changes: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    trained: int = 0
    fault: str = ""


def usable(folder: Path) -> CheckpointUses:
    """What can be done with the checkpoint in a folder."""
    try:
        loaded = load_checkpoint(folder)
    except ClozeError as error:
        return CheckpointUses(fault=str(error))
    model, arguments = loaded.imported.model, loaded.network_arguments
    shape = {key: arguments[key] for key in ("layers", "width", "heads") if isinstance(arguments.get(key), int)}
    sizes = [f"width {size}" if key == "width" else f"{size} {key if size != 1 else key[:-1]}" for key, size in shape.items()]
    words = model.network_type.of_words
    tests: dict[str, Callable[[Any], Any]] = {} if words else {"fill": to_fill, "generate": to_generate, "score": to_score}
    verbs = [verb for verb, test in tests.items() if _takes(test, loaded)]
    verbs += ["neighbours"] if has_vectors(model) else []
    return CheckpointUses(
        ", ".join([model.part, *sizes]), loaded.parameters, tuple(loaded.heads), tuple(verbs),
        "generate" in verbs and answers(to_generate(loaded).reader), words,
        model.network_type.of_triples,
        tuple(_changes(loaded)), sum(p.numel() for module in (loaded.network, *loaded.heads.values()) for p in module.parameters()
                                     if p.requires_grad),
    )


def _changes(loaded: Loaded) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes of the network: those that opening the checkpoint applies, and those that the run's recipe names."""
    recipe = loaded.recipe or {}
    network = (recipe.get("networks") or {}).get(recipe.get("export", "main")) or {}
    changes = [(name, arguments or {}) for change in network.get("change") or () for name, arguments in change.items()]
    return [*(change for change in loaded.imported.model.changes if change[0] not in dict(changes)), *changes]


def _takes(test: Callable[[Any], Any], loaded: Any) -> bool:
    try:
        test(loaded)
    except ClozeError:
        return False
    return True


def require_change(recipe: Recipe, text: str) -> None:
    """Raise a `CheckpointError` if the network that a recipe exports cannot take a change, as the command line has it.

    The network is built on torch's meta device, so nothing is drawn or computed.
    """
    change, part = change_of(parse_change(text)), recipe.exported.part
    if change is None or part is None:
        return  # a faulty change is reported where it is read, and the network of a checkpoint when it is opened
    change.shape(Shape(recipe.name, part.name, plain_arguments(part.arguments)))
    size = next((text.tokenizer.arguments.get("size") for text in recipe.texts.values()), None)
    network = build_step(recipe, vocab_size=size if isinstance(size, int) else 1000, device="meta").networks[recipe.export]
    with torch.device("meta"), SkipInit():
        change.apply(network)
