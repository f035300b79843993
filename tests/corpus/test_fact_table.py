"""The table of facts: which subjects are found in a text, what its file may hold, and that it survives a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cloze.errors import CorpusError, RecipeError
from cloze.knowledge.fact_table import BoundFacts, Facts, read_triples
from cloze.text import BPE, ByteBPE, Normalise, TextSpec, Tokenizer, Unigram, WordPiece, train

FACTS = [
    ("Tim Cook", "leads", "Apple"), ("Beijing", "capital of", "China"), ("Beijing", "in", "Asia"), ("king", "is", "ruler"),
]

ENGLISH = [
    "Tim Cook leads Apple. Beijing, the capital of China, is in Asia; a king is a ruler.", "In (thinking) baking Beijingers",
]
CHINESE = ["京剧属于戏曲北京属于中国京是字北京剧院京剧在"]


@pytest.fixture(scope="module")
def english() -> Callable[[str], Tokenizer]:
    """A small tokenizer of a kind, which cuts most words into pieces."""
    specs = {
        "wordpiece": TextSpec(Normalise(lower=True), WordPiece(size=90)), "byte_bpe": TextSpec(Normalise(), ByteBPE(size=290)),
        "unigram": TextSpec(Normalise(), Unigram(size=80)), "bpe": TextSpec(Normalise(), BPE(size=100)),
    }
    return lambda kind: train(specs[kind], ENGLISH * 4)


@pytest.fixture(scope="module")
def chinese() -> Tokenizer:
    return train(TextSpec(Normalise(cjk_spacing=True), WordPiece(size=60)), CHINESE * 4)


def tokens_of(table: BoundFacts, tokenizer: Tokenizer, text: str) -> list[tuple[str, list[str]]]:
    """The subjects that are found in a text, with their facts, as text."""
    ids = tokenizer.encode(text).ids[None]
    found = table.find(ids, np.array([ids.shape[1]]))
    made = []
    for start, size, subject in zip(found.start, found.size, found.subject, strict=True):
        facts = [
            tokenizer.decode(table.tokens[table.begin[b] : table.begin[b + 1]]).strip()
            for b in range(table.first[subject - 1], table.first[subject])
        ]
        made.append((tokenizer.decode(ids[0, start : start + size]).strip(), facts))
    return made


def test_a_fact_that_is_there_twice_counts_once_and_the_others_keep_their_order(english: Callable[[str], Tokenizer]) -> None:
    once, twice = (BoundFacts.of(facts, english("wordpiece")) for facts in (FACTS, [FACTS[1], *FACTS, FACTS[1], FACTS[2]]))
    (_, of_beijing), = tokens_of(twice, english("wordpiece"), "Beijing")
    assert of_beijing == ["capital of china", "in asia"]
    assert len(twice.predicate) == len(once.predicate)


def test_subjects_that_the_tokenizer_reads_alike_share_their_facts() -> None:
    lower = TextSpec(Normalise(lower=True), WordPiece(size=60))
    tokenizer = train(lower, ["the cat eats mice and is warm", "the dog sees"] * 5)
    facts = [("Cat", "eats", "mice"), ("dog", "sees", "the"), ("cat", "is", "warm"), ("CAT", "eats", "mice")]
    bound = BoundFacts.of(facts, tokenizer)
    expected = BoundFacts.of([(subject.lower(), *fact) for subject, *fact in facts[:3]], tokenizer)  # type: ignore[misc]
    assert {name: array.tolist() for name, array in bound.arrays.items()} == {
        name: array.tolist() for name, array in expected.arrays.items()
    }
    assert bound.first.tolist() == [0, 2, 3]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "bpe"])
def test_subjects_are_found_as_whole_words_wherever_they_stand(kind: str, english: Callable[[str], Tokenizer]) -> None:
    tokenizer = english(kind)
    table = BoundFacts.of(FACTS, tokenizer)
    lower = tokenizer.normalised("Tim Cook") == "tim cook"
    expected = [("Tim Cook", ["leads Apple"]), ("Beijing", ["capital of China", "in Asia"])]
    expected = [(a.lower(), [b.lower() for b in c]) for a, c in expected] if lower else expected
    assert tokens_of(table, tokenizer, "Tim Cook visits Beijing") == expected
    assert tokens_of(table, tokenizer, "In (Beijing), Tim Cook.") == expected[::-1]
    assert tokens_of(table, tokenizer, "thinking Beijingers baking") == []


def test_in_chinese_a_subject_inside_another_word_is_not_found(chinese: Tokenizer) -> None:
    facts = [("京剧", "属于", "戏曲"), ("北京", "属于", "中国"), ("京", "是", "字")]
    bare, listed = BoundFacts.of(facts, chinese), BoundFacts.of(facts, chinese, ["剧院", "北京剧院"])
    assert [name for name, _ in tokens_of(bare, chinese, "京剧在北京")] == ["京 剧", "北 京"]  # the longest one
    assert [name for name, _ in tokens_of(bare, chinese, "北京剧院")] == ["北 京"]
    assert tokens_of(listed, chinese, "北京剧院") == []
    assert tokens_of(listed, chinese, "京剧") == [("京 剧", ["属 于 戏 曲"])]


def test_a_checkpoint_restores_the_table(chinese: Tokenizer) -> None:
    table = BoundFacts.of([("北京", "属于", "中国")], chinese, ["京剧"])
    again = Facts.restored(table.arrays)
    assert tokens_of(again, chinese, "在北京") == tokens_of(table, chinese, "在北京") == [("北 京", ["属 于 中 国"])]
    with pytest.raises(CorpusError, match="triples: expected the arrays grams, .* copy it again"):
        Facts.restored({"grams": table.arrays["grams"]})


def test_a_file_has_subject_predicate_and_object(tmp_path: Path) -> None:
    file = tmp_path / "facts.tsv"
    file.write_bytes("\ufeffTim Cook\tleads\tApple\r\n\r\n Beijing \tcapital of\tChina\r\n".encode())
    assert read_triples(str(file)) == [("Tim Cook", "leads", "Apple"), ("Beijing", "capital of", "China")]
    file.write_text("object\tsubject\tpredicate\nApple\tTim Cook\tleads\n", encoding="utf-8")
    assert read_triples(str(file)) == [("Tim Cook", "leads", "Apple")]


@pytest.mark.parametrize(("content", "expected"), [
    (b"a\tb\tc\nCook leads Apple\n", r"facts.tsv:2: 1 column, expected subject, predicate and object, separated by tabs: "
     r"'Cook leads Apple'\.\n  Write one fact per line"),
    (b"a\tb\tc\td\n", r"facts.tsv:1: 4 columns, expected subject, predicate and object"),
    (b"a\tb\tc\n\na\t\tc\n", r"facts.tsv:3: the predicate is empty: 'a\\t\\tc'\.\n  Fill it in, or delete the line"),
    ("a\tb\tc\nna\xefve\tis\tc\n".encode("latin-1"), r"facts.tsv:2: byte 0xef is not UTF-8, and the encoding is not certain"),
    (b"\n\n", r"facts.tsv: no facts; expected lines `subject TAB predicate TAB object`"),
])
def test_a_bad_line_is_an_error_with_file_and_line(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "facts.tsv"
    file.write_bytes(content)
    with pytest.raises(CorpusError, match=expected):
        read_triples(str(file))


def test_a_missing_file_names_its_neighbour_and_no_file_the_option(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("a\tb\tc\n")
    with pytest.raises(RecipeError, match=r"no such file. Did you mean 'facts.tsv'"):
        read_triples(str(tmp_path / "fact.tsv"))
    with pytest.raises(RecipeError, match=r"no file. Give one .*--bind NAME=FILE"):
        Facts().bind(None)  # type: ignore[arg-type]
