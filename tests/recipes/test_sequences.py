"""What recipes of sequences take from their authors' commands and papers, and how these values act."""

from __future__ import annotations

import pytest

from cloze.assembly.build import build_step, built
from cloze.assembly.load import load_recipe
from cloze.assembly.recipe import Recipe
from cloze.assembly.run import phases_of, with_dropouts


def named(name: str, *changes: str) -> Recipe:
    return load_recipe(name, size="tiny", overrides=list(changes))


@pytest.mark.parametrize("name", ["bart-base", "bart-large"])
def test_bart_ends_without_any_dropout_and_begins_with_that_of_attention(name: str) -> None:
    """Lewis et al. (2020), §5.1; facebookresearch/fairseq, issue 1899."""
    recipe = named(name)
    step = build_step(recipe, vocab_size=50, device="meta")
    first, last = with_dropouts(phases_of(recipe), recipe, step, vocab_size=50)
    assert (first.until, last.until) == (0.9, 1.0)
    attention = [rate for module, rate in first.rates.items() if module.endswith((".attention.dropout", ".crossing.dropout"))]
    assert len(attention) == 6 and set(attention) == {0.1}
    assert set(last.rates.values()) == {0.0}
    assert (recipe.training.batch, recipe.training.steps, recipe.training.clip) == (8000, 500_000, 0.1)


def test_gpt3_reaches_a_tenth_of_its_rate_after_260_of_300_billion_tokens_and_stays_there() -> None:
    """Brown et al. (2020), appendix B."""
    recipe = named("gpt3")
    rate, steps = built(recipe.training.rate), recipe.training.steps
    assert steps is not None and abs(steps * recipe.training.batch * 2048 / 300e9 - 1) < 0.001
    at = [rate(tokens / 300, steps) for tokens in (0.375, 130.1875, 260, 261, 280, 300)]
    assert at == pytest.approx([6e-4, 3.3e-4, 6e-5, 6e-5, 6e-5, 6e-5], rel=1e-3)
