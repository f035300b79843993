"""Filling masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cloze.decoding.filling import fill
from cloze.decoding.reader import Reader, head_of_kind, prediction_head, require_order
from cloze.errors import CheckpointError, UserError

Make = Callable[..., Any]


def test_probabilities_are_those_of_a_plain_forward_pass(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    reader, head = Reader.of(loaded), head_of_kind(loaded, "token_prediction")
    (filled,) = fill(reader, head, ["the [MASK] sleeps on the [MASK]."], top=3)
    t = loaded.tokenizer
    ids = [t.role("[CLS]"), *t.encode_template("the [MASK] sleeps on the [MASK].").ids.tolist(), t.role("[SEP]")]
    with torch.inference_mode():
        hidden = loaded.network(want=frozenset({"hidden"}), tokens=torch.tensor([ids]))["hidden"]
        expected = head.head(hidden)[0].softmax(-1)
    positions = [i for i, token in enumerate(ids) if token == t.role("[MASK]")]
    assert len(filled.masks) == len(positions) == 2
    for place, candidates in zip(positions, filled.masks, strict=True):
        best = expected[place].topk(3)
        assert [c.id for c in candidates] == best.indices.tolist()
        assert [c.probability for c in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert candidates[0].piece == t.piece(candidates[0].id)


def test_unknown_is_no_answer(checkpoint: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = checkpoint("bert")
    reader, head = Reader.of(loaded), head_of_kind(loaded, "token_prediction")
    unknown, scores = loaded.tokenizer.role("[UNK]"), Reader.token_scores
    monkeypatch.setattr(Reader, "token_scores", lambda *given: scores(*given).index_fill(-1, torch.tensor([unknown]), 9.0))
    for top in (3, 100_000):
        (candidates,) = fill(reader, head, ["the [MASK]"], top=top)[0].masks
        assert unknown not in [candidate.id for candidate in candidates]
    assert len(candidates) == loaded.tokenizer.size - 1 and candidates[0].probability < 0.1


def test_rows_of_the_table_behind_the_last_id_are_no_answer(checkpoint: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, scores = checkpoint("bert"), Reader.token_scores
    reader, head = Reader.of(loaded), head_of_kind(loaded, "token_prediction")
    monkeypatch.setattr(Reader, "token_scores", lambda *given: torch.nn.functional.pad(scores(*given), (0, 6), value=9.0))
    (candidates,) = fill(reader, head, ["the [MASK]"], top=100_000)[0].masks
    unknown = loaded.tokenizer.role("[UNK]")
    assert {candidate.id for candidate in candidates} == set(range(loaded.tokenizer.size)) - {unknown}


def test_batching_changes_nothing(checkpoint: Make) -> None:
    loaded = checkpoint("roberta")
    reader, head = Reader.of(loaded), prediction_head(loaded, verb="fill")
    texts = ["a [MASK]", "the cat <mask> on the mat and dreams of <mask>", "[MASK] barks"]
    together = fill(reader, head, texts, top=2)
    for text, one in zip(texts, together, strict=True):
        (alone,) = fill(reader, head, [text], top=2)
        assert alone.given == one.given == text
        assert [[c.id for c in m] for m in alone.masks] == [[c.id for c in m] for m in one.masks]
        assert alone.masks[0][0].probability == pytest.approx(one.masks[0][0].probability, abs=1e-5)


def test_no_mask_and_too_long_are_errors_with_a_way_out(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    reader, head = Reader.of(loaded), prediction_head(loaded, verb="fill")
    with pytest.raises(UserError, match=r"no mask to fill. Write \[MASK\]"):
        fill(reader, head, ["the cat"])
    with pytest.raises(UserError, match="reads at most 40"):
        fill(reader, head, ["[MASK] " * 60])


def test_a_checkpoint_without_the_head_names_what_it_has(checkpoint: Make) -> None:
    with pytest.raises(CheckpointError, match="needs a head that predicts tokens; this checkpoint has: token_labelling"):
        prediction_head(checkpoint("electra"), verb="fill")
    with pytest.raises(UserError, match="reads in the order open; this one reads in the order left_to_right"):
        require_order(checkpoint("gpt2"), "open", verb="fill", instead="Use generate.")
