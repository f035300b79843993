"""The tokenizer of whole words: ids by falling count from the whole corpus, in bounded memory, with clear errors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import CorpusError, RecipeError
from cloze.text import Normalise, TextSpec, Tokenizer, Words, train
from cloze.text.encoding.counting import ChunkCounter
from cloze.text.words import count_words, split_of
from tests.text.conftest import CHINESE, ENGLISH

LOWER = Normalise(lower=True)
PIECES = [
    "the", "Cat", "don't", "ÉLAN", "[PAD]", "[UNK]", "x" * 20,
    "猫在", "。", "\x0b", "\u3000", "  ", "\t", "a\nb", "İ", "\u0301", "—",
]
texts = st.lists(st.lists(st.sampled_from([*PIECES, " ", " "]), max_size=12).map("".join), min_size=1, max_size=8)
SPECS = {
    "punctuation": TextSpec(LOWER, Words(min_count=1)),
    "whitespace": TextSpec(Normalise(), Words(min_count=1, split="whitespace")),
    "bare": TextSpec(Normalise(clean=False), Words(min_count=1, split="whitespace")),
    "characters": TextSpec(Normalise(lower=True, strip_accents=True, cjk_spacing=True), Words(min_count=1)),
}


def words_of(tokenizer: Tokenizer) -> list[str]:
    return list(tokenizer.spellings[len(tokenizer.special_ids) :])


def test_special_tokens_come_first_then_words_by_falling_count_then_by_spelling() -> None:
    tokenizer = train(TextSpec(Normalise(), Words(min_count=2)), ["b a b c", "a c d b Z Z"])
    assert tokenizer.spellings == ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "b", "Z", "a", "c")
    assert dict(tokenizer.roles) == {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
    assert tokenizer.kind == "words"
    found = tokenizer.encode("a d Z")
    assert found.ids.tolist() == [6, 1, 5]
    assert found.word_start.tolist() == [True, True, True]
    assert tokenizer.decode([4, 6]) == "b a"


def test_every_character_can_be_a_word() -> None:
    special = {"[PAD]": "<pad>", "[UNK]": "<unk>"}
    pieces = train(TextSpec(Normalise(), Words(min_count=2, split="characters", special=special)), ["MKT KL\nM<unk>", "KMö"])
    assert pieces.spellings == ("<pad>", "<unk>", "K", "M")
    assert pieces.encode("MKK<unk> öM").ids.tolist() == [3, 2, 2, *[1] * 6, 3]
    assert split_of(pieces) == "characters"
    for split in ("whitespace", "punctuation"):
        assert split_of(train(TextSpec(Normalise(), Words(min_count=1, split=split)), ["a b"])) == split


def test_split_says_where_words_end() -> None:
    text = "The cat's mat. (The end.)"
    assert sorted(words_of(train(TextSpec(LOWER, Words(min_count=1)), [text]))) == sorted(
        ["the", "cat", "'", "s", "mat", ".", "(", "end", ")"]
    )
    plain = train(TextSpec(LOWER, Words(min_count=1, split="whitespace")), [text])
    assert sorted(words_of(plain)) == ["(the", "cat's", "end.)", "mat.", "the"]


def test_accents_stay_unless_they_are_asked_away() -> None:
    assert words_of(train(TextSpec(LOWER, Words(min_count=1)), ["Élan"])) == ["élan"]
    bare = Normalise(lower=True, strip_accents=True)
    assert words_of(train(TextSpec(bare, Words(min_count=1)), ["Élan"])) == ["elan"]


def test_size_counts_special_tokens_and_other_roles_can_be_given() -> None:
    special = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>"}
    tokenizer = train(TextSpec(LOWER, Words(min_count=1, size=5, special=special)), ["a a a b b c"])
    assert tokenizer.spellings == ("<pad>", "<unk>", "<s>", "a", "b")
    assert tokenizer.role("[CLS]") == 2
    with pytest.raises(RecipeError, match="leaves no room"):
        train(TextSpec(LOWER, Words(min_count=1, size=3, special=special)), ["a"])


def test_no_word_above_min_count_names_the_most_frequent_one() -> None:
    with pytest.raises(CorpusError, match=r"no word of the corpus occurs 5 times .*'a' with 3[\s\S]*min_count=3"):
        train(TextSpec(LOWER, Words()), ["a b a c", "a b"])
    with pytest.raises(CorpusError, match="holds no text"):
        train(TextSpec(LOWER, Words()), ["", " \n"])
    with pytest.raises(CorpusError, match="holds no word"):
        train(TextSpec(LOWER, Words()), ["\x00\x01"])
    with pytest.raises(RecipeError, match="min_count"):
        Words(min_count=0)
    with pytest.raises(RecipeError, match="split"):
        Words(split="letters")  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(texts=texts)
def test_counts_are_those_of_the_encoded_text(texts: list[str]) -> None:
    for spec in SPECS.values():
        try:
            tokenizer = train(spec, texts)
        except CorpusError:
            continue
        found = Counter(i for text in texts for i in tokenizer.encode(text).ids.tolist())
        assert set(found) == set(range(len(tokenizer.special_ids), tokenizer.size))  # every word has an id, none is special
        ordered = sorted(found, key=lambda i: (-found[i], tokenizer.piece(i)))
        assert ordered == sorted(found)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_saved_tokenizer_is_opened_by_the_library_and_by_us(name: str, tmp_path: Path) -> None:
    tokenizer = train(SPECS[name], ENGLISH + CHINESE)
    tokenizer.save(tmp_path, length=64, frame_single="{A}")
    again = Tokenizer.load(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    assert again.hash == tokenizer.hash and again.spellings == tokenizer.spellings and again.roles == tokenizer.roles
    for text in (*ENGLISH, *CHINESE, "[PAD] zzz [EOS]"):
        assert library.encode(text).ids == tokenizer.encode(text).ids.tolist() == again.encode(text).ids.tolist()


def test_the_library_default_reads_special_spellings_only_in_templates() -> None:
    tokenizer = train(SPECS["whitespace"], ["a b"])
    assert tokenizer.encode_template("a [EOS]").ids.tolist() == [4, 3]
    assert tokenizer.encode("a [EOS] [BOS]").ids.tolist() == [4, 1, 1, 1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_counter_counts_all_chunks_whatever_their_length(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr("cloze.kernels.find", lambda name: None)
    monkeypatch.setattr("cloze.text.encoding.counting._PLAIN_BYTES", 0)
    counter = ChunkCounter(marks=True, lower=True)
    counter.add(["The cat, the CAT.", "pneumonoultramicroscopic " * 2, "猫 the exactlyfifteen"])
    counter.add(["the sixteen-sixteens exactlysixteen16 x" + "y" * 5000])
    found: Counter[bytes] = Counter()
    for chunk, count in counter.items():
        found[chunk] += count
    assert found == Counter({
        b"the": 4, b"cat": 2, b",": 1, b".": 1, b"pneumonoultramicroscopic": 2, "猫".encode(): 1, b"exactlyfifteen": 1,
        b"sixteen": 1, b"-": 1, b"sixteens": 1, b"exactlysixteen16": 1, b"x" + b"y" * 5000: 1,
    })


@pytest.mark.parametrize("compiled", [False, True])
def test_a_full_dictionary_forgets_rare_words_and_says_so(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr("cloze.kernels.find", lambda name: None)
    monkeypatch.setattr("cloze.text.encoding.counting._PLAIN_BYTES", 0)
    counter = ChunkCounter(marks=True, lower=False, most=100)
    for round in range(20):
        counter.add([" ".join(f"w{round}n{i}" for i in range(70)), "often " * 5, "alsooftenbutfarmuchlonger " * 5])
    found = dict(counter.items())
    assert found[b"often"] == found[b"alsooftenbutfarmuchlonger"] == 100
    assert len(found) <= 200
    assert counter.forgotten >= 1


def test_training_says_what_share_of_the_words_has_an_id() -> None:
    said: list[str] = []
    train(TextSpec(LOWER, Words(min_count=2)), ["a a b"], report=said.append)
    assert said == ["the vocabulary has 1 of 2 different words, which make up 66.67 % of the 3 words of the corpus"]


def test_words_counted_in_different_ways_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr("cloze.text.encoding.counting._PLAIN_BYTES", 10)
    tokenizer = train(TextSpec(LOWER, Words(min_count=1)), ["a b"])
    counter = ChunkCounter(marks=True, lower=True)
    for line in ("the cat sat", "the cat—the dog", "dog, a longestofallthewords", "longestofallthewords [PAD] THE"):
        counter.add([line])  # the first by plain code, the others by compiled code, the dash by the library
    engine = tokenizers.Tokenizer.from_str(tokenizer.description)
    found = count_words(engine, counter, {"[PAD]"}, 2)
    assert found.frequent == {"the": 4, "cat": 2, "dog": 2, "longestofallthewords": 2}
    assert (found.different, found.total, found.best) == (11, 17, ("the", 4))
