"""Whole words of a script without spaces: cut by a segmenter, the same everywhere, and saved with the tokenizer."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import CheckpointError, RecipeError
from cloze.kernels import has_numba
from cloze.text import (
    Annotations,
    ChunkEncoder,
    Dictionary,
    Jieba,
    ListAnnotator,
    Normalise,
    Segmenter,
    TextSpec,
    Tokenizer,
    WordPiece,
    Words,
    train,
)
from cloze.text.apart import set_apart
from cloze.text.encoding.word_encoder import WordEncoder, encoder_for

TEXTS = ["我们在图书馆学习，我们在家。", "The cat在我们家，don't。", "图书馆 [PAD] 3.5"]
PIECES = [
    "我们", "图书馆", "在", "猫", "，", "。", "the", "Cat", "don't", "é",
    "\u0301", "\x00", " ", "\n", "\u3000", "[PAD]", "\ud800",
]
texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=10).map("".join), min_size=1, max_size=5)


def trained(split: str = "punctuation", segmenter: Segmenter | None = None) -> Tokenizer:
    words = Words(min_count=1, split=split)  # type: ignore[arg-type]
    return train(TextSpec(Normalise(lower=True), words, segmenter or Dictionary()), TEXTS)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {split: trained(split) for split in ("punctuation", "whitespace")}


def spelled(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(i) for i in tokenizer.encode(text).ids]


def test_words_are_what_the_segmenter_cuts_and_marks_stand_apart(tokenizers: dict[str, Tokenizer]) -> None:
    assert set_apart(Dictionary(), "我们在 图书馆") == ("我们 在 图书馆", [2])
    for tokenizer in tokenizers.values():
        assert spelled(tokenizer, "我们在图书馆，the家") == ["我们", "在", "图书馆", "，", "the", "家"]
        assert spelled(tokenizer, "图书馆猫我们") == ["图书馆", "[UNK]", "我们"]


def test_without_the_segmenter_a_clause_is_a_word() -> None:
    plain = train(TextSpec(Normalise(), Words(min_count=1)), TEXTS)
    assert plain.id("我们在图书馆学习") is not None
    assert plain.hash != plain.cut_by(Dictionary()).hash == plain.cut_by(Dictionary()).hash
    assert plain.cut_by(Dictionary()).cut_by(None).hash == plain.hash
    assert plain.segmenter is None
    assert plain.cut_by(Dictionary())._plain is plain._plain, "the vocabulary is in memory once"


@settings(max_examples=60, deadline=None)
@given(lines=texts)
def test_every_encoder_gives_the_ids_of_the_text_set_apart(tokenizers: dict[str, Tokenizer], lines: list[str]) -> None:
    for tokenizer in tokenizers.values():
        bare = tokenizer.cut_by(None)
        clean = [line.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for line in lines]
        expected = [bare.encode(set_apart(Dictionary(), line).text).ids.tolist() for line in clean]
        encoders = [ChunkEncoder(tokenizer, memory_mb=1)]
        if has_numba():
            encoders.append(WordEncoder(tokenizer, memory_mb=1))  # type: ignore[arg-type]
        for encoder in encoders:
            found = encoder.encode_lines(lines)
            bounds = found.offsets.tolist()
            assert [found.ids[a:b].tolist() for a, b in zip(bounds[:-1], bounds[1:], strict=True)] == expected
        assert [one.ids.tolist() for one in tokenizer.encode_batch(lines)] == expected


def test_tokens_keep_their_places_in_the_text_as_it_was(tokenizers: dict[str, Tokenizer]) -> None:
    lines = ["我们在 图书馆学习", "", "猫在我们the家"]
    found = tokenizers["punctuation"].encode_spelled(lines)
    bounds = found.offsets.tolist()
    cut = [
        [line[a:b] for a, b in zip(found.begin[first:last], found.end[first:last], strict=True)]
        for line, first, last in zip(lines, bounds[:-1], bounds[1:], strict=True)
    ]
    assert cut == [["我们", "在", "图书馆", "学习"], [], ["猫", "在", "我们", "the", "家"]]


def test_layers_stand_where_they_stood(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "places.txt").write_text("图书馆\n", encoding="utf-8")
    chosen = Annotations(Dictionary(), {"place": ListAnnotator(file=str(tmp_path / "places.txt"))})
    found = chosen.to_find(tokenizers["punctuation"]).encode(tokenizers["punctuation"], ["我们在图书馆学习"])
    assert found.layers["place"].tolist() == [0, 0, 1, 0]
    assert found.word_start.all()


def test_templates_keep_their_special_tokens(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["punctuation"]
    pieces = [tokenizer.piece(i) for i in tokenizer.encode_template("[BOS]我们在[UNK]图书馆[EOS]").ids]
    assert pieces == ["[BOS]", "我们", "在", "[UNK]", "图书馆", "[EOS]"]


def test_the_segmenter_travels_with_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("图书\n#号\t1\n #号\n在家\n", encoding="utf-8")
    listed = Dictionary(file=str(tmp_path / "list.txt"))
    tokenizer = trained(segmenter=listed)
    assert tokenizer.hash != trained().hash
    tokenizer.save(tmp_path / "one", length=16, frame_single="{A}")
    (tmp_path / "list.txt").unlink()
    again = pickle.loads(pickle.dumps(Tokenizer.load(tmp_path / "one")))
    assert again.hash == tokenizer.hash
    again.save(tmp_path / "two", length=16, frame_single="{A}")
    assert Tokenizer.load(tmp_path / "two").hash == tokenizer.hash
    assert spelled(again, "我们在家") == ["我们", "在家"]


def test_a_saved_segmenter_that_would_cut_otherwise_is_refused(tmp_path: Path) -> None:
    trained().save(tmp_path, length=16, frame_single="{A}")
    with (tmp_path / "segmenter.txt").open("a", encoding="utf-8") as stream:
        stream.write("在家\n")
    with pytest.raises(CheckpointError, match="may cut words differently"):
        Tokenizer.load(tmp_path)
    (tmp_path / "segmenter.txt").unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "segmenter.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Tokenizer.load(tmp_path)


def test_jiebas_words_are_words_and_it_is_named_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    (tmp_path / "user.txt").write_text("猫猫垫子 100 n\n", encoding="utf-8")
    text = "我来到北京清华大学，猫猫垫子。"
    tokenizer = train(TextSpec(Normalise(), Words(min_count=1), Jieba(dictionary=str(tmp_path / "user.txt"))), [text])
    assert spelled(tokenizer, text) == ["我", "来到", "北京", "清华大学", "，", "猫猫垫子", "。"]
    tokenizer.save(tmp_path / "saved", length=16, frame_single="{A}")
    (tmp_path / "user.txt").unlink()
    again = Tokenizer.load(tmp_path / "saved")
    assert again.hash == tokenizer.hash and spelled(again, "猫猫垫子") == ["猫猫垫子"]
    said = json.loads((tmp_path / "saved" / "segmenter.json").read_text(encoding="utf-8"))
    assert said["name"] == "jieba"
    said["hash"] = "0" * 64  # another version
    (tmp_path / "saved" / "segmenter.json").write_text(json.dumps(said))
    with pytest.raises(CheckpointError, match="by jieba with hash 000000000000"):
        Tokenizer.load(tmp_path / "saved")


def test_only_whole_words_are_cut_other_tokenizers_keep_their_pieces() -> None:
    spec = TextSpec(Normalise(), WordPiece(size=60), Dictionary())
    tokenizer = train(spec, TEXTS)
    assert tokenizer.segmenter is None
    with pytest.raises(RecipeError, match="only whole words"):
        tokenizer.cut_by(Dictionary())


def test_the_compiled_encoder_is_taken_for_segmented_words(tokenizers: dict[str, Tokenizer]) -> None:
    pytest.importorskip("numba")
    for tokenizer in tokenizers.values():
        assert isinstance(encoder_for(tokenizer, memory_mb=1, compiled=True), WordEncoder)
