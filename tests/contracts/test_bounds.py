"""Numbers of every registered part have bounds, and what lies outside is refused in a file and with --set alike."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from typing import Any, Literal

import pytest

from cloze.errors import RecipeError
from cloze.recipe import parts
from cloze.recipe.grammar import RESERVED
from cloze.recipe.load import load_recipe, recipe_from_data
from cloze.recipe.recipe import TrainingSpec
from cloze.recipe.schema import bounds, check_value, describe
from cloze.registry import Argument, arguments_of

# Exponents, biases, means and places may be negative; the ends of a schedule are held to the bounds of the number they stand for.
FREE = {"power", "forget_bias", "start", "end", "shift", "mean", "group"}


def numbers(annotation: Any) -> Iterator[tuple[Any, str]]:
    """The int and float inside an annotation of single values, each with its bounds in words."""
    if annotation in (int, float):
        yield annotation, ""
    elif typing.get_origin(annotation) is typing.Annotated:
        inner = typing.get_args(annotation)[0]
        yield from ((inner, bounds(annotation)),) if inner in (int, float) else numbers(inner)
    elif typing.get_origin(annotation) in (typing.Union, type(int | str)):
        for option in typing.get_args(annotation):
            yield from numbers(option)


def owners() -> Iterator[tuple[str, dict[str, Argument]]]:
    for kind in parts.MODULES:
        for name in parts.names(kind):
            builder = parts.builder_of(kind, name)
            if builder.__module__.startswith("cloze."):  # not what other tests register
                yield f"{kind} {name}", {**arguments_of(builder), **RESERVED.get(kind, {})}
    yield "training", arguments_of(TrainingSpec)


def test_every_number_of_every_part_has_bounds() -> None:
    found = [(owner, name, said) for owner, all_ in owners() for name, argument in all_.items()
             for _, said in numbers(argument.annotation) if name not in FREE]
    assert len(found) > 250
    assert [(owner, name) for owner, name, said in found if not said] == []


def test_rates_and_shares_are_at_most_one() -> None:
    words = ("dropout", "probability", "share", "momentum")
    for owner, all_ in owners():
        for name, argument in all_.items():
            if list(numbers(argument.annotation)) and (name.endswith(words) or (name == "rate" and owner.startswith("edit"))):
                for value in (-0.1, 1.1):
                    with pytest.raises(ValueError, match="or equal to|less than"):
                        check_value(argument.annotation, value)


def test_defaults_lie_within_their_bounds() -> None:
    for _, all_ in owners():
        for argument in all_.values():
            if not argument.required and argument.part_kind is None and any(numbers(argument.annotation)):
                default = argument.default
                checked = check_value(argument.annotation, list(default) if isinstance(default, tuple) else default)
                assert (asdict(checked) if is_dataclass(checked) else checked) == default


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exercise.mask.rate=2.0", "exercise[2].mask.rate: got 2.0, expected a number from 0 to 1."),
        ("training.rate.peak=-1e-4", "training.rate.linear.peak: got -0.0001, expected a number of 0 or more."),
        ("network.dropout=.nan", "got NaN, expected a number of 0 or more and below 1 or a mapping of hidden, attention."),
        ("network.heads=0", "heads: got 0, expected a whole number from 1 to 1,048,576."),
        ("network.layers=1000000", "layers: got 1000000, expected a whole number from 1 to 4,096."),
        ("objectives.token_prediction.weight=-1", "weight: got -1, expected a number of 0 or more."),
        ("learning_rate=1e-3", 'learning_rate: unknown key "learning_rate".'),
        ("text.foo=3", 'texts.main.foo: unknown argument "foo".'),
        ("schedule=5", "schedule is structure, not a value"),
        ("tables=3", "tables is structure, not a value"),
    ],
)
def test_a_value_that_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("bert", overrides=[override])
    assert f"--set {override}: " in str(caught.value)
    assert message in str(caught.value)


def test_the_ends_of_a_schedule_are_held_to_the_bounds_of_the_number() -> None:
    def loaded(end: float) -> None:
        data = load_recipe("bert").canonical()
        data["passes"][0]["objectives"][0]["token_prediction"]["weight"] = {"linear": {"start": 1.0, "end": end}}
        recipe_from_data(data)

    loaded(0.5)
    with pytest.raises(RecipeError, match=r"weight\.linear\.end: got -0\.5, expected a number of 0 or more"):
        loaded(-0.5)


def test_bounds_are_said_in_words() -> None:
    transformer = arguments_of(parts.builder_of("network", "transformer"))
    assert describe(bool | Literal["widened"] | None) == "true, false, widened or null"
    assert describe(transformer["dropout"].annotation) == "a number of 0 or more and below 1 or a mapping of hidden, attention"
    assert describe(transformer["layers"].annotation) == "a whole number from 1 to 4,096"


def test_the_arguments_of_a_builder_may_be_changed_by_the_caller() -> None:
    """They are read once and kept."""
    transformer = parts.builder_of("network", "transformer")
    arguments_of(transformer).clear()
    assert "layers" in arguments_of(transformer)
