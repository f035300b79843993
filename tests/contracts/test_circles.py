"""No modules import each other in a circle, not even inside functions or for the type checker alone."""

from __future__ import annotations

import pytest

grimp = pytest.importorskip("grimp")


def circle(imported: dict[str, set[str]]) -> list[str]:
    """Modules that remain when those that import no other of them are taken away, again and again."""
    left = dict(imported)
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("cloze", exclude_type_checking_imports=False)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 300 and circle(imported) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
