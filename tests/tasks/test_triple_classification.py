"""Triple classification: thresholds by hand, the authors' accuracy for KG-BERT, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CorpusError
from cloze.knowledge.triple_files import read_labelled_triples
from cloze.tasks.intrinsic.link_prediction import LinkScorer
from cloze.tasks.intrinsic.link_texts import scorer_of_any
from cloze.tasks.intrinsic.triple_classification import (
    LabelledTriples,
    best_threshold,
    classify_triples,
    plausibilities,
    read_labelled,
)

SAMPLES = Path(__file__).resolve().parents[2] / "cloze" / "samples"
FACTS = SAMPLES / "facts.tsv"
Capture = pytest.CaptureFixture[str]


class Given(LinkScorer):
    """Scores a triple by the number of its tail."""

    entities, relations = tuple("abcdef"), ("r", "s")

    def scores(self, triples: Any, column: Any, candidates: Any) -> Tensor:
        return torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1, -0.2])[torch.from_numpy(candidates)]


def labelled(*rows: tuple[int, int, bool]) -> LabelledTriples:
    """Triples of relation, tail and label."""
    triples = np.array([(0, relation, tail) for relation, tail, _ in rows], np.int64)
    return LabelledTriples(triples, np.array([fact for *_, fact in rows]), ())


def test_each_relation_has_the_threshold_that_is_best_on_other_triples() -> None:
    dev = labelled((0, 0, True), (0, 2, True), (0, 3, False), (1, 0, True), (1, 1, False))
    test = labelled((0, 1, True), (0, 2, False), (0, 4, False), (1, 1, False), (1, 0, True))
    found = classify_triples(Given(), test, dev)  # thresholds 0.4 and 0.8
    assert found.metrics == {"accuracy": 4 / 5} and found.baseline == {"always": "no fact", "accuracy": 3 / 5}
    assert [(row["relation"], row["examples"]) for row in found.by_class] == [("r", 3), ("s", 2)]
    alone = classify_triples(Given(), test, labelled((0, 0, True), (0, 1, False)))  # 0.8 for the other relation, too
    assert alone.metrics == {"accuracy": 4 / 5}


@pytest.mark.parametrize(("facts", "expected"), [
    ([True, True, True], -np.inf), ([False, False, False], np.inf), ([True, False, True], 2.5), ([False, True, True], -np.inf),
])  # fmt: skip
def test_the_best_threshold_is_in_the_middle_or_beyond_all_scores(facts: list[bool], expected: float) -> None:
    assert best_threshold(np.array([3.0, 2.0, 1.0]), np.array(facts)) == expected


def test_equal_scores_are_on_the_same_side() -> None:
    assert best_threshold(np.array([2.0, 2.0, 1.0]), np.array([True, False, False])) == np.inf
    assert best_threshold(np.array([2.0, 2.0, 2.0, 1.0]), np.array([True, False, True, False])) == 1.5


@pytest.mark.parametrize("line", ["a\tr\tb", "a\tr\tb\t2", "a\tr\t\t1", "a r b 1"])
def test_a_line_without_a_label_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "dev.tsv").write_text(f"a\tr\tb\t-1\n{line}\n")
    with pytest.raises(CorpusError, match=r"dev.tsv:2: .* expected head, relation, tail and a label, with tabs between them"):
        list(read_labelled_triples(tmp_path / "dev.tsv"))


def test_kg_bert_takes_the_class_of_the_higher_score_as_the_authors(tmp_path: Path, capsys: Capture) -> None:
    """The accuracy of `simple_accuracy(argmax(logits), labels)` in run_bert_triple_classifier.py, with transformers' class."""
    transformers = pytest.importorskip("transformers")
    run, test = tmp_path / "run", tmp_path / "test.tsv"
    values = ["--set", "length=24", "--set", "training.batch=4", "--set", "training.held_out=0.0"]
    options = ["--size", "tiny", "--budget", "4steps", "--out", str(run), "--quiet", "--corpus", str(FACTS), *values]
    assert main(["pretrain", "kg-bert-triples", *options]) == 0
    facts = [line.split("\t") for line in FACTS.read_text().splitlines()[:6]]
    rows = [(head, relation, tail, "1") for head, relation, tail in facts]
    rows += [(tail, relation, head, "-1") for head, relation, tail in facts[:4]]
    test.write_text("".join("\t".join(row) + "\n" for row in rows))
    loaded = load_checkpoint(run)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(run).eval()
    roles, right = loaded.tokenizer.roles, []
    for *texts, label in rows:
        tokens, segments = [roles["[CLS]"]], [0]
        for text, segment in zip(texts, (0, 1, 0), strict=True):
            piece = [*loaded.tokenizer.encode(text).ids.tolist(), roles["[SEP]"]]
            tokens, segments = tokens + piece, segments + [segment] * len(piece)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens]), token_type_ids=torch.tensor([segments])).logits[0]
        right.append(int(logits.argmax()) == (label == "1"))
    scorer = scorer_of_any(loaded, FACTS)
    assert classify_triples(scorer, read_labelled(scorer, test), None).metrics == {"accuracy": np.mean(right)}
    capsys.readouterr()
    asked = ["evaluate", str(run), str(test), "--task", "triple_classification", "--graph", str(FACTS)]
    assert main([*asked, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)[str(test)]
    assert figures["metrics"] == {"accuracy": pytest.approx(np.mean(right))} and figures["baseline"]["accuracy"] == 0.6
    assert main(asked) == 0 and "accuracy" in capsys.readouterr().out
    for wrong, told in (
        (["--thresholds", str(test)], "says itself whether a triple is a fact. Omit the option"),
        (["--candidates", "9"], "--candidates: triple_classification ranks nothing. Omit it."),
    ):
        assert main([*asked, *wrong]) == 2
        assert told in capsys.readouterr().err


def test_vectors_need_the_thresholds_of_other_triples(tmp_path: Path, capsys: Capture) -> None:
    run, dev = tmp_path / "run", tmp_path / "dev.tsv"
    assert main(["pretrain", "transe", "--corpus", str(FACTS), "--budget", "2steps", "--out", str(run), "--quiet"]) == 0
    head, relation, tail = FACTS.read_text().splitlines()[0].split("\t")
    dev.write_text(f"{head}\t{relation}\t{tail}\t1\n{head}\t{relation}\t{head}\t-1\nnowhere\t{relation}\t{tail}\t1\n")
    capsys.readouterr()
    asked = ["evaluate", str(run), str(dev), "--task", "triple_classification", "--json"]
    assert main(asked) == 2
    assert "labelled triples must set the threshold of each relation.\n  Name their file: --thresholds" in capsys.readouterr().err
    assert main([*asked, "--thresholds", str(dev)]) == 0
    figures = json.loads(capsys.readouterr().out)[str(dev)]
    scorer = scorer_of_any(load_checkpoint(run), None)
    right, wrong = plausibilities(scorer, read_labelled(scorer, dev).triples)
    assert figures["metrics"]["accuracy"] == (1.0 if right > wrong else 0.5) and figures["examples"] == 2
    assert f"1 of 3 triples have an unknown id and are left out (first: {dev}:3: 'nowhere')" in figures["remarks"]
