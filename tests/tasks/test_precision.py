"""Using a checkpoint in bf16: close to fp32, the same alone and in any batch, and refused where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.api.model import load
from cloze.cli.main import main

TEXTS = ["the cat", "the river and the rain", "mice who dreamed of the night", "dog"] * 3


def shares(folder: Path, precision: str, texts: list[str]) -> list[float]:
    return [answer.probabilities["animal"] for answer in load(folder, device="cpu", precision=precision).predict(texts)]


def test_bf16_is_close_to_fp32_and_a_text_has_the_same_answer_in_any_batch(tuned: Callable[..., Path]) -> None:
    exact, cast = (shares(tuned(), precision, TEXTS) for precision in ("fp32", "bf16"))
    assert cast == pytest.approx(exact, abs=0.02) and cast != exact
    assert [shares(tuned(), "bf16", [text])[0] for text in TEXTS[:4]] == cast[:4]


@pytest.mark.parametrize("verb", ["predict", "evaluate", "embed", "score", "retrieve"])
def test_every_verb_that_reads_texts_has_the_option_and_refuses_an_unknown_precision(
    tuned: Callable[..., Path], tables: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    dev = str(tables / "dev.tsv")
    more = {"evaluate": [dev], "retrieve": ["the cat", "--passages", dev, "--text-b", "text"]}.get(verb, ["the cat"])
    assert main([verb, str(tuned()), *more, "--precision", "fp8"]) == 2
    assert "unknown precision 'fp8'. Did you mean 'fp32'?" in capsys.readouterr().err
