"""docs/compare.md is run from top to bottom, with one seed and in this process; only its budget is made smaller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.comparison.conftest import Here

from .test_tutorials import run_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compare.md"


def test_the_page_on_comparing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here())
    run_page(PAGE, capsys, monkeypatch, {"--seeds 3": "--seeds 1 --tune training.epochs=1"})
    found = json.loads(Path("comparison/compare.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in found["systems"]} == {"bert", "gpt2"} and found["failed"] == []
    assert found["tasks"][0]["examples"] == 32 and Path("comparison/compare.html").is_file()
