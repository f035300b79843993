"""`cloze.compare`: the answers of the command line, as an object."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.cli.main import main
from cloze.errors import CorpusError, TaskError

from .conftest import Here, stub


@pytest.fixture
def found(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cloze.Comparison:
    """Two recipes with one value varied, on two tasks."""
    monkeypatch.chdir(files)
    monkeypatch.setattr("cloze.api.compare.workers_on", lambda place, count: Here(stub))
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here(stub))
    three: Any = ("train.tsv", Path("dev.tsv"), "test.tsv")
    return cloze.compare(
        ["a.yaml", Path("b.yaml")], tasks={"mood": three, "back": ("sentence_classification", *three)}, out=tmp_path / "out",
        corpus="text.txt", budget="4steps", seeds=2, vary={"training.batch": [4, 8]}, tuning={"back:training.epochs": 1},
        encoding="latin-1", reach=0.5, report=None,
    )  # fmt: skip


def test_it_finds_what_the_command_finds(
    found: cloze.Comparison, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = "train.tsv,dev.tsv,test.tsv"
    typed = [
        "compare", "a.yaml", "b.yaml", "--task", f"mood={task}", "--task", f"back=sentence_classification:{task}", "--corpus",
        "text.txt", "--budget", "4steps", "--seeds", "2", "--vary", "training.batch=4,8", "--tune", "back:training.epochs=1",
        "--encoding", "latin-1", "--reach", "0.5", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    assert main([*typed, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(json.dumps(found.data()))
    assert [(one["name"], one["metric"]) for one in said["tasks"]] == [("mood", "accuracy"), ("back", "accuracy")]
    assert main([*typed, "--json", "--csv"]) == 2
    assert "--json and --csv choose the format of the output" in capsys.readouterr().err
    assert main([*typed, "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(found.table()) == 1 + 4 * 2 * 2
    assert main(typed) == 0
    assert repr(found) == capsys.readouterr().out.rstrip("\n") + f"\n\nPage: {tmp_path / 'out' / 'compare.html'}"


def test_its_table_becomes_a_data_frame_and_its_page_is_there(found: cloze.Comparison) -> None:
    assert found.page.is_file() and found.sentence in repr(found) and found.failures == []
    row = found.table()[0]
    assert (row["task"], row["metric"], row["seed"], row["score"], row["tokens"]) == ("mood", "accuracy", 1, 0.5, 64.0)
    pytest.importorskip("pandas")
    made = cloze.frame(found.table())
    assert list(made.columns) == list(row) and len(made) == 16


def test_a_notebook_shows_the_table_the_sentence_and_the_figures_of_the_page(found: cloze.Comparison) -> None:
    html = found._repr_html_()
    assert html.count("<tr>") == len(found.answer.systems) + 3 and found.sentence in unescape(html) and "Page: " in html
    titles = [figure.title for figure in found.plot().figures]
    assert titles[0].startswith("mean accuracy over 2 tasks") and titles[1].startswith("mood: accuracy")
    assert 'class="spreads"' in found.plot()._repr_svg_()


def test_an_encoding_is_for_files_and_has_a_name(tmp_path: Path) -> None:
    three, texts = ("train.tsv", "dev.tsv", "test.tsv"), ["the cat", "the dog"]
    rows = [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}]
    for corpus, encoding, message in ((texts, "latin-1", "corpus is in memory"), ([], "nonsense", "no such encoding")):
        with pytest.raises(CorpusError, match=message):
            cloze.compare(["bert"], tasks={"mood": three}, corpus=corpus, encoding=encoding, out=tmp_path / "out")
        with pytest.raises(CorpusError, match=message):
            cloze.sweep(
                "bert", corpus=corpus, vary={"training.batch": [4]}, budget="4steps", encoding=encoding, out=tmp_path / "out"
            )
    with pytest.raises(CorpusError, match="encoding='latin-1': is for files, and train is in memory. Give files, or omit it."):
        cloze.best(corpus=[], train=rows, encoding="latin-1", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_task_with_too_few_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="tasks: 'mood' has 2 values. Expected the files"):
        cloze.compare(["bert"], tasks={"mood": ("train.tsv", "dev.tsv")}, out=tmp_path / "out")
