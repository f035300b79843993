"""How far a text is from what a model has read, as `--plan` prints it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloze.runs.text_distance import Measured, TextDistance, drawn, passages_of

FAR = TextDistance(Path("RUN"), "word", Measured(1.31, 0.001, 2.306), Measured(1.22, 0.0, 1.873), "pseudo_log_likelihood", 0.02)


def test_a_run_is_compared_with_its_held_out_text() -> None:
    assert FAR.lines == [
        "this text under RUN:",
        "  pieces per word: 1.31 (1.22 in its held-out text), 0.1 % of them unknown",
        "  pseudo-bits per byte: 2.31 on a sample of this text, 1.87 on its held-out text",
        "  advice: continue this model: at the peak rate of a new one it learns this text better than `quick`, and forgets more",
    ]


def test_a_folder_without_its_text_has_the_figures_of_this_text_alone() -> None:
    assert replace(FAR, held_out=None, method="log_probability").lines == [
        "this text under RUN:",
        "  pieces per word: 1.31, 0.1 % of them unknown",
        "  bits per byte: 2.31 on a sample of this text",
    ]


def test_an_encoder_without_a_language_model_has_its_pieces_alone() -> None:
    text = Measured(1.02, 0.0)
    assert replace(FAR, unit="character", text=text, held_out=None, method=None, fewer=0.1).lines == [
        "this text under RUN:",
        "  pieces per character: 1.02, 0.0 % of them unknown",
    ]


def test_that_a_vocabulary_of_words_lacks_some_is_no_reason_for_advice() -> None:
    assert replace(FAR, text=Measured(1.0, 0.24), method=None, of_pieces=False).lines[1:] == [
        "  pieces per word: 1.00 (1.22 in its held-out text), 24.0 % of them unknown"
    ]


@pytest.mark.parametrize(("changes", "advice"), [
    ({"text": Measured(1.31, 0.05, 2.3)}, "too much is unknown to this tokenizer; pre-train `quick` on this text instead"),
    ({"fewer": 0.2}, "a tokenizer trained on this text would need 20 % fewer pieces; pre-train `quick` on this text instead"),
    ({"fewer": 0.1}, "continue this model, and add words to its vocabulary (cloze vocab candidates): a tokenizer trained on this "
     "text would need 10 % fewer pieces"),
    ({"text": Measured(1.31, 0.0, 1.87 * 1.15)},
     "the model has read text like this: it learns little from more of it"),
])  # fmt: skip
def test_the_advice_follows_from_the_first_figure_that_says_something(changes: dict[str, Any], advice: str) -> None:
    assert replace(FAR, **changes).lines[-1] == f"  advice: {advice}"


def test_passages_are_lines_cut_at_spaces_or_after_200_characters_where_there_are_none() -> None:
    words, run = "word " * 50, "字" * 250
    assert passages_of(f"one line\n  {words}\n\n{run}") == [
        "one line", ("word " * 40).strip(), ("word " * 10).strip(), run[:200], run[200:],
    ]  # fmt: skip


def test_passages_are_drawn_at_random_and_always_the_same_until_there_are_enough_bytes() -> None:
    passages = [f"passage {number}" for number in range(10)]
    chosen = drawn(passages, 25)
    assert len(chosen) == 3 and chosen == drawn(passages, 25) and chosen != passages[:3] and set(chosen) <= set(passages)
    assert sorted(drawn(passages, 1000)) == passages
