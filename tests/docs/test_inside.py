"""docs/inside.md is run from top to bottom with a smaller budget; its pages and findings are there afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .test_tutorials import run_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside.md"


def test_the_page_on_looking_inside_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 1)  # tests/probes trains probes until they have converged
    smaller = {
        "--most 40": "--most 6", "--most 20": "--most 2", "rows[::2]": "rows[:30:2]", "rows[1::4]": "rows[1:20:4]",
        "sentences)": "sentences[:40])",
    }  # fmt: skip
    run_page(PAGE, capsys, monkeypatch, smaller)
    assert "What a prediction rests on" in Path("look.html").read_text(encoding="utf-8")
    for kind in ("geometry", "heads", "attention", "layers", "description", "static", "curvature"):
        found = json.loads(Path(kind, "probe.json").read_text(encoding="utf-8"))
        assert found["probe"] == kind and "my-bert" in found["checkpoints"] and Path(kind, "probe.html").is_file()
    surface = json.loads(Path("surface/probe.json").read_text(encoding="utf-8"))["checkpoints"]
    assert set(surface) == {"my-bert", "plane"} and len(surface["my-bert"]["losses"]) == 5
    layers = json.loads(Path("layers/probe.json").read_text(encoding="utf-8"))["checkpoints"]["my-gpt2"]
    assert len(layers["control"]) == len(layers["accuracy"]) == 3 and layers["test"] == 25
