"""Lets the embeddings of a built-in recipe learn where they do not come from a checkpoint, and would stay random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cloze.changes import AllBut
from cloze.checkpoint.build import build_part
from cloze.errors import Say
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import NetworkSpec, PartSpec, Recipe
from cloze.text import Tokenizer

_EMBEDDINGS = "embeddings"


def with_learning_embeddings(recipe: Recipe, origins: Mapping[str, Path], tokenizer: Tokenizer, say: Say) -> Recipe:
    """The recipe without `train: {all_but: {groups: [embeddings]}}` of networks whose tokens have no vectors yet: networks that
    start at random, and those whose checkpoint, in `origins`, has no row for some token of the text. This is said."""
    networks = dict(recipe.networks)
    for name, network in recipe.networks.items():
        if not _keeps_embeddings(network):
            continue
        if (folder := origins.get(name)) is None:
            why = "they start at random"
        elif lacking := len(set(tokenizer.spellings) - set(Tokenizer.load(folder).spellings)):
            why = f"{folder} has none for {lacking:,} tokens of the text"
        else:
            continue
        networks[name] = replace(network, train="all")
        say(f"the embeddings of {name} learn, too, since {why} (--as-published keeps them as they are).")
    return replace(recipe, networks=networks)


def _keeps_embeddings(network: NetworkSpec) -> bool:
    train = network.train
    if not isinstance(train, PartSpec) or class_of("unfreezing", train.name) is not AllBut:
        return False
    return _EMBEDDINGS in build_part(train).groups
