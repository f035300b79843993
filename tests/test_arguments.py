"""Public functions refuse arguments of a wrong type with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.arguments import _plain_types, check_arguments
from cloze.decoding.generating.options import parts_of
from cloze.decoding.reader_and_head import check_scored
from cloze.errors import ClozeError, UserError
from cloze.tasks.in_memory import each_text

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
    @check_arguments
    def one(number: float, *, folder: str | Path | None = None, call: Callable[[], int] | None = None) -> float:
        """Doc."""
        return number

    assert one(3, folder=Path("x"), call=lambda: 1) == 3 and one(2.5) == 2.5 and one.__doc__ == "Doc."


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("fill", {"texts": "a [MASK]", "top": 0}, "top: got 0, expected a whole number of at least 1."),
        ("generate", {"tokens": 2.5}, "tokens: got 2.5, expected a whole number of at least 1."),
        ("generate", {"draft": "small"}, "draft: got 'small', expected a Model or None such as cloze.load('FOLDER')."),
        ("embed", {"texts": "a", "length": 0}, "length: got 0, expected a whole number of at least 1 or None."),
        ("predict", {"texts": "a", "batch": -1}, "batch: got -1, expected a whole number of at least 1."),
        ("neighbours", {"words": "a", "count": -1}, "count: got -1, expected a whole number of at least 1."),
        ("neighbours", {"words": "a", "restrict": -5}, "restrict: got -5, expected a whole number of at least 1 or None."),
    ],
)
def test_methods_of_a_model_refuse_values_that_the_commands_refuse(method: str, given: dict[str, Any], message: str) -> None:
    model = cloze.Model.__new__(cloze.Model)  # no argument is read before all are checked
    with pytest.raises(UserError) as caught:
        getattr(model, method)(**given)
    assert str(caught.value) == message


def test_a_folder_in_place_of_a_model_is_named_with_the_way_to_open_it() -> None:
    with pytest.raises(UserError, match=r"^finder: got 'best', expected a Model such as cloze\.load\('FOLDER'\)\.$"):
        cloze.retrieve("best", "a query", ["a passage"])  # type: ignore[call-overload]


def test_one_string_is_no_list_of_texts() -> None:
    with pytest.raises(ClozeError, match=r"^expected a list of texts, got one: 'lunch'\. Put it into a list\.$"):
        list(each_text("lunch"))


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("log_probability", {"truncate": True}, "truncate cuts answers and what they answer; "),
        (None, {"answers": True, "stride": 4}, "stride divides a long text; "),
    ],
)
def test_score_refuses_what_its_method_would_ignore(method: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        check_scored(method, **{"answers": False, "stride": None, "truncate": False, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_k": 1.5}, "top_k: got 1.5, expected a whole number or None."),
        ({"stop": 5}, "stop: got 5, expected text or a list of texts."),
        ({"beams": 2, "length_penalty": float("nan")}, "length-penalty nan: expected a finite number; above 0 favours "
         "long texts."),
    ],
)
def test_options_of_writing_are_checked(given: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parts_of(None, given)  # type: ignore[arg-type]  # nothing is read
    assert str(caught.value) == message
