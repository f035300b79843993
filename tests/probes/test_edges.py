"""Edge probing: labels of spans, read from files, and the classifier and figures of the authors."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.decoding.reader import Reader
from cloze.errors import TaskError, UserError
from cloze.probes.edges import (
    EdgeClassifier,
    SpanTarget,
    SpanTexts,
    control_labels_of,
    edge_sentences,
    expected_layer,
    gravity,
    probe_edges,
    read_edges,
)
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.edge_probing import EdgeProbe
from cloze.probes.training import Convergence
from tests.probes.test_layers import TREE

#: The scores of EdgeClassifierModule (nyu-mll/jiant, branch ep_frozen_20190723, with the span extractor and the ScalarMix of
#: AllenNLP 0.8.4) for the weights, states and spans of the test.
AUTHORS_SCORES = [[0.5154, 2.1283, 1.4967], [2.0889, 2.9574, 1.3648]]


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_scores_of_spans_are_those_of_the_authors_module() -> None:
    model = EdgeClassifier(3, 5, 2, 3, hidden=4).eval()
    order = [model.project[0], model.project[1], model.attend[0], model.attend[1], *(model.classify[n] for n in (0, 2, 4))]
    with torch.no_grad():
        model.mix.copy_(torch.tensor([0.3, -0.2, 0.5]))
        model.scale.fill_(1.5)
        for number, parameter in enumerate(p for module in order for p in module.parameters()):
            if number not in (10, 11):  # those of the norm
                values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float32) * 1.7 + number)
                parameter.copy_(values.view(parameter.shape))
        states = torch.stack([torch.cos(torch.arange(30, dtype=torch.float32) * 0.9 + layer).view(6, 5) for layer in range(3)])
        scores = model(states, torch.tensor([[[0, 1], [2, 6]], [[1, 4], [4, 5]]]))
    np.testing.assert_allclose(scores.numpy(), AUTHORS_SCORES, atol=1e-4)


def test_the_centre_of_gravity_and_the_expected_layer_are_those_of_the_paper() -> None:
    assert gravity([0.2, 0.3, 0.5]) == pytest.approx(1.3)
    assert expected_layer([0.4, 0.6, 0.7, 0.7]) == pytest.approx((1 * 0.2 + 2 * 0.1) / 0.3)
    assert np.isnan(expected_layer([0.4, 0.4]))


def test_targets_are_read_from_json_and_from_trees(tmp_path: Path) -> None:
    row = {"text": "the cat sees mice", "targets": [
        {"span1": [0, 2], "span2": [2, 3], "label": "ARG0"}, {"span1": [3, 4], "span2": [2, 3], "label": ["ARG1", "patient"]},
    ]}  # fmt: skip
    texts = read_edges(lines(tmp_path / "srl.json", row, {"text": "no targets", "targets": []}), most=9)
    assert texts.words == [("the", "cat", "sees", "mice")]
    assert texts.targets == [[
        SpanTarget(((0, 2), (2, 3)), ("ARG0",)), SpanTarget(((3, 4), (2, 3)), ("ARG1", "patient"))
    ]]
    trees = tmp_path / "trees.conllu"
    trees.write_text(TREE, encoding="utf-8")
    assert read_edges(trees, most=1).targets == [[  # the root with itself, as jiant's ud_to_json.py
        SpanTarget(((0, 1), (1, 2)), ("det",)), SpanTarget(((1, 2), (2, 3)), ("nsubj",)),
        SpanTarget(((2, 3), (2, 3)), ("root",)), SpanTarget(((3, 4), (2, 3)), ("obj",)),
    ]]  # fmt: skip


def test_faults_of_targets_are_said_with_their_place(tmp_path: Path) -> None:
    span = {"text": "the cat", "targets": [{"span1": [1, 3], "label": "x"}]}
    with pytest.raises(TaskError, match=r"a\.json:1: the span \[1, 3\] is not \[from, up to\] in 2 words"):
        read_edges(lines(tmp_path / "a.json", span), most=5)
    with pytest.raises(TaskError, match=r'b\.json:1: expected a target with "span1"'):
        read_edges(lines(tmp_path / "b.json", {"text": "the cat", "targets": [{"span1": [0, 1]}]}), most=5)
    with pytest.raises(TaskError, match='expected an object with a "text"'):
        read_edges(lines(tmp_path / "c.json", {"words": []}), most=5)
    both = [{"span1": [0, 1], "label": "x"}, {"span1": [0, 1], "span2": [1, 2], "label": "y"}]
    with pytest.raises(TaskError, match="some targets have one span and some have two"):
        read_edges(lines(tmp_path / "d.json", {"text": "the cat", "targets": both}), most=5)
    with pytest.raises(UserError, match="no sentence with targets"):
        read_edges(lines(tmp_path / "e.json", {"text": "the cat", "targets": []}), most=5)


def test_edges_are_learned_and_measured_by_binary_labels(
    checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.probes.edges._CONVERGENCE", Convergence(rate=1e-2))
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 2)
    monkeypatch.setattr("cloze.probes.edges._UPDATES", 10)
    nouns, verbs = ["cat", "dog", "mice"], ["saw", "fell"]
    words = [("the", a, verb, "the", b) for a in nouns for verb in verbs for b in nouns]
    targets = [[SpanTarget(((0, 2), (2, 3)), ("subject", "noun")), SpanTarget(((3, 5), (2, 3)), ("object",))] for _ in words]
    unknown = [[*labelled, SpanTarget(((0, 1), (1, 2)), ("never seen",))] for labelled in targets]
    texts = SpanTexts(words, targets)
    loaded = checkpoint("bert")
    scores = probe_edges(loaded, texts, SpanTexts(words[:4], unknown[:4]), control=False)
    assert scores.classes == 3 and (scores.train, scores.test) == (36, 12) and len(scores.f1) == 3
    # All 12 known labels are found, the 4 unknown ones never are; what is said of their spans is wrong.
    assert scores.recall == 12 / 16 and scores.f1[-1] <= 2 * 12 / (12 + 16)
    assert scores.majority == pytest.approx(2 * 4 / (12 + 16))  # "object" three times in a sentence, right once
    assert sum(scores.weights) == pytest.approx(1.0) and scores.gravity == pytest.approx(gravity(scores.weights))
    finding = EdgeProbe().finding([Subject("a", Path())], {"a": scores})
    assert "Centre of gravity" in as_text(finding) and np.isnan(finding.data["a"]["selectivity"]).all()
    part = edge_sentences(Reader.of(loaded), texts)
    control = dict(zip([k for kinds in part.kinds for k in kinds], chain(*control_labels_of([part], 0)[0]), strict=True))
    drawn = list(chain(*control_labels_of([part, part], 0)[1]))
    assert drawn == [control[kind] for kinds in part.kinds for kind in kinds]  # the same wherever the words are the same
    assert set(drawn) <= {("subject", "noun"), ("object",)}
    with pytest.raises(UserError, match="no labelled span was read"):
        probe_edges(loaded, SpanTexts([("cat",) * 45], [[SpanTarget(((43, 45),), ("x",))]]), texts)
