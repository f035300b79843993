"""Every registered part declares what assembly, training and the verbs ask of its kind, so that nothing is guessed from names."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

import cloze
from cloze.assembly import parts
from cloze.objectives import Objective
from cloze.objectives.objective import Kind
from cloze.registry import made_by

PACKAGE = Path(cloze.__file__).parent
KINDS = ("edit", "objective", "source", "optimizer", "rate", "network")
EVERY = [(kind, name) for kind in KINDS for name in parts.names(kind)]


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=[f"{kind}-{name}" for kind, name in EVERY])
def test_a_part_says_what_it_makes_and_inherits_from_the_class_of_its_kind(kind: str, name: str) -> None:
    assert isinstance(made_by(parts.builder_of(kind, name)), type)


@pytest.mark.parametrize("name", parts.names("objective"))
def test_an_objective_declares_its_kind_and_the_shape_of_its_loss(name: str) -> None:
    made: Any = parts.class_of("objective", name)
    assert {type(made.likelihood), type(made.of_records)} == {bool}
    if issubclass(made, Objective):
        assert made.kind in (None, *get_args(Kind)) and made.scope in ("row", "batch", "step")
        assert {type(made.of_texts), type(made.over_vocabulary)} == {bool} and isinstance(made.set, str)


@pytest.mark.parametrize("name", parts.names("source"))
def test_a_source_declares_how_it_is_bound_and_built(name: str) -> None:
    made: Any = parts.class_of("source", name)
    assert {type(flag) for flag in (made.lanes, made.labelled, made.of_one_length, made.keeps_empty)} == {bool}
    assert made.labelled == ("build_store" in vars(made))


@pytest.mark.parametrize("name", parts.names("optimizer"))
def test_an_optimiser_declares_whether_it_follows_held_out_losses(name: str) -> None:
    assert isinstance(parts.class_of("optimizer", name).follows_losses, bool)


@pytest.mark.parametrize("name", parts.names("network"))
def test_a_network_declares_what_it_carries_and_how_texts_are_classified_by_it(name: str) -> None:
    made: Any = parts.class_of("network", name)
    assert {type(made.pooled), type(made.carries)} == {bool} and isinstance(made.positions_state, str)
    assert all(isinstance(one, Mapping) for one in (made.sees, made.sizes, made.widths))


@pytest.mark.parametrize("path", sorted((PACKAGE / "networks").rglob("*.py")), ids=lambda path: path.stem)
def test_no_constructor_of_networks_has_more_than_fifteen_parameters_with_self(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            assert len(node.args.args) + len(node.args.kwonlyargs) <= 15, f"{path.name}:{node.lineno}"


def test_optional_members_are_declared_and_not_guessed() -> None:
    calls = [
        f"{path}:{number}" for path in PACKAGE.rglob("*.py") for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\b(getattr|hasattr)\(", line)
    ]
    assert len(calls) < 20, "declare the member on the class of its kind:\n" + "\n".join(calls)
