"""Names say what they hold: variables and parameters that say nothing, classes of one name, and modules of one name are counted.

The numbers may only fall. `python -m tests.contracts.test_names` prints where they come from.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "cloze"
#: Participles and pronouns: what a variable of such a name holds is known only by reading on.
EMPTY = frozenset({
    "found", "made", "one", "own", "given", "kept", "place", "known", "said", "told", "asked", "met", "some", "each", "wanted",
    "taken", "tried", "mine", "theirs", "shown", "meant", "whole", "others", "named", "written", "there", "wide", "begun",
    "bare",
})  # fmt: skip
MOST_EMPTY = 0.003  # of all assignments; fields of classes count, too
MOST_EMPTY_PARAMETERS = 1  # of functions; that one is public
MOST_CLASSES = 2  # public names that more than one class has
MOST_MODULES = 0  # names that more than one module of a folder's tree has, `__init__` left out


class Names(NamedTuple):
    """What a module names: variables that it assigns, parameters, each with its line, and public classes."""

    assigned: list[tuple[str, int]]
    parameters: list[tuple[str, int]]
    classes: set[str]


def names_of(source: str) -> Names:
    """The names of a module, from one walk over its syntax tree."""
    names = Names([], [], set())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.assigned.append((node.id, node.lineno))
        elif isinstance(node, ast.arg):
            names.parameters.append((node.arg, node.lineno))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            names.classes.add(node.name)
    return names


@cache
def modules() -> dict[str, Names]:
    """The names of every module of the package; the trees would take 235 MB."""
    return {
        str(path.relative_to(PACKAGE)): names_of(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    }


def empty_names(modules: Mapping[str, Names]) -> tuple[list[str], float]:
    """Where names that say nothing are assigned, and their share of all assignments."""
    places = [f"{path}:{line}: {name}" for path, names in modules.items() for name, line in names.assigned if name in EMPTY]
    return places, len(places) / sum(len(names.assigned) for names in modules.values())


def empty_parameters(modules: Mapping[str, Names]) -> list[str]:
    """Where parameters have names that say nothing."""
    return [f"{path}:{line}: {name}" for path, names in modules.items() for name, line in names.parameters if name in EMPTY]


def repeated_classes(modules: Mapping[str, Names]) -> list[str]:
    """Public names of classes that are defined in more than one module."""
    counts = Counter(name for names in modules.values() for name in names.classes)
    return sorted(name for name, count in counts.items() if count > 1)


def repeated_modules() -> list[str]:
    """Modules of one name within a top package."""
    names = Counter(
        (path.relative_to(PACKAGE).parts[0], path.name) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
    )
    return sorted("/…/".join(name) for name, count in names.items() if count > 1)


def test_local_names_say_what_they_hold() -> None:
    places, share = empty_names(modules())
    assert share <= MOST_EMPTY, "\n".join(places)


def test_parameters_say_what_they_hold() -> None:
    places = empty_parameters(modules())
    assert len(places) <= MOST_EMPTY_PARAMETERS, "\n".join(places)


def test_few_classes_share_their_name() -> None:
    assert len(repeated_classes(modules())) <= MOST_CLASSES


def test_no_modules_of_a_package_share_their_name() -> None:
    assert len(repeated_modules()) <= MOST_MODULES, "\n".join(repeated_modules())


def test_names_that_say_nothing_are_found() -> None:
    source = names_of("found = 1\nfor one in rows:\n    total = one\n[own for own in found]\n")
    places, share = empty_names({"x.py": source})
    assert places == ["x.py:1: found", "x.py:2: one", "x.py:4: own"] and share == 3 / 4
    source = names_of("def read(given, path): ...\nlambda one: one\n")
    assert empty_parameters({"x.py": source}) == ["x.py:1: given", "x.py:2: one"]
    assert repeated_classes({"a": names_of("class A: ...\nclass _B: ..."), "b": names_of("class A: ...\nclass _B: ...")}) == ["A"]


if __name__ == "__main__":
    every = modules()
    print("\n".join([*empty_names(every)[0], *empty_parameters(every), *repeated_classes(every), *repeated_modules()]))
