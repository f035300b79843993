"""Integrated gradients: exact where the answer is known, complete on networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.decoding.reader import Reader
from cloze.probes.attribution import attributions, integrated_gradients
from cloze.probes.pieces import shown


def test_the_attributions_of_a_linear_score_are_its_terms_and_those_of_a_product_are_halves() -> None:
    weight = torch.randn(3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    x = torch.arange(12.0, dtype=torch.double).view(3, 4)
    shares, score, base = integrated_gradients(lambda rows: (rows * weight).sum((1, 2)), x, torch.zeros_like(x), steps=2)
    torch.testing.assert_close(shares, (x * weight).sum(-1))
    assert score - base == pytest.approx(float(shares.sum()))
    two = torch.tensor([[3.0], [5.0]], dtype=torch.double)
    shares, *_ = integrated_gradients(lambda rows: rows[:, 0, 0] * rows[:, 1, 0], two, torch.zeros_like(two), steps=2)
    torch.testing.assert_close(shares, torch.full((2,), 7.5, dtype=torch.double))


@pytest.mark.parametrize(("name", "text", "count"), [
    ("bert", "the cat [MASK] on the [MASK]", 2), ("gpt2", "the cat sleeps on", 1), ("bert", "the cat", 0),
    ("electra", "the [MASK]", 0), ("modern", "the [MASK] sleeps", 1),
])  # fmt: skip
def test_attributions_are_complete_and_leave_the_template_out(
    name: str, text: str, count: int, checkpoint: Callable[..., Any]
) -> None:
    loaded = checkpoint(name)
    reader = Reader.of(loaded)
    row = reader.single_layout([reader.tokenizer.encode_template(text).ids])
    found = attributions(loaded, row, steps=96)
    assert len(found) == count
    for one in found:
        assert one.error < 0.02 * max(1.0, abs(one.score - one.base)) and one.score <= 0
        assert (one.shares[row.part < 0] == 0).all()
        assert one.place is not None
        assert reader.order == "left_to_right" or row.ids[one.place] == reader.tokenizer.role("[MASK]")
        with torch.no_grad():
            states = reader.states(reader.batch([row]), {"hidden"})
            head = next(iter(loaded.heads.values()))
            scores = reader.token_scores(head, states, reader.batch([row]), torch.tensor([one.place])).log_softmax(-1)[0]
        assert one.what == shown(reader.tokenizer, int(scores.argmax()))
        assert one.score == pytest.approx(float(scores.max()), abs=1e-4)


def test_the_label_of_a_fine_tuned_classifier_is_attributed(checkpoint: Callable[..., Any], tmp_path: Path) -> None:
    loaded = checkpoint("classifier")
    loaded.folder = tmp_path
    (tmp_path / "cloze").mkdir()
    tuned = {"task": "sentence_classification", "labels": ["x", "y", "z"], "head": "class"}
    (tmp_path / "cloze" / "task.json").write_text(json.dumps(tuned))
    reader = Reader.of(loaded)
    row = reader.encode(["the cat sleeps"], ["on the mat"])[0]
    (found,) = attributions(loaded, row, steps=96)
    batch = reader.batch([row])
    scores = reader.scores(loaded.heads["class"], reader.states(batch, {"summary"}), batch, torch.tensor([0])).log_softmax(-1)[0]
    assert found.what == "xyz"[int(scores.argmax())] and found.place is None and found.error < 0.02
    assert found.score == pytest.approx(float(scores.max().detach()), abs=1e-4) and (found.shares[row.part < 0] == 0).all()
