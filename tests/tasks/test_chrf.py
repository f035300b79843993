"""Figures of a corpus of written texts, against cases worked by hand and against the packages that everybody uses."""

from __future__ import annotations

import random
import string

import numpy as np
import pytest

from cloze.tasks.measures.overlap import bleu, bleu_metric, chrf, chrf_counts, figures, words

LETTERS = "我爱你的猫。" + string.ascii_lowercase[:6] + "  ,.!"


def pairs(seed: int, letters: str = LETTERS) -> tuple[list[str], list[list[str]]]:
    """Random texts with one to three references each, some of them empty, alike or without anything in common."""
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choices(letters, k=chance.choice([0, 1, 3, 8, 30])))

    written = [text() for _ in range(40)]
    wanted = [[chance.choice([text(), ours, ours[::-1] + "x"]) or "b" for _ in range(chance.randint(1, 3))] for ours in written]
    return written, wanted


def test_chrf_of_two_words_counts_their_letters() -> None:
    counts = chrf_counts("abc", ["ab d"])
    assert counts.tolist() == [[3, 3, 2], [2, 2, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert chrf_counts("abcd", ["a"])[:2].tolist() == [[4, 1, 1], [0, 0, 0]]  # of n-grams that the reference cannot have, none
    assert chrf(["abc"], [["ab d"]]) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)  # precision and recall are alike
    assert chrf(["我爱你"], [["我 爱 你"]]) == 1.0 and chrf(["ab"], [["cd"]]) == chrf([""], [["ab"]]) == 0.0
    assert chrf(["ab"], [["cd", "ab"]]) == 1.0
    precision, recall = 1.0, (2 / 4 + 1 / 3) / 2
    assert chrf(["ab"], [["abcd"]]) == pytest.approx(5 * precision * recall / (4 * precision + recall))


@pytest.mark.parametrize("seed", range(4))
def test_chrf_is_that_of_sacrebleu(seed: int) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics")
    written, wanted = pairs(seed)
    most = max(map(len, wanted))
    streams = [[references[min(number, len(references) - 1)] for references in wanted] for number in range(most)]
    assert 100 * chrf(written, wanted) == pytest.approx(metrics.CHRF().corpus_score(written, streams).score, abs=1e-9)


def test_bleu_takes_as_many_references_as_a_text_has() -> None:
    pytest.importorskip("sacrebleu")
    metric = bleu_metric("zh")
    written, wanted = ["我爱你的猫", "the cat sat"], [["我爱猫", "我爱你的猫"], ["the cat sat"]]
    assert bleu(metric, written, wanted) == pytest.approx(100.0)
    assert 0 < bleu(metric, written, [wanted[0][:1], wanted[1]]) < 100


@pytest.mark.parametrize("seed", range(4))
def test_rouge_is_that_of_rouge_score(seed: int) -> None:
    scoring = pytest.importorskip("rouge_score.rouge_scorer")

    class Ours:
        def tokenize(self, text: str) -> list[str]:
            return words(text)

    names = ["rouge1", "rouge2", "rougeL"]
    for letters, tokenizer in ((LETTERS, Ours()), (string.ascii_letters[:8] + " 12.,", None)):
        scorer = scoring.RougeScorer(names, tokenizer=tokenizer)
        for ours, references in zip(*pairs(seed, letters), strict=True):
            theirs = scorer.score_multi(references, ours)
            found = figures(ours, references)
            assert [found[name] for name in names] == pytest.approx([theirs[name].fmeasure for name in names])


def test_counts_of_texts_add_up() -> None:
    written, wanted = pairs(9)
    total = np.sum([chrf_counts(*pair) for pair in zip(written, wanted, strict=True)], axis=0)
    assert (total[:, 2] <= total[:, :2].min(1)).all() and 0.0 < chrf(written, wanted) < 1.0
