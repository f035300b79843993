"""Where the paper has another value than the authors' code, which the recipe follows, the notes name the option that sets it."""

from __future__ import annotations

import pytest

from cloze.recipe.load import load_recipe, read_builtin

OPTIONS = [
    ("distilbert", "training.batch=4000"),  # Sanh et al., 2019, §3
    ("ernie-thu", "training.batch=512"),  # Zhang et al., 2019, §4.2
    ("kepler", "mixture.facts.objectives.triple_contrast.margin=9"),  # Wang et al., 2021, §2.5
    ("mt-dnn", "mixture.pair.objectives.stochastic_answer.dropout=0.3"),  # Liu et al., 2019, §4.2
    ("mt-dnn", "mixture.sentence.objectives.text_classification.dropout=0.05"),
    ("uniter_multiple_choice", "training.rate.linear.peak=1e-4"),  # Chen et al., 2020, appendix A.2
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_the_notes_name_an_option_that_gives_the_recipe_the_value_of_the_paper(name: str, option: str) -> None:
    assert f"--set {option}" in " ".join(read_builtin(name).split())
    assert load_recipe(name, overrides=[option]) != load_recipe(name)
