"""Public functions refuse arguments of a wrong type with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.arguments import _plain_types, checked
from cloze.errors import ClozeError, UserError

FUNCTIONS = ("load", "pretrain", "finetune", "best", "compare", "sweep", "plan", "load_recipe", "report")


class Wrong:
    def __repr__(self) -> str:
        return "Wrong()"


def wrong_calls() -> list[tuple[str, str]]:
    """Every plain parameter of every public function."""
    return [(name, parameter) for name in FUNCTIONS for parameter in _plain_types(getattr(cloze, name).__wrapped__)]


def test_every_plain_argument_of_every_public_function_is_checked() -> None:
    calls = wrong_calls()
    some = {("pretrain", "budget"), ("finetune", "seeds"), ("load", "device"), ("compare", "budget"), ("sweep", "seeds")}
    assert some <= set(calls)
    for name, parameter in calls:
        with pytest.raises(ClozeError) as caught:
            getattr(cloze, name)(**{parameter: Wrong()})
        assert str(caught.value).startswith(f"{parameter}: got Wrong(), expected "), (name, parameter)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget": 10}, "budget: got 10, expected text or None such as '10m', '2000steps' or '50Mtokens'."),
        ({"size": 3}, "size: got 3, expected text or None such as 'tiny'."),
        ({"seed": "1"}, "seed: got '1', expected a whole number."),
        ({"seed": True}, "seed: got True, expected a whole number."),
        ({"device": 0}, "device: got 0, expected text such as 'auto' or 'cpu'."),
        ({"with_files": "mine.py"}, "with_files: got 'mine.py', expected a list of texts or paths."),
        ({"extend": 1}, "extend: got 1, expected True or False."),
    ],
)
def test_the_sentence_names_the_argument_the_value_and_what_was_expected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        cloze.pretrain("bert", corpus=["a text"], **given)
    assert str(caught.value) == message


def test_an_argument_that_a_function_does_not_have_is_named_with_a_similar_one() -> None:
    with pytest.raises(TypeError) as caught:
        cloze.pretrain("bert", corpus=["a text"], sise="tiny")  # type: ignore[call-arg]
    assert str(caught.value) == "pretrain() got an unexpected keyword argument 'sise'. Did you mean 'size'?"


def test_right_arguments_pass_and_the_signature_stays() -> None:
    @checked
    def one(number: float, *, folder: str | Path | None = None, call: Callable[[], int] | None = None) -> float:
        """Doc."""
        return number

    assert one(3, folder=Path("x"), call=lambda: 1) == 3 and one(2.5) == 2.5 and one.__doc__ == "Doc."
