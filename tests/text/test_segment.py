"""Segmenters, annotators, and their words and units carried over to tokens."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import MissingExtra, RecipeError
from cloze.text import Annotations, Dictionary, Jieba, ListAnnotator, Normalise, TextSpec, Tokenizer, Unigram, train
from cloze.text.matching import WordList, read_list
from tests.text.conftest import CHINESE

LIST = "研究\n研究生\n生命\n起源\n的\n命\n卡拉OK 12 n\n# a comment\n北京大学\t名\n大学生\n"


def words(segmenter: Dictionary | Jieba, text: str) -> list[str]:
    starts = segmenter.segment(text)
    return [text[a:b].rstrip() for a, b in zip(starts, [*starts[1:], len(text)], strict=False)]


@pytest.fixture
def listed(tmp_path: Path) -> Dictionary:
    (tmp_path / "words.txt").write_text(LIST, encoding="utf-8")
    return Dictionary(file=str(tmp_path / "words.txt"), built_in=False)


def test_the_reading_with_fewer_single_characters_wins(listed: Dictionary) -> None:
    # forward: 研究生 命 起源; backward: 研究 生命 起源
    assert words(listed, "研究生命起源") == ["研究", "生命", "起源"]


def test_what_is_in_no_list_is_a_word_by_itself(listed: Dictionary) -> None:
    assert words(listed, "去卡拉OK,don't say 3.5 OKAY") == ["去", "卡拉OK", ",", "don", "'", "t", "say", "3", ".", "5", "OKAY"]
    assert words(listed, "") == [] and words(listed, " \n") == []


def test_a_listed_word_never_ends_inside_a_run_of_letters(listed: Dictionary) -> None:
    assert words(listed, "卡拉OKAY") == ["卡", "拉", "OKAY"]


def test_the_built_in_list_knows_frequent_words_of_both_scripts() -> None:
    assert words(Dictionary(), "我们在图书馆学习") == ["我们", "在", "图书馆", "学习"]
    assert words(Dictionary(), "我們在圖書館學習") == ["我們", "在", "圖書館", "學習"]


def test_hashes_follow_the_words_and_not_the_file(tmp_path: Path, listed: Dictionary) -> None:
    other = tmp_path / "again.txt"
    other.write_text("\n".join(reversed(LIST.split("\n"))), encoding="utf-8")
    assert Dictionary(file=str(other), built_in=False).hash == listed.hash
    assert Dictionary(file=str(other)).hash != listed.hash
    assert pickle.loads(pickle.dumps(listed)).hash == listed.hash


def test_a_list_that_is_missing_empty_or_in_another_encoding_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        Dictionary(file=str(tmp_path / "nowhere.txt"))
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(RecipeError, match="the list is empty"):
        ListAnnotator(file=str(tmp_path / "empty.txt"))
    (tmp_path / "odd.txt").write_text("a\u2028b\nc\x85d\x1ce\n", encoding="utf-8")
    assert read_list(str(tmp_path / "odd.txt"), "list") == ["a\u2028b", "c\x85d\x1ce"]
    (tmp_path / "gb.txt").write_bytes("熊猫".encode("gb18030"))
    with pytest.raises(RecipeError, match="not UTF-8"):
        Dictionary(file=str(tmp_path / "gb.txt"))


def test_jieba_takes_a_user_dictionary(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    (tmp_path / "user.txt").write_text("量子咖啡机 5 n\n", encoding="utf-8")
    plain, user = Jieba(), Jieba(dictionary=str(tmp_path / "user.txt"))
    assert "量子咖啡机" not in words(plain, "他买了量子咖啡机")
    assert words(user, "他买了量子咖啡机") == ["他", "买", "了", "量子咖啡机"]
    assert words(plain, "中华人民共和国成立了。") == ["中华人民共和国", "成立", "了", "。"]
    assert plain.hash != user.hash
    assert pickle.loads(pickle.dumps(user)).segment("量子咖啡机") == [0]


def test_without_jieba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(MissingExtra, match=r"cloze-lm\[chinese\]"):
        Jieba().segment("中国")


def test_units_of_a_list_are_the_longest_from_the_left(tmp_path: Path) -> None:
    (tmp_path / "units.txt").write_text("New York\nYork City\ncat\n北京\n北京大学\n", encoding="utf-8")
    annotator = ListAnnotator(file=str(tmp_path / "units.txt"))
    text = "New York City's category cat在北京大学"
    assert [text[a:b] for a, b in annotator.annotate(text)] == ["New York", "cat", "北京大学"]


# ---- on tokens -------------------------------------------------------------------------------------------------------


def spec(words: tuple[str, dict[str, object]] | None, **layers: str) -> SimpleNamespace:
    def part(name: str, arguments: dict[str, object]) -> SimpleNamespace:
        return SimpleNamespace(name=name, arguments=arguments)

    annotate = {name: part("list", {"file": file}) for name, file in layers.items()}
    return SimpleNamespace(words=None if words is None else part(*words), annotate=annotate, line_ends=False)


def test_ernies_units_of_a_sentence_with_a_users_entities(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    """Three levels on one sentence: characters, phrases, entities (ERNIE 1.0)."""
    (tmp_path / "phrases.txt").write_text("正在睡觉\n做梦\n", encoding="utf-8")
    (tmp_path / "entities.txt").write_text("垫子\n夏天\n", encoding="utf-8")
    chosen = spec(("dictionary", {}), phrase=str(tmp_path / "phrases.txt"), entity=str(tmp_path / "entities.txt"))
    found = Annotations.of(chosen).encode(trained["bert"], ["猫正在睡觉,它在垫子上做梦。", "夏天,猫。"])
    #                                        猫 正 在 睡 觉 ， 它 在 垫 子 上 做 梦 。 夏 天 ， 猫 。
    assert found.layers["phrase"].tolist() == [0, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]
    assert found.layers["entity"].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0]
    assert found.word_start.astype(int).tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert found.offsets.tolist() == [0, 14, 19]
    assert found.ids.tolist() == trained["bert"].encode_flat(["猫正在睡觉,它在垫子上做梦。", "夏天,猫。"])[0].tolist()


def test_an_entry_at_the_end_of_a_text_ends_with_it_however_long_others_are() -> None:
    assert WordList(["New York", "New York City Council"]).spans("in New York") == [(3, 11)]


def test_annotations_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "units.txt").write_text("猫\n")
    made = Annotations.of(spec(("dictionary", {}), unit=str(tmp_path / "units.txt")))
    assert made.header() == {"words": Dictionary().hash, "annotations": {"unit": made.layers["unit"].hash}}
    assert made and not Annotations() and Annotations().header() == {"words": None, "annotations": {}}
    with pytest.raises(RecipeError, match="cannot name a layer"):
        Annotations.of(spec(None, **{"../unit": str(tmp_path / "units.txt")}))


def plain_words(tokenizer: Tokenizer, segmenter: Dictionary, text: str) -> list[bool]:
    """Word starts by the plainest code there is: token by token."""
    starts = set(segmenter.segment(text))
    spelled = tokenizer.encode_spelled([text])
    found, reached = [], 0
    for number, end in enumerate(spelled.end.tolist()):
        found.append(number == 0 or any(place in starts for place in range(reached, max(reached, end))))
        reached = max(reached, end)
    return found


TEXTS = st.lists(st.sampled_from([*"猫在垫子上睡觉们我abc 1.'é\u0301ﬁ🐈\t\x00", "我们", "图书馆", "cat", "[MASK]"]), max_size=20)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS.map("".join), min_size=1, max_size=4))
def test_words_and_units_are_those_of_the_plainest_code(trained: dict[str, Tokenizer], texts: list[str]) -> None:
    segmenter = Dictionary()
    for name in ("bert", "cased", "roberta", "unigram", "xlm"):
        found = Annotations(segmenter).encode(trained[name], texts)
        expected = [plain_words(trained[name], segmenter, text) for text in texts]
        assert found.word_start.tolist() == [start for text in expected for start in text]
        assert found.ids.tolist() == trained[name].encode_flat(texts)[0].tolist()


def test_a_unigram_vocabulary_too_small_for_its_text_is_refused() -> None:
    with pytest.raises(RecipeError, match="too few for the characters"):
        train(TextSpec(Normalise(), Unigram(size=60)), CHINESE * 4)


def test_no_character_of_a_word_but_the_first_starts_one_whatever_the_pieces(trained: dict[str, Tokenizer]) -> None:
    segmenter = Dictionary()
    for tokenizer in (trained["bert"], trained["roberta"], trained["unigram"], trained["xlm"]):
        found = Annotations(segmenter).encode(tokenizer, ["图书馆", "我们 图书馆"])
        first, second = np.split(found.word_start, found.offsets[1:-1])
        assert first.sum() == 1 and 1 <= second.sum() <= 2
