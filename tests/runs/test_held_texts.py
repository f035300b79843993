"""`cloze pretrain --measure`: texts measured before and after a run, in its log, its report and its closing lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.sources.passages import split_documents
from cloze.decoding.scores.text_figures import figures_of
from cloze.errors import CorpusError
from cloze.reports import write_report
from cloze.runs.held_texts import parse_measured, trained_on
from cloze.runs.planning import plan
from cloze.runs.run import pretrain
from cloze.runs.text_distance import held_out_passages
from tests.small_recipe import MINE

SMALL = (("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4"))
GENERAL = ["the old roof falls.", "a cat sleeps."]


@pytest.fixture(scope="module")
def place(little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps in `start`, and the same continued for three with a larger vocabulary in `run`."""
    folder = tmp_path_factory.mktemp("held")
    text = MINE
    for old, new in SMALL:
        text = text.replace(old, new)
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    (folder / "general.txt").write_text("\n".join(GENERAL) + "\n", encoding="utf-8")
    pretrain(folder / "mine.yaml", corpus=little_text, out=folder / "start", budget="2steps", report=lambda line: None)
    found = ["--corpus", str(little_text), "--add", "3", "--out", str(folder / "words")]
    assert main(["vocab", "candidates", str(folder / "start"), *found]) == 0
    (folder / "said.json").write_text(json.dumps(continued(folder, little_text, "run")), encoding="utf-8")
    return folder


def continued(folder: Path, text: Path, out: str, **options: Any) -> list[str]:
    said: list[str] = []
    given = {"measure": [f"general={folder / 'general.txt'}", f"domain={text}"], "init": folder / "start", **options}
    pretrain(
        folder / "mine.yaml", corpus=text, tokenizer=folder / "words", out=folder / out, budget="3steps", report=said.append,
        **given,
    )
    return said


def table(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["event"] == "table"]


def test_the_checkpoint_is_measured_with_its_vocabulary_and_the_result_with_its_own(place: Path) -> None:
    (found,) = table(place / "run")
    for when, folder in (("before", place / "start"), ("after", place / "run")):
        assert found[when]["general"] == figures_of(load_checkpoint(folder), [GENERAL]).record()
        assert found[when]["general"]["method"] == "pseudo_log_likelihood"
    before, after = found["before"]["domain"], found["after"]["domain"]
    assert after["tokens"] < before["tokens"] and after["bytes"] == before["bytes"] and after["words"] == before["words"]
    assert found["step"] == 3 and [row[0] for row in found["rows"]] == ["general", "domain"]


def test_the_closing_lines_and_the_report_name_the_pseudo_likelihood(place: Path) -> None:
    (found,) = table(place / "run")
    _, size, before, after, fewer, more = found["rows"][0]
    said = json.loads((place / "said.json").read_text())
    at = said.index("measured on held-out texts, before → after:")
    assert said[at + 1] == f"  general  pseudo-bits per byte {before} → {after}, tokens per word {fewer} → {more}"
    assert "no probability of the text" in said[at + 3] and size == str(len("".join(GENERAL)))
    page = write_report(place / "run", place / "page.html").read_text(encoding="utf-8")
    assert "Held-out texts before and after" in page and "no probability of the text" in page and f"<td>{after}</td>" in page


def test_a_text_of_the_corpus_is_told(place: Path, little_text: Path, tmp_path: Path) -> None:
    (note,) = [line for line in json.loads((place / "said.json").read_text()) if "is part of the corpus" in line]
    assert note.startswith(f"note: --measure domain={little_text}: ")
    inside = tmp_path / "texts" / "more" / "a.txt"
    for corpus in (tmp_path / "texts", tmp_path / "texts" / ".." / "texts", tmp_path / "t*s", inside):
        inside.parent.mkdir(parents=True, exist_ok=True)
        assert len(trained_on({"a": str(inside), "b": str(tmp_path / "b.txt")}, [corpus])) == 1


def test_measuring_changes_no_weight_and_a_finished_run_is_not_measured_again(place: Path, little_text: Path) -> None:
    continued(place, little_text, "plain", measure=[])
    plain, measured = (load_checkpoint(place / name).network.state_dict() for name in ("plain", "run"))
    assert all(torch.equal(tensor, plain[name]) for name, tensor in measured.items()) and not table(place / "plain")
    continued(place, little_text, "run")
    assert len(table(place / "run")) == 1


def test_a_run_from_random_weights_has_figures_after_it_alone(place: Path, little_text: Path) -> None:
    pretrain(
        place / "mine.yaml", corpus=little_text, out=place / "fresh", budget="1steps", report=lambda line: None,
        measure=[str(place / "general.txt")],
    )
    (found,) = table(place / "fresh")
    assert found["before"] == {} and found["rows"][0][2] == found["rows"][0][4] == "–" and float(found["rows"][0][3]) > 0


def test_texts_are_named_and_refused_before_training(place: Path, little_text: Path, tmp_path: Path) -> None:
    assert parse_measured(["a=b.txt", "/x/news.txt.xz"]) == {"a": "b.txt", "news": "/x/news.txt.xz"}
    with pytest.raises(CorpusError, match="two texts are called news"):
        parse_measured(["a/news.txt", "b/news.txt"])
    with pytest.raises(CorpusError, match="--measure =b: expected NAME=PATH or a path"):
        parse_measured(["=b"])
    with pytest.raises(CorpusError, match="gone.txt"):
        continued(place, little_text, "refused", measure=["gone.txt"])
    assert not (place / "refused").exists()


def test_a_plan_compares_the_text_with_what_a_run_held_out(place: Path) -> None:
    loaded, store = load_checkpoint(place / "start"), Store.open(place / "start" / "cloze" / "corpus" / "main" / "store")
    held = split_documents(store.documents, 0.01)["held_out"]
    ids = [store.tokens[store.document_starts[number] : store.document_starts[number + 1]] for number in held]
    passages = held_out_passages(place / "start")
    assert sorted(" ".join(passages).split()) == sorted(" ".join(map(loaded.tokenizer.decode, ids)).split())
    (planned,) = plan(place / "mine.yaml", corpus=place / "general.txt", init=place / "start", budget="2steps", device="cpu")
    read = [[loaded.tokenizer.decode(loaded.tokenizer.encode(text).ids) for text in texts] for texts in (GENERAL, passages)]
    figures = [figures_of(loaded, [[text] for text in texts]) for texts in read]
    pieces, bits = [text.tokens_per_word for text in figures], [text.bits_per_byte for text in figures]
    assert str(planned).splitlines()[-4:] == [
        f"this text under {place / 'start'}:",
        f"  pieces per word: {pieces[0]:.2f} ({pieces[1]:.2f} in its held-out text), 0.0 % of them unknown",
        f"  pseudo-bits per byte: {bits[0]:.2f} on a sample of this text, {bits[1]:.2f} on its held-out text",
        "  advice: continue this model: at the peak rate of a new one it learns this text better than `quick`, and forgets more",
    ]
