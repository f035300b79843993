"""Strict YAML, with places."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cloze.document import read_text, read_yaml
from cloze.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("-3", -3), ("0o17", 15), ("0x1F", 31), ("010", 10), (".5", 0.5), ("1.", 1.0), ("1_000", "1_000"),
        ("no", "no"), ("on", "on"), ("true", True), ("False", False), ("~", None), ("", None), ("null", None),
        ("2019-01-01", "2019-01-01"), ("12:30", "12:30"), ('"64"', "64"), ("'no'", "no"), (".inf", math.inf),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found = read_yaml(f"x: {text}", "f").plain()["x"]
    assert found == value and type(found) is type(value)


def test_every_value_and_key_knows_its_line_and_column() -> None:
    root = read_yaml("a: 1\nb:\n  - c: [2, 3]\n", "f.yaml")
    item = root.value["b"].value[0]
    assert (item.key_places["c"].line, item.key_places["c"].column) == (3, 5)
    assert (item.value["c"].value[1].where.line, item.value["c"].value[1].where.column) == (3, 12)
    assert str(item.key_places["c"]) == "f.yaml:3"


def test_integer_keys_stay_integers() -> None:
    assert read_yaml("{1: 0.8, 2: 0.1}", "f").plain() == {1: 0.8, 2: 0.1}


def test_an_alias_copies_what_its_anchor_names() -> None:
    root = read_yaml("a: &x {b: [1]}\nc: *x\n", "f")
    assert root.plain() == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert root.value["a"].value["b"] is not root.value["c"].value["b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: the key 'a' is repeated (first on line 1)"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "f.yaml:3: merge keys"),
        ("a: !!python/object:x 1\n", "f.yaml:1: the tag"),
        ("a: 1\n---\nb: 2\n", "f.yaml:3: a second YAML document begins here"),
        ("a: [1, 2\nb: 3\n", "f.yaml:2: not YAML"),
        ("a:\n\t- 1\n", "f.yaml:2: not YAML"),
        ("a: *x\n", "f.yaml:1: the alias *x has no anchor"),
        ("a: &x [*x]\n", "f.yaml:1: the alias *x is inside its own anchor"),
        ("true: 1\n", "f.yaml:1: a key must be text or a whole number"),
        ("? [a, b]\n: 1\n", "f.yaml:1: a key must be text or a whole number"),
        ("", "f.yaml: the file is empty"),
        ("# nothing\n", "f.yaml: the file is empty"),
    ],
)
def test_what_is_not_strict_yaml_is_an_error_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_yaml(text, "f.yaml")
    assert str(caught.value).startswith(expected)


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(RecipeError, match="aliases unfold to more than"):
        read_yaml("\n".join(lines), "f")


def test_a_file_that_is_not_utf8_says_how_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes("name: café\n".encode("latin-1"))
    with pytest.raises(RecipeError, match=r"not UTF-8 text \(byte 9\).*\n  .*: iconv -f LATIN1 -t UTF-8 .*mine.yaml > NEW$"):
        read_text(path)
