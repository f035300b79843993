"""What trains vectors for the new texts of a checkpoint of `paragraph_vectors`, from the recipe of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cloze.assembly.given import build
from cloze.assembly.load import IN_RUN, load_recipe
from cloze.assembly.recipe import PartSpec, plain
from cloze.engines.lock_free import asked_of
from cloze.engines.paragraphs import Inferred
from cloze.exercises import TokenFacts
from cloze.networks import ParagraphVectors
from cloze.objectives.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.negative_sampling import NegativeSampling
from cloze.registry import lookup


def add_inference(network: Any, heads: Mapping[str, Any], imported: Any) -> None:
    """Let a network of paragraph vectors train vectors for new texts, as its recipe trained those of the corpus.

    In as many passes, at the same rates. Every other network reads new texts as they are, and so does one without its recipe and
    head, which then says what it needs.
    """
    head = next((one for one in heads.values() if isinstance(one, (NegativeSampling, HierarchicalSoftmax))), None)
    if not isinstance(network, ParagraphVectors) or head is None or not (imported.folder / IN_RUN).is_file():
        return
    recipe = load_recipe(imported.folder)
    given = {"tokenizer": TokenFacts.of(imported.tokenizer), "counts": head.counts.cpu().numpy()}
    (entry,) = recipe.entries.values()
    found = asked_of([_built(spec.part, given) for spec in entry.exercise], owned=True)
    if found is None:
        return
    keep, asked = found
    passes = max(math.ceil(recipe.training.epochs or 1), 1)
    rate = _built(recipe.training.rate, {})
    network.inference = Inferred(
        network, head, asked=asked, keep=keep, rates=[rate(number / max(passes - 1, 1), passes) for number in range(passes)]
    )


def _built(spec: PartSpec, given: Mapping[str, Any]) -> Any:
    return build(lookup(spec.kind, spec.name), plain(spec.arguments), given)
