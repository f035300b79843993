"""What trains vectors for the new texts of a checkpoint of `paragraph_vectors`, from the recipe of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

from cloze.engines.lock_free import asked_of
from cloze.engines.paragraphs import Inferred
from cloze.exercises import TokenFacts
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.negative_sampling import NegativeSampling
from cloze.recipe.given import build
from cloze.registry import lookup


def add_inference(network: Any, heads: Mapping[str, Any], tokenizer: Any, recipe: Mapping[str, Any] | None) -> None:
    """Let a network of paragraph vectors train vectors for new texts, as its recipe trained those of the corpus.

    In as many passes, at the same rates. `recipe` is that of the run, in full, as plain data. Every other network reads new texts
    as they are, and so does one without its recipe and head, which then says what it needs.
    """
    head = next((module for module in heads.values() if isinstance(module, (NegativeSampling, HierarchicalSoftmax))), None)
    if not network.of_documents or head is None or recipe is None:
        return
    facts = {"tokenizer": TokenFacts.of(tokenizer), "counts": head.counts.cpu().numpy()}
    choice = asked_of([_built("edit", edit, facts, leave={"in"}) for edit in recipe["exercise"]], owned=True)
    if choice is None:
        return
    keep, question = choice
    passes = max(math.ceil(recipe["training"].get("epochs") or 1), 1)
    rate = _built("rate", recipe["training"]["rate"], {})
    network.inference = Inferred(
        network, head, asked=question, keep=keep, rates=[rate(number / max(passes - 1, 1), passes) for number in range(passes)]
    )


def _built(kind: str, part: Mapping[str, Any], given: Mapping[str, Any], *, leave: Set[str] = frozenset()) -> Any:
    ((name, arguments),) = part.items()
    return build(lookup(kind, name), {key: value for key, value in arguments.items() if key not in leave}, given)
