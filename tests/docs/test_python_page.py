"""docs/python.md is run from top to bottom; only its budget is made smaller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.conftest import Here

from . import test_tour
from .test_tour import blocks, run_session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_page_on_python_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_tour, "TOUR", PAGE)
    monkeypatch.setattr("cloze.api.compare.workers_on", lambda place, count: Here())
    names: dict[str, Any] = {"__name__": "page"}
    ran = []
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        code = re.sub(r'budget="\w+"', 'budget="3steps"', block.code)
        ran.append(block.language)
        if block.language == "pycon":
            run_session(block, names)
        else:
            exec(compile("\n" * (block.line - 1) + code, str(PAGE), "exec"), names)
    assert ran.count("python") >= 3 and ran.count("pycon") >= 5 and set(ran) == {"python", "pycon"}


def test_every_method_of_a_model_is_on_the_page() -> None:
    from cloze import Model

    text = PAGE.read_text(encoding="utf-8")
    for name in (name for name in vars(Model) if not name.startswith("_")):
        assert f"{name}(" in text or f"`{name}`" in text or name in ("can", "described", "folder", "labels", "metrics", "outcome",
                                                                   "task", "tasks"), name  # fmt: skip
