"""The ledger of fields: names that are not legal are refused with the way out."""

from __future__ import annotations

import pytest

from cloze import fields
from cloze.errors import RecipeError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("positions", "write positions/<set>, or position_ids for the position of each token."),
        ("decoder.positions", "write positions/<set>, or position_ids for the position of each token."),
        ("segments/main", "segments does not take a set; write segments."),
        ("segment", "unknown field 'segment'. Did you mean 'segments'"),
    ],
)
def test_a_name_that_is_not_legal_is_refused_with_the_legal_one(name: str, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        fields.find(name)
    assert expected in str(caught.value)


def test_the_ids_of_positions_are_one_number_per_token_and_positions_one_per_target() -> None:
    assert fields.find("position_ids").shape == "B L" and fields.find("position_ids").aligned
    assert fields.find("positions/main").shape == "M"
    assert fields.find("decoder.position_ids") is fields.find("position_ids")
