"""Every registered part declares what recipes, training and commands ask of its kind; nothing is guessed from names."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

import cloze
from cloze.networks.network import StackKind
from cloze.objectives import Objective, StepObjective
from cloze.objectives.objective import Kind
from cloze.recipe import parts
from cloze.registry import made_by, parameters
from cloze.training.optimizers.optimizers import Family

PACKAGE = Path(cloze.__file__).parent
KINDS = ("edit", "objective", "source", "optimizer", "rate", "layerwise", "network")
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
        assert (made.scope == "step") == issubclass(made, StepObjective)
        assert {type(made.of_texts), type(made.over_vocabulary)} == {bool} and isinstance(made.set, str)
    assert made.vectors_from in (None, "windows", "cells")


@pytest.mark.parametrize("name", parts.names("edit") + parts.names("order"))
def test_an_edit_declares_whether_it_hides_tokens_and_frames_texts(name: str) -> None:
    made: Any = parts.class_of("edit" if name in parts.names("edit") else "order", name)
    assert {type(made.hides), type(made.frames), type(made.spreads), type(made.separates)} == {bool}
    if made.frames:
        assert "template" in parameters(parts.builder_of("edit", name))
    if made.thins is not None:
        assert made.thins in parameters(parts.builder_of("edit", name))


@pytest.mark.parametrize("name", parts.names("source"))
def test_a_source_declares_how_it_is_bound_and_built(name: str) -> None:
    made: Any = parts.class_of("source", name)
    assert {type(flag) for flag in (made.lanes, made.builds_store, made.of_one_length, made.keeps_empty)} == {bool}
    assert made.builds_store == hasattr(made, "build_store")
    assert made.of_rows <= parameters(parts.builder_of("source", name)).keys()
    assert made.text_format is None or isinstance(made.text_format, str)


@pytest.mark.parametrize("name", parts.names("optimizer"))
def test_an_optimizer_declares_whether_it_follows_held_out_losses(name: str) -> None:
    assert isinstance(parts.class_of("optimizer", name).follows_losses, bool)


@pytest.mark.parametrize("name", parts.names("optimizer"))
def test_an_optimizer_names_the_family_whose_rates_suit_it(name: str) -> None:
    assert parts.class_of("optimizer", name).family in (None, *get_args(Family))


@pytest.mark.parametrize("name", parts.names("rate"))
def test_a_rate_declares_what_suits_a_short_run(name: str) -> None:
    made, accepted = parts.class_of("rate", name), parameters(parts.builder_of("rate", name)).keys()
    assert isinstance(made.free_warmup, bool)
    assert made.in_short_runs(None).keys() <= made.in_short_runs(0.25).keys() <= accepted


@pytest.mark.parametrize("name", parts.names("layerwise"))
def test_rates_by_depth_name_the_argument_that_multiplies_the_rate_of_heads(name: str) -> None:
    argument = parts.class_of("layerwise", name).times_argument
    assert argument is None or argument in parameters(parts.builder_of("layerwise", name))


@pytest.mark.parametrize("name", parts.names("network"))
def test_a_network_declares_what_it_carries_and_how_texts_are_classified_by_it(name: str) -> None:
    made: Any = parts.class_of("network", name)
    assert {type(made.pooled), type(made.carries)} == {bool} and isinstance(made.positions_state, str)
    assert all(isinstance(one, Mapping) for one in (made.sees, made.sizes, made.widths))
    assert made.stack in (None, *get_args(StackKind)) and isinstance(made.of_words, bool)
    assert made.writes is None or isinstance(made.writes, str)


def test_parts_are_not_recognised_by_their_names() -> None:
    kinds = ("edit", "order", "source", "objective", "network", "optimizer", "rate", "layerwise", "change")
    known = "|".join(sorted({name for kind in kinds for name in parts.names(kind)}))
    compared = re.compile(rf'\.(name|part)\b(\.(startswith|endswith)\(| (==|!=|in|not in) )\(*"({known})"')
    found = [
        f"{path}:{number}" for path in PACKAGE.rglob("*.py") for number, line in enumerate(path.read_text().splitlines(), start=1)
        if compared.search(line)
    ]
    assert not found, "declare the member on the class of its kind:\n" + "\n".join(found)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("edit", "objective") for name in parts.names(kind)])
def test_no_edit_or_objective_has_more_than_fifteen_parameters(kind: str, name: str) -> None:
    found = parameters(parts.builder_of(kind, name))
    assert len(found) <= 15, "group those that belong together in a part or a section"


@pytest.mark.parametrize("path", sorted((PACKAGE / "networks").rglob("*.py")), ids=lambda path: path.stem)
def test_no_function_of_networks_has_more_than_fifteen_parameters_with_self(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert len(node.args.args) + len(node.args.kwonlyargs) <= 15, f"{path.name}:{node.lineno}"


#: Objectives that read the ids of tokens, each with the reason. The others take the shape of a view from `cloze.batch.sequence`.
OF_TOKENS = {
    "sample.py": "replaces tokens", "contrast.py": "rows with the same tokens are the same text",
    "contrast_pairs.py": "rows with the same tokens are the same text",
    "evidence.py": "the spans that spell an answer",
    "mixed.py": "the table of the task's own words",
}


def test_an_objective_does_not_need_tokens_to_know_the_shape_of_a_view() -> None:
    found = {path.name for path in (PACKAGE / "objectives").rglob("*.py") if 'frozenset({"tokens"' in path.read_text()}
    assert found == OF_TOKENS.keys()


def test_optional_members_are_declared_and_not_guessed() -> None:
    foreign = {  # look at objects of users and of other libraries, which declare nothing to cloze
        *(PACKAGE / "cli").rglob("*.py"), PACKAGE / "tasks" / "in_memory.py", PACKAGE / "checkpoint" / "checks" / "members.py",
    }
    calls = [
        f"{path}:{number}" for path in PACKAGE.rglob("*.py") for number, line in enumerate(path.read_text().splitlines(), start=1)
        if path not in foreign and re.search(r"\b(getattr|hasattr)\(", line)
    ]
    assert len(calls) < 20, "declare the member on the class of its kind:\n" + "\n".join(calls)
