"""Dependency parsing from the command line: trees are learned, measured and written as CoNLL-U."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.trees import each_tree
from cloze.errors import TaskError
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks import load_tuned, task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.dependency_parsing import NAMES
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import data as described
from tests.making import network_of

#: A determiner hangs on its noun, nouns on the verb before or behind them, marks on the verb.
SENTENCES = [
    "the:2:det cat:3:nsubj saw:0:root rain:3:obj", "a:2:det dog:3:nsubj saw:0:root the:5:det mat:3:obj",
    "dog:2:nsubj saw:0:root", "the:2:det dog:3:nsubj saw:0:root a:5:det mat:3:obj",
]  # fmt: skip


def conllu(sentence: str) -> str:
    rows = [word.split(":") for word in sentence.split()]
    return "".join(f"{n}\t{w}\t_\t_\t_\t_\t{h}\t{r}\t_\t_\n" for n, (w, h, r) in enumerate(rows, start=1)) + "\n"


@pytest.fixture(scope="module")
def parser(folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("parser")
    (place / "train.conllu").write_text("".join(map(conllu, SENTENCES * 4)), encoding="utf-8")
    values = [
        "training.batch=4", "training.epochs=18", "training.rate.peak=3e-3", "corpus.length=24", "objectives[0].arc_width=24",
        "objectives[0].relation_width=12", "objectives[0].dropout=0", "task.patience=0", "network.dropout=0",
        "training.layerwise_rates.times=5", "training.evaluate_every=0.25",
    ]  # fmt: skip
    made = finetune(
        folder("bert"), task="dependency_parsing", train=[str(place / "train.conllu")], dev=[str(place / "train.conllu")],
        out=place / "out", overrides=values, report=lambda line: None,
    )
    return made, place


def test_trees_are_learned_and_the_folder_answers_as_in_training(parser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made, place = parser
    standing = made.outcomes[1].standing
    assert standing.metrics["las"] >= 0.8 and set(standing.metrics) == set(NAMES)
    learner, told = load_tuned(load_checkpoint(place / "out"))
    found = evaluate(learner, learner.task.read(place / "train.conllu"), constant_answer=told["constant_answer"])
    assert found.metrics == pytest.approx(standing.metrics) and found.baseline is not None
    assert found.baseline["las"] < found.metrics["las"]
    assert main(["evaluate", str(place / "out"), str(place / "train.conllu"), "--bootstrap", "100"]) == 0
    shown = capsys.readouterr().out
    assert "every word counts, punctuation too, in clas content words alone" in shown and "nsubj" in shown


def test_trees_are_written_as_conllu(parser: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, place = parser
    lines = ["# newdoc", *conllu(SENTENCES[0]).replace("\t3\tobj", "\t_\t_").rstrip().split("\n")]
    lines.insert(2, "2-3\tcatsaw" + "\t_" * 8)
    lines.insert(4, "2.1\tempty" + "\t_" * 8)
    (tmp_path / "new.conllu").write_text("\n".join(lines) + "\n\n" + conllu(SENTENCES[2]), encoding="utf-8")
    out = tmp_path / "parsed.conllu"
    for _ in range(2):  # a file of trees is replaced by others
        assert main(["predict", str(place / "out"), str(tmp_path / "new.conllu"), "--out", str(out)]) == 0
    first, second = each_tree(out)  # they are trees
    assert first.rows[:2] == ("# generator = cloze", "# newdoc") and first.rows[3] == lines[2] and first.rows[5] == lines[4]
    assert first.words == ("the", "cat", "saw", "rain") and second.words == ("dog", "saw")
    learner, _ = load_tuned(load_checkpoint(place / "out"))
    said = learner.predict(learner.task.read(tmp_path / "new.conllu", labelled=False), size=4, report=lambda done: None)
    assert [one.heads for one in said] == [first.heads, second.heads] and said[0].relations == first.relations
    capsys.readouterr()
    assert main(["predict", str(place / "out"), "the cat saw rain."]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# generator = cloze\n# text = the cat saw rain.\n1\tthe\t_") and "4\train\t_\t_\t_\t_\t3" in shown
    assert "SpaceAfter=No\n5\t." in shown
    assert main(["predict", str(place / "out"), "the cat saw rain", "--out", str(tmp_path / "x.jsonl")]) == 0
    assert json.loads((tmp_path / "x.jsonl").read_text())["heads"] == list(first.heads)


def test_a_sentence_that_the_network_cannot_read_at_once_is_one_tree(parser: Any) -> None:
    _, place = parser
    learner, _ = load_tuned(load_checkpoint(place / "out"))
    words = "the cat saw a dog " * 12
    path = place / "long.txt"
    path.write_text(words, encoding="utf-8")
    (said,) = learner.predict(learner.task.read(path, labelled=False), size=4, report=lambda done: None)
    assert len(said.heads) == 60 and said.heads.count(0) == 1 and said.relations.count("root") == 1


@pytest.mark.parametrize(("kind", "name"), [("two_stream", "token_labelling_crf"), ("lstm", "dependency_parsing")])
def test_networks_that_are_no_transformer_are_asked_for_words_too(tmp_path: Path, kind: str, name: str) -> None:
    arguments = {"layers": 1, "width": 16} | ({"heads": 2, "feed_forward.inner": 24} if kind == "two_stream" else {})
    tokenizer = Words(min_count=1).train(["the cat a dog saw rain mat"], Normalise())
    torch.manual_seed(0)
    made = network_of(kind, **arguments, vocab_size=tokenizer.size, clock=Clock())
    order = "open" if kind == "two_stream" else "left_to_right"
    export_folder(
        tmp_path / "start", model=PortableModel(described(kind, **arguments), order, made.state_dict(), {}, kind),
        tokenizer=tokenizer,
        reading=Reading("{A} [EOS]", None, "last"), card=Card(kind),
    )
    data = tmp_path / ("x.conllu" if name == "dependency_parsing" else "x.conll")
    tagged = "the\tO\ncat\tB-X\nsaw\tO\n\na\tO\ndog\tB-X\ndog\tI-X\n\n"
    data.write_text("".join(map(conllu, SENTENCES)) if name == "dependency_parsing" else tagged, encoding="utf-8")
    tuned = finetune(
        tmp_path / "start", task=name, train=[str(data)], dev=[str(data)], out=tmp_path / "out", report=lambda line: None,
        overrides=["training.epochs=1", "training.batch=2", "corpus.length=24"],
    )
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    standing = tuned.outcomes[1].standing
    assert standing is not None
    assert evaluate(learner, learner.task.read(data)).metrics == pytest.approx(standing.metrics)


def test_what_means_nothing_here_is_refused(parser: Any, tmp_path: Path) -> None:
    chosen: Any = task("dependency_parsing")
    with pytest.raises(TaskError, match="--columns: trees are read from CoNLL-U"):
        chosen.for_files(columns=["a"], format=None, quoting="auto")
    with pytest.raises(TaskError, match="finds the best tree"):
        chosen.with_beam_search(beams=3, length_penalty=None)
    (tmp_path / "x.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(TaskError, match=r"x.tsv:1: 2 tab-separated cells, expected the 10 of CoNLL-U"):
        chosen.read(tmp_path / "x.tsv")
