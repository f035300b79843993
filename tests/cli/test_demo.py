"""The demo's story from end to end, on a slice of its text and with a few steps."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from cloze.cli.look import demo
from cloze.cli.main import main
from cloze.corpus.readers.python_docs import python_docs, python_docs_records


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo on the short documents of five packages and a few hundred of their docstrings; the current folder is empty."""
    # the package's function of the same name hides the module from attribute access
    reader = import_module("cloze.corpus.readers.python_docs")
    library = Path(sysconfig.get_path("stdlib"))
    for package in ("asyncio", "email", "importlib", "unittest", "xml"):
        shutil.copytree(library / package, tmp_path / "library" / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(reader.sysconfig, "get_path", lambda name: str(tmp_path / "library"))
    text = tmp_path / "some.jsonl"
    short = [doc.text[:600] for doc in python_docs()]
    text.write_text("\n".join(json.dumps({"text": line}) for line in short) + "\n", encoding="utf-8")
    records = python_docs_records()[::5]
    monkeypatch.setattr(reader, "python_docs_records", lambda: records)
    monkeypatch.setattr(demo, "CORPUS", str(text))
    monkeypatch.setattr(demo, "LABELS", 40)
    monkeypatch.setattr(demo, "LENGTH", 16)
    monkeypatch.setattr(demo, "OVERRIDES", (*demo.OVERRIDES, "text.tokenizer.size=2000", "training.held_out=0.05"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_the_demo_tells_the_whole_story(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--budget", "6steps"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    for start in (r"always '\w+'", "random start", "n-grams", "pre-trained", r"pre-trained \+ n-grams"):
        assert re.search(rf"{start} +accuracy +[\d.]+ %", shown), start
    assert "Raise a [MASK] if the argument is not a string." in shown
    page = (small / "demo-run" / "quick" / "report.html").read_text(encoding="utf-8")
    assert "From which package does a docstring come?" in page and "pre-trained" in page
    assert (small / "demo-run" / "quick" / "model.safetensors").is_file()
    assert (small / "demo-run" / "packages" / "cloze" / "task.json").is_file()
    assert [line for line in shown.splitlines() if line.strip().startswith("cloze fill demo-run/quick")]
    described = json.loads((small / "demo-run" / "packages" / "cloze" / "task.json").read_text(encoding="utf-8"))
    assert "dev" not in described and f"{100 * described['test']['accuracy']:.1f} %" in shown.split("pre-trained + n-grams")[1]
    labelled, other, test = ((small / "demo-run" / f"packages-{part}.jsonl").read_text(encoding="utf-8").splitlines()
                             for part in ("labelled", "unlabelled", "test"))  # fmt: skip
    rows = [json.loads(line) for line in labelled]
    assert set(Counter(row["label"] for row in rows).values()) == {8}
    assert "label" not in other[0] and not {row["text"] for row in rows} & {json.loads(line)["text"] for line in [*other, *test]}


def test_without_scikit_learn_the_demo_compares_the_two_starts(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    packages = demo.write_task(small / "demo-run", seed=1)
    tuned = []
    monkeypatch.setattr(demo, "_tuned", lambda run, files, out, **options: tuned.append(options) or out)
    monkeypatch.setattr(demo, "_metrics", lambda folder, rows: {"accuracy": 0.5, "macro_f1": 0.5})
    rows, note = demo.compare_starts(small / "quick", packages, small / "packages", seed=1)
    assert [row[0] for row in rows[1:]] == ["random start", "pre-trained"]
    assert tuned == [{"seed": 1, "from_scratch": True}, {"seed": 1}]
    assert 'pip install "cloze-lm[baselines]"' in capsys.readouterr().out


def test_an_impossible_budget_is_refused_before_anything_is_trained(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--budget", "soon"]) == 2
    assert "soon" in capsys.readouterr().err
    assert not (small / "demo-run" / "quick").exists()
