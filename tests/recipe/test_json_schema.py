"""`cloze schema`: every recipe fits the JSON schema, nearly every wrong one does not, and the user's parts are in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cloze.cli.main import main
from cloze.document import read_yaml
from cloze.recipe.json_schema import HEADER, recipe_schema
from cloze.recipe.load import folders_of_recipes, load_recipe, pretraining_recipe_names, read_builtin
from tests.recipe.test_faults import UNREAD
from tests.small_recipe import MINE

PART = '''
from dataclasses import dataclass
from cloze.exercises import Edit
from cloze.registry import register

@register("edit", "thin_out")
@dataclass(frozen=True)
class ThinOut(Edit):
    """Thin out a text."""

    rate: float = 0.25
    takes = gives = frozenset()

    def __call__(self, rows, draw):
        return rows
'''


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    schema = recipe_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def errors(validator: jsonschema.Draft7Validator, recipe: Any) -> list[str]:
    """The paths and messages of everything in a recipe that the schema refuses."""
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(recipe)]


def test_every_recipe_fits_as_it_is_written(validator: jsonschema.Draft7Validator) -> None:
    assert {name: errors(validator, read_yaml(read_builtin(name), name).plain()) for name in folders_of_recipes()} == {
        name: [] for name in folders_of_recipes()
    }


def test_recipes_fit_with_every_default(validator: jsonschema.Draft7Validator) -> None:
    names = pretraining_recipe_names()
    forms = {name: json.loads(json.dumps(load_recipe(name).canonical())) for name in names}
    assert {name: errors(validator, form) for name, form in forms.items()} == {name: [] for name in names}


def test_what_reading_a_recipe_refuses_the_schema_refuses_except_for_rules_between_keys(
    validator: jsonschema.Draft7Validator,
) -> None:
    assert errors(validator, read_yaml(MINE, "mine").plain()) == []
    recipes = [(MINE.replace(*change), message) for change, message in UNREAD]
    accepted = [message for text, message in recipes if not errors(validator, read_yaml(text, "mine").plain())]
    rules = ["is missing", "are both written", "'values' is reserved", "every objective has weight 0", "'type' is reserved"]
    assert len(accepted) == len(rules) and all(rule in message for rule, message in zip(rules, accepted, strict=True))


def test_arguments_have_their_defaults_and_say_what_they_accept(validator: jsonschema.Draft7Validator) -> None:
    mask = validator.schema["definitions"]["edit.mask"]
    assert mask["description"].startswith("Choose a fraction `rate` of each row to mask")
    rate = mask["anyOf"][0]["properties"]["rate"]
    assert rate["default"] == 0.15 and rate["description"] == "a number from 0 to 1"


def test_the_command_prints_the_schema_with_the_parts_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text(PART)
    assert main(["schema", "--with", "parts.py"]) == 0
    edit = json.loads(capsys.readouterr().out)["definitions"]["edit.thin_out"]
    assert edit["description"] == "Thin out a text."
    assert edit["anyOf"][0]["properties"]["rate"]["default"] == 0.25
    assert main(["schema", "--with", "nothing.py"]) == 2
    assert main(["show", "bert"]) == 0
    assert capsys.readouterr().out.startswith(f"{HEADER}\nname: bert\n")
