"""docs/compare.md and docs/sweep.md are run from top to bottom in this process, with short rows and few seeds and trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.comparison.conftest import Here

from .test_tutorials import run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_on_comparing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here())
    smaller = {"--seeds 3": "--seeds 1 --set length=32 --tune training.epochs=1 --tune length=16"}
    run_page(DOCS / "compare.md", capsys, monkeypatch, smaller)
    found = json.loads(Path("comparison/compare.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in found["systems"]} == {"bert", "gpt2"} and found["failed"] == []
    assert found["tasks"][0]["examples"] == 32 and Path("comparison/compare.html").is_file()


def test_the_page_on_sweeps_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.api.sweep.workers_on", lambda place, count: Here())
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here())
    smaller = {
        "--trials 16": "--trials 2 --rungs 0.5,1 --set length=32",
        'budget="1Mtokens"': 'budget="4steps", overrides=["length=32"]',
    }
    run_page(DOCS / "sweep.md", capsys, monkeypatch, smaller)
    found = json.loads(Path("sweep/sweep.json").read_text(encoding="utf-8"))
    assert [len(one["losses"]) for one in found["trials"]] == [2, 1] and found["failed"] == []
    assert Path("sweep/sweep.html").is_file()
