"""A recipe fitted to how a text is written: marks, Turkish i, and ids for its characters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloze.budget.fit import fit_vocabulary
from cloze.budget.fit_text import (
    advise_on_text,
    advise_on_unknown,
    fit_normalisation,
    require_words_apart,
    sample_for,
    sample_text,
)
from cloze.budget.fitted import apply_unless_overridden
from cloze.errors import CorpusError
from cloze.recipe.load import load_recipe
from cloze.text.vocabularies.costs import costs_of

WITH_MARKS = {
    "German": "Das Wetter war schon am Morgen schön, die Bären schliefen für sich.",
    "Turkish": "Çocuklar için yazılmış güzel bir şarkı, İstanbul'da ılık bir gün.",
    "Vietnamese": "Hà Nội là thủ đô của Việt Nam, có nhiều hồ đẹp.",
    "French": "Le café était fermé à cause de la fête du village.",
    "Hindi": "हिन्दी में दिल्ली बड़ी है ।",
    "Thai": "น้ำดื่มที่นี่สะอาด",
    "Japanese": "パンダがかわいい",
    "decomposed German": "Das Wetter ist scho\u0308n",
}
ENGLISH = "The naïve idea was to walk home. " + "It rained on the way, and everybody got wet before the end of it. " * 20


@pytest.mark.parametrize("language", WITH_MARKS)
def test_a_recipe_of_our_own_keeps_the_marks_of_a_text_and_a_published_one_says_what_they_cost(language: str) -> None:
    changes = list(fit_normalisation(load_recipe("quick"), WITH_MARKS[language]))
    assert [change.override for change in changes] == [
        "texts.main.normalise.strip_accents=false", *["texts.main.normalise.lower=false"] * (language == "Turkish")
    ]
    held, made = apply_unless_overridden(lambda overrides: load_recipe("quick", overrides=list(overrides)), changes)
    assert held == changes and made.texts["main"].normalise["strip_accents"] is False
    assert list(advise_on_text(made, WITH_MARKS[language])) == []
    assert list(fit_normalisation(load_recipe("bert"), WITH_MARKS[language])) == []
    assert len(list(advise_on_text(load_recipe("bert"), WITH_MARKS[language]))) == len(changes)


def test_english_text_is_read_as_before() -> None:
    for sample in (ENGLISH, "", "我爱北京天安门。", "한국어 문장"):
        assert list(fit_normalisation(load_recipe("quick"), sample)) == []
        assert list(advise_on_text(load_recipe("bert"), sample)) == []


def test_advice_names_the_share_of_letters_and_words_an_example_and_the_value_to_set() -> None:
    sample = "schön schon är ILIK ılık"
    assert costs_of(sample, lambda word: word.replace("ö", "o").replace("ä", "a")) == (2 / 20, 2 / 5, 2 / 20, ("schön", "schon"))
    assert costs_of("schön schön", lambda word: word.replace("ö", "o")).stripped == 2 / 10
    assert list(advise_on_text(load_recipe("bert"), sample)) == [
        "advice: with bert, 10.0 % of the letters lose a mark (schön → schon), and 40.0 % of the different words become the same "
        "as another.\n  To keep the marks: --set text.normalise.strip_accents=false",
        "advice: bert lower-cases I to i, but 10.0 % of the letters are İ or ı.\n"
        "  To keep the case: --set text.normalise.lower=false",
    ]
    tokenizer: Any = SimpleNamespace(normalised=lambda word: word.replace("ö", "o"))
    assert list(advise_on_text(load_recipe("bert"), sample, tokenizer)) == [
        "advice: with this tokenizer, 5.0 % of the letters lose a mark (schön → schon), and 40.0 % of the different words become "
        "the same as another."
    ]


def test_a_vocabulary_has_an_id_for_nearly_every_character() -> None:
    chinese = "".join(map(chr, range(0x4E00, 0x4E00 + 2700)))  # two thousandths of them may go without
    for name in ("quick", "bert-wwm-zh"):
        (change,) = fit_vocabulary(load_recipe(name), 1_800_000, chinese)
        assert (change.fitted, change.why) == (6000, "fewer have no id for some characters of the text")
        assert [change.fitted for change in fit_vocabulary(load_recipe(name), 1_800_000, ENGLISH)] == [2000]
    assert fit_vocabulary(load_recipe("quick"), 1_800_000, chinese + "".join(map(chr, range(0x5E00, 0x5E00 + 4000)))) == []


def test_many_unknown_tokens_are_reported() -> None:
    def told(unknown: int, kind: str = "wordpiece") -> list[str]:
        lines: list[str] = []
        store: Any = SimpleNamespace(counts=lambda: np.array([unknown, 1000 - unknown]), size=1000)
        advise_on_unknown(store, SimpleNamespace(roles={"[UNK]": 0}, kind=kind, size=2000), lines.append)  # type: ignore[arg-type]
        return lines

    assert told(9) == told(138, "words") == []
    assert told(138) == [
        "advice: 13.8 % of the tokens are [UNK]: the vocabulary of 2,000 ids lacks characters of this text.\n"
        "  For a larger one: --set text.tokenizer.size=N"
    ]


def test_a_sample_is_the_beginnings_of_a_corpus(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"Text {number}.\n", encoding="utf-8")
    assert sample_text([str(tmp_path)]) == "Text 0.\nText 1.\nText 2."
    assert sample_text(["-"]) == sample_text([str(tmp_path / "missing.txt")]) == ""
    assert sample_for(load_recipe("transe"), [str(tmp_path)]) == "" != sample_for(load_recipe("bert"), [str(tmp_path)])


def test_a_part_of_the_text_without_spaces_between_words_is_told_where_words_are_read() -> None:
    mixed = 9 * "The sun rises over the square, and the people sing of it. " + "我爱北京天安门上的太阳升起来。"
    (told,) = advise_on_text(load_recipe("fasttext"), mixed)
    assert told.startswith(
        "advice: fasttext reads whole words, and part of this text has no spaces: '我爱北京天安门上的太阳升起来' counts as one "
        "word.\n"
        "  Cut it into words: cloze corpus build TEXT --recipe fasttext --words jieba --out STORE, then --corpus STORE\n"
    )
    assert list(advise_on_text(load_recipe("quick"), mixed)) == []
    assert list(advise_on_text(load_recipe("fasttext"), 90 * mixed[:60] + "我爱北京天安门上的太阳升起来。")) == []


def test_text_without_spaces_between_words_is_refused_where_words_are_read() -> None:
    recipe, chinese = load_recipe("word2vec-skipgram"), "我爱北京天安门上的太阳升起来。"
    with pytest.raises(CorpusError) as refused:
        require_words_apart(recipe, chinese)
    assert str(refused.value) == (
        "word2vec-skipgram reads whole words, but this text has no spaces between them: "
        "'我爱北京天安门上的太阳升起来' would be one.\n"
        "  Cut it into words: cloze corpus build TEXT --recipe word2vec-skipgram --words jieba --out STORE, then --corpus STORE\n"
        "  Or make a word of every character: --set text.normalise.cjk_spacing=true"
    )
    with pytest.raises(CorpusError, match="Put spaces between the words first, and read them with --set text.tokenizer.split"):
        require_words_apart(recipe, "น้ำดื่มที่นี่สะอาดและเย็นมาก")
    require_words_apart(load_recipe("word2vec-skipgram", overrides=["text.normalise.cjk_spacing=true"]), chinese)
    for text in ("我 爱 北京 天安门 上 的 太阳", ENGLISH + chinese, "", "น้ำ ดื่ม ที่ นี่ สะอาด"):
        require_words_apart(recipe, text)
    require_words_apart(load_recipe("quick"), chinese)
