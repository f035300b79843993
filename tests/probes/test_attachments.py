"""Heads of words from their vectors: the authors' probes and figure, and what is learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.probes.attachments import HeadScorer, found_edges, probe_attachments
from cloze.probes.distance import ProbedTrees
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.word_heads import AttachmentProbe
from cloze.probes.linear import HiddenLayers
from cloze.probes.training import Convergence

#: Of john-hewitt/control-tasks, for the weights and vectors of the test: the scores of TwoWordBilinearLabelProbe, and of
#: TwoWordNNLabelProbe with one and two hidden layers (probe.py); the figure of report_uas_and_tikz (reporter.py).
AUTHORS_SCORES = {
    0: [[7.7934, -2.9354, 1.2703], [-5.3862, 4.0533, 1.2801], [5.8887, -1.1707, -0.1505]],
    1: [[1.0449, 0.9840, -0.2865], [1.4235, 2.2505, 0.6743], [-0.4152, 0.8746, -1.8475]],
    2: [[-1.0115, -0.5839, -0.9589], [-1.4512, -0.7369, -1.0827], [-0.9504, -0.7622, -0.9589]],
}
AUTHORS_UUAS = 0.5


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_scores_of_heads_are_those_of_the_authors_probes(hidden: int) -> None:
    model = HeadScorer(4, HiddenLayers(hidden, 5))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float32) * 1.3 + number)
            parameter.copy_(values.view(parameter.shape))
        scores = model(torch.cos(torch.arange(24, dtype=torch.float32) * 0.7).view(2, 3, 4))[1]
    np.testing.assert_allclose(scores.numpy(), AUTHORS_SCORES[hidden], atol=1e-3)


def test_found_edges_are_counted_as_the_authors_reporter_counts_them() -> None:
    heads, guess = np.array([2, 3, 0, 3, 6, 3, 3]) - 1, np.array([1, 0, 0, 4, 2, 2, 0])
    assert found_edges([guess], [heads], [np.array([0, 1, 2, 4, 5])]) == AUTHORS_UUAS  # the cat sat , and slept .


def test_heads_are_learned_and_the_control_belongs_to_the_words(
    checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.probes.attachments.Convergence", lambda: Convergence(rate=1e-2))
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 2)
    trees = ProbedTrees([("the", "cat", "saw", "mice", "."), ("a", "dog", "fell")], [(2, 3, 0, 3, 3), (2, 3, 0)])
    figures = probe_attachments(checkpoint("bert"), trees, trees, HiddenLayers(1, 32))
    assert figures.accuracy[-1] == 1.0 == figures.control[-1] and len(figures.accuracy) == 3
    assert figures.neighbours == 1.0 and figures.selectivity[-1] == 0.0
    assert "a: heads of words from each layer" in as_text(AttachmentProbe().finding([Subject("a", Path())], {"a": figures}))
