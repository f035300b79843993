"""The notebook of the tutorials is run from top to bottom; only its budgets and data are made smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.notebooks import become_kernel, run_cells
from tests.site_scripts import stage

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "first-steps.ipynb"
SMALLER = {
    "in python_docs()]": "in __import__('itertools').islice(python_docs(), 40)]", 'budget="2m"': 'budget="3steps", size="tiny"',
    '"text.tokenizer.size": 6000': '"text.tokenizer.size": 400', '"length": 64': '"length": 32, "training.epochs": 2',
    "bootstrap=1000": "bootstrap=100", 'record.part != "train"]': 'record.part != "train"][:40]',
}  # fmt: skip


def test_the_notebook_of_first_steps_runs_and_shows_tables_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    front_end = become_kernel(monkeypatch)
    values = run_cells(NOTEBOOK, SMALLER)
    for cell in ("pretrain", "plot-pretraining", "fill", "finetune", "plot-finetuning", "evaluate", "predict"):
        html = values[cell]._repr_html_()
        assert ("<svg" if cell.startswith("plot-") else "<table") in html and "<script" not in html, cell
    titles = [figure.title for cell in ("plot-pretraining", "plot-finetuning") for figure in values[cell].figures]
    assert titles[:3] == ["Loss against tokens", "Loss against tokens", "accuracy on the dev examples"]
    pretrained, tuned = [output for output in front_end.outputs if "tokens/s" in output]
    assert "single tokens" in pretrained and len(re.findall("<td>frozen start|<td>\\d", tuned)) >= 3
    assert "left" not in pretrained + tuned
    assert Path("pre-training.svg").is_file() and values["save"] in ("asyncio", "email", "tkinter", "xml")
    printed, errors = capsys.readouterr()
    assert "interrupt the kernel" in printed and "Ctrl-C" not in printed and "  dev: " not in printed and "tokens/s" not in errors


def test_the_notebook_holds_no_outputs_and_its_cells_are_named() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][a-z-]{2,63}", name) for name in ids)


def test_the_site_has_the_notebook_as_a_page_and_as_a_file() -> None:
    page = stage.site_pages()["docs/tutorials/first-steps.md"]
    assert page.startswith("# First steps in a notebook\n") and "[the notebook](first-steps.ipynb)" in page
    code = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert re.findall("```python\n(.*?)\n```", page, re.S) == ["".join(cell["source"]) for cell in code]
    assert "docs/tutorials/first-steps.ipynb" in stage.sources()
