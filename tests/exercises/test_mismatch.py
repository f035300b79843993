"""A wrong text in the place of a companion: what is shown, what is asked, how often, and whose language it brings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.companions.mismatch import Mismatch
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.recipe.load import load_recipe
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.runs.run import pretrain

SAMPLES = Path(__file__).resolve().parents[2] / "cloze" / "samples"


def pairs(count: int) -> Rows:
    """Rows whose translations are made of ids from 100 on, and whose distractors of ids from 500 on, longer and in language 2."""
    number = np.arange(count, dtype=np.int32)[:, None] % 50
    return Rows({
        "tokens": 10 + number + np.zeros((1, 3), np.int32), "length": np.full(count, 3, np.int32),
        "language": np.zeros(count, np.int32),
        "translation.tokens": 100 + number + np.zeros((1, 4), np.int32),
        "translation.length": np.full(count, 4, np.int32), "translation.language": np.ones(count, np.int32),
        "translation.word_start": np.ones((count, 4), bool),
        "distractor.tokens": 500 + number + np.zeros((1, 6), np.int32), "distractor.length": np.full(count, 6, np.int32),
        "distractor.language": np.full(count, 2, np.int32), "distractor.word_start": np.zeros((count, 6), bool),
    })


def test_the_answer_says_whose_text_is_shown(draw: Callable[..., Draw]) -> None:
    out = Mismatch()(pairs(200), draw(200))
    right = out["targets/match"] == 1
    assert 60 < right.sum() < 140
    assert (out["translation.tokens"][right, 0] < 200).all() and (out["translation.tokens"][~right, 0] >= 500).all()
    assert out["translation.length"].tolist() == np.where(right, 4, 6).tolist()
    assert out["translation.language"].tolist() == np.where(right, 1, 2).tolist()
    assert out["translation.word_start"][right, :4].all() and not out["translation.word_start"][~right].any()
    assert (out["tokens"] == pairs(200)["tokens"]).all() and (out["language"] == 0).all()


@pytest.mark.parametrize(("rate", "wrong"), [(0.0, 0), (1.0, 1000)])
def test_the_odds_may_be_none_or_all(rate: float, wrong: int, draw: Callable[..., Draw]) -> None:
    assert (Mismatch(rate=rate)(pairs(1000), draw(1000))["targets/match"] == 0).sum() == wrong


def test_the_stated_rate_is_met(draw: Callable[..., Draw]) -> None:
    share = (Mismatch(rate=0.3)(pairs(100_000), draw(100_000))["targets/match"] == 0).mean()
    assert share == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / 1e5) ** 0.5)


def test_a_row_is_the_same_alone_and_in_a_block(draw: Callable[..., Draw]) -> None:
    whole = Mismatch()(pairs(64), draw(64))
    for row in range(0, 64, 7):
        alone = Mismatch()(pairs(64).take(slice(row, row + 1)), draw(1, first=row))
        size = int(alone["translation.length"][0])
        assert alone["targets/match"][0] == whole["targets/match"][row] and size == whole["translation.length"][row]
        assert alone["translation.tokens"][0, :size].tolist() == whole["translation.tokens"][row, :size].tolist()


def test_what_only_one_companion_has_is_left_out(draw: Callable[..., Draw]) -> None:
    out = Mismatch()(pairs(8).without("distractor.word_start"), draw(8))
    assert "translation.word_start" not in out and "translation.tokens" in out


def test_the_frame_appends_the_chosen_text_to_the_row_with_its_language(draw: Callable[..., Draw], facts: TokenFacts) -> None:
    frame = Frame("[SEP] {A} [SEP] [SEP] {translation} [SEP]", restart=True, inputs={"language": "of_part"}, tokenizer=facts)
    exercise = Exercise([PlacedEdit(Mismatch(set="paraphrase")), PlacedEdit(frame)], 20)
    assert {"distractor.tokens", "distractor.language", "translation.language"} <= exercise.wants
    assert "word_start" not in exercise.wants and "distractor.word_start" not in exercise.wants  # nobody reads it
    out = exercise(pairs(40), draw(40))
    for row, right in enumerate(out["targets/paraphrase"]):
        text = [3, *[10 + row] * 3, 3, 3, *([100 + row] * 4 if right else [500 + row] * 6), 3]
        assert out["tokens"][row, : out["length"][row]].tolist() == text
        second = out["inputs/language"][row, 5 : out["length"][row]]
        assert (out["inputs/language"][row, :5] == 0).all() and (second == (1 if right else 2)).all()
        assert out["position_ids"][row, : out["length"][row]].tolist() == [*range(5), *range(len(text) - 5)]
    assert "distractor.tokens" not in out and "translation.tokens" not in out  # companions have no row of their own in the batch


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"rate is 1\.5; expected a number"):
        Mismatch(rate=1.5)
    with pytest.raises(RecipeError, match="of and wrong are both next"):
        Mismatch(of="next", wrong="next")


def test_unicoder_trains_its_five_tasks(tmp_path: Path) -> None:
    recipe = load_recipe("unicoder")
    assert list(recipe.entries) == ["mlm", "tlm", "recovery", "paraphrase", "cross_lingual"]
    parallel = str(SAMPLES / "english-french.tsv")
    done = pretrain(
        "unicoder", corpus=SAMPLES / "english.txt", binds=[f"parallel={parallel}", f"documents={parallel}"],
        out=tmp_path / "run", budget="10steps", size="tiny", device="cpu", report=lambda line: None,
        overrides=["length=40", "training.batch=4", "text.tokenizer.size=500"],
    )
    assert done.finished
