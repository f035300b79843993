"""The contract of `--set`: every value of every recipe is applied or refused, and never dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from cloze.errors import RecipeError
from cloze.recipe.load import folders_of_recipes, load_recipe
from cloze.recipe.recipe import Recipe

#: Mappings to which a recipe may add names of its own.
FREE = re.compile(r"\.(special|languages|inputs|read|lengths|visual|geometric|given|arguments)(\.|$)")
STRUCTURE = "is structure, not a value: a path sets numbers, names and lists of them."
SAMPLED = 100


def values(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every path of plain data with its value."""
    if path:
        yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from values(value, f"{path}[{key}]" if isinstance(data, list) else f"{path}.{key}".lstrip("."))


def others(value: Any) -> list[str]:
    """Values of another kind or size, as `--set` takes them."""
    if isinstance(value, bool):
        return [str(not value).lower()]
    if isinstance(value, (int, float)):
        return [repr(value * 2 + 1), repr(0.75 if value == 0.5 else value / 2 + 0.25)]
    return ["1", "foo"] if value is None else ["foo"] if isinstance(value, str) else ["foo", "[foo]"]


def whole(recipe: Recipe) -> Any:
    """The canonical form of a recipe, with every stage but without its share of the budget, which `--set` may scale."""
    return [stage.recipe.canonical() for stage in recipe.stages] or recipe.canonical()


def sampled() -> list[tuple[str, str, Any]]:
    """A recipe for each of some of the paths that differ in more than the name of an entry."""
    shapes: dict[str, tuple[str, str, Any]] = {}
    for name in sorted(folders_of_recipes()):
        for path, value in values(load_recipe(name).canonical()):
            if path.partition(".")[0] not in ("name", "paper", "notes", "stages"):
                shape = re.sub(r"^(texts|networks|sources|mixture|tables)\.[^.\[]+", r"\1.X", re.sub(r"\[\d+\]", "[]", path))
                shapes.setdefault(shape, (name, path, value))
    return Random(0).sample(sorted(shapes.values(), key=str), SAMPLED)


def test_every_value_is_applied_or_refused_and_every_unknown_key_is_refused() -> None:
    dropped, added = [], []
    for name, path, value in sampled():
        plain = whole(load_recipe(name))
        for other in others(value):
            try:
                if whole(load_recipe(name, overrides=[f"{path}={other}"])) == plain:
                    dropped.append((name, f"{path}={other}"))
            except RecipeError:
                continue
        if isinstance(value, dict) and not FREE.search(path):
            try:
                load_recipe(name, overrides=[f"{path}.nonsuch=1"])
                added.append((name, path))
            except RecipeError:
                continue
    assert (dropped, added) == ([], [])


@pytest.mark.parametrize(
    ("recipe", "override"),
    [
        ("word2vec-skipgram", "texts.main.annotate=foo"),
        ("word2vec-skipgram", "networks.main.change=lora"),
        ("bert", 'networks.main.change=["lora"]'),
        ("t5-small", "texts.nonsuch=1"),
        ("bert", "networks.other=transformer"),
        ("ernie", "mixture.characters.passes=[1]"),
        ("tinybert-task", "stages.intermediate.passes[0].take=foo"),
    ],
)
def test_structure_is_refused_also_where_nothing_stands_yet(recipe: str, override: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, overrides=[override])
    assert STRUCTURE in str(caught.value)


def test_the_segmenter_of_words_is_a_value() -> None:
    chosen = load_recipe("word2vec-skipgram", overrides=["text.words=jieba"])
    words = chosen.texts["main"].words
    assert words is not None and words.name == "jieba"
    assert chosen.hash != load_recipe("word2vec-skipgram").hash
    other = load_recipe(chosen.canonical(), overrides=["text.words=null"])
    assert other.texts["main"].words is None
    with pytest.raises(RecipeError, match=r"texts\.main\.words: unknown segmenter 'nonsense'\. Known: dictionary, jieba\."):
        load_recipe("word2vec-skipgram", overrides=["texts.main.words=nonsense"])


def test_an_argument_of_a_network_that_only_names_its_checkpoint_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("sentence_classification", overrides=["network.layers=3"])
    assert "networks.main has only `from: start`, which decides its arguments." in str(caught.value)
    assert "Bind the checkpoint first: --bind start=FOLDER." in str(caught.value)
