"""Names say what they hold: variables and parameters that say nothing, classes of one name, and modules of one name are counted.

The numbers may only fall. `python -m tests.contracts.test_names` prints where they come from.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every module."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def assigned(tree: ast.Module) -> Iterator[ast.Name]:
    """Every name that is assigned."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def empty_names(modules: dict[Path, ast.Module]) -> tuple[list[str], float]:
    """Where names that say nothing are assigned, and their share of all assignments."""
    names = [(path, name) for path, tree in modules.items() for name in assigned(tree)]
    places = [f"{path.relative_to(PACKAGE)}:{name.lineno}: {name.id}" for path, name in names if name.id in EMPTY]
    return places, len(places) / len(names)


def empty_parameters(modules: dict[Path, ast.Module]) -> list[str]:
    """Where parameters have names that say nothing."""
    return [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.arg}" for path, tree in modules.items() for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg in EMPTY
    ]


def repeated_classes(modules: dict[Path, ast.Module]) -> list[str]:
    """Public names of classes that are defined in more than one module."""
    names = Counter(
        name for tree in modules.values()
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} if not name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def repeated_modules() -> list[str]:
    """Modules of one name within a top package."""
    names = Counter(
        (path.relative_to(PACKAGE).parts[0], path.name) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
    )
    return sorted("/…/".join(name) for name, count in names.items() if count > 1)


def test_local_names_say_what_they_hold() -> None:
    places, share = empty_names(trees())
    assert share <= MOST_EMPTY, "\n".join(places)


def test_parameters_say_what_they_hold() -> None:
    places = empty_parameters(trees())
    assert len(places) <= MOST_EMPTY_PARAMETERS, "\n".join(places)


def test_few_classes_share_their_name() -> None:
    assert len(repeated_classes(trees())) <= MOST_CLASSES


def test_no_modules_of_a_package_share_their_name() -> None:
    assert len(repeated_modules()) <= MOST_MODULES, "\n".join(repeated_modules())


def test_names_that_say_nothing_are_found() -> None:
    tree = ast.parse("found = 1\nfor one in rows:\n    total = one\n[own for own in found]\n")
    places, share = empty_names({PACKAGE / "x.py": tree})
    assert places == ["x.py:1: found", "x.py:2: one", "x.py:4: own"] and share == 3 / 4
    tree = ast.parse("def read(given, path): ...\nlambda one: one\n")
    assert empty_parameters({PACKAGE / "x.py": tree}) == ["x.py:1: given", "x.py:2: one"]
    assert repeated_classes({Path("a"): ast.parse("class A: ...\nclass _B: ..."), Path("b"): ast.parse("class A: ...")}) == ["A"]


if __name__ == "__main__":
    every = trees()
    print("\n".join([*empty_names(every)[0], *empty_parameters(every), *repeated_classes(every), *repeated_modules()]))
