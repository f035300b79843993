"""No modules of a package import each other in a circle, not even inside functions."""

from __future__ import annotations

from functools import cache

import pytest

grimp = pytest.importorskip("grimp")

PACKAGES = (
    "text", "corpus", "exercises", "networks", "objectives", "batching", "decoding", "training", "transfer", "tasks", "reports",
)  # fmt: skip


@cache
def imports() -> dict[str, set[str]]:
    """The modules that each module imports."""
    graph = grimp.build_graph("cloze", exclude_type_checking_imports=True)
    leaves = {module for module in graph.modules if not graph.find_children(module)}
    return {module: graph.find_modules_directly_imported_by(module) & leaves for module in leaves}


def circle(imported: dict[str, set[str]]) -> list[str]:
    """Modules that are left when those that import no other of them are taken away, again and again."""
    left = dict(imported)
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    own = {module: others for module, others in imports().items() if module.startswith(f"cloze.{package}.")}
    assert len(own) > 3 and circle(own) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
