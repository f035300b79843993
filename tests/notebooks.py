"""This process as the kernel of a notebook, and notebooks whose cells are run in it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class FrontEnd:
    """What a reader of a notebook sees: `outputs` holds the HTML of each display, `messages` counts what was sent."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.messages = 0

    def display(self, shown: Any, *, display_id: bool) -> Any:
        """`IPython.display.display`."""
        assert display_id
        number = len(self.outputs)
        self.outputs.append("")

        def update(changed: Any) -> None:
            self.messages += 1
            self.outputs[number] = changed._repr_html_()

        update(shown)
        return SimpleNamespace(update=update)


def become_kernel(monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    """Let this process look like the kernel of a notebook until the test ends."""
    front_end = FrontEnd()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(has_trait={"kernel"}.__contains__)  # type: ignore[attr-defined]
    display.display = front_end.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return front_end


def run_cells(notebook: Path, smaller: Mapping[str, str]) -> dict[str, Any]:
    """Run the code cells of a notebook one after another; returns the value of the expression that each ends with, by its id.

    `smaller` replaces texts of the code, each of which must be there.
    """
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells}
    for before, after in smaller.items():
        assert any(before in source for source in sources.values()), f"{notebook.name} no longer says {before!r}"
        sources = {name: source.replace(before, after) for name, source in sources.items()}
    names: dict[str, Any] = {"__name__": "notebook"}
    values = {}
    for name, source in sources.items():
        tree = ast.parse(source, name)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), names)
        values[name] = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), names)
    return values
