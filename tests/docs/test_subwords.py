"""docs/subwords.md is run; its algorithms give the worked examples, and what `tokenizers` gives."""

from __future__ import annotations

import doctest
import itertools
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "subwords.md"
ASKED = ["lowest", "newer", "wider"]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Everything the page defines, after running it from top to bottom and comparing its sessions."""
    names: dict[str, Any] = {"__name__": "subwords"}
    text = PAGE.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, found.start(2))
        if found[1] == "python":
            exec(compile("\n" * line + found[2], str(PAGE), "exec"), names)
            continue
        assert found[1] == "pycon", f"subwords.md:{line}: a block of an unknown kind"
        session = doctest.DocTestParser().get_doctest(found[2], names, "subwords.md", str(PAGE), line)
        said: list[str] = []
        runner = doctest.DocTestRunner()
        runner.run(session, out=said.append, clear_globs=False)
        names.update(session.globs)
        assert runner.failures == 0, "".join(said)
    return names


def learnt(page: dict[str, Any], mark: str, tie: str, merges: int = 15) -> list[tuple[str, str]]:
    return [pair for pair, _ in page["learn_bpe"](page["CORPUS"], merges, mark, tie)]


# --- byte-pair encoding --------------------------------------------------------------------------------------------------


def test_merges_of_the_paper(page: dict[str, Any]) -> None:
    found = page["learn_bpe"](page["CORPUS"], 99, "separate", "first")
    expected = (
        "es 9, est 9, est</w> 9, lo 7, low 7, ne 6, new 6, newest</w> 6, low</w> 5, wi 3, wid 3, widest</w> 3, lowe 2, "
        "lower 2, lower</w> 2"
    )
    assert ", ".join(f"{a}{b} {count}" for (a, b), count in found) == expected


def test_merges_and_cuts_of_subword_nmt(page: dict[str, Any]) -> None:
    found = page["learn_bpe"](page["CORPUS"], 99, "glued", "largest")
    expected = (
        "s+t</w> 9, e+st</w> 9, l+o 7, w+est</w> 6, n+e 6, ne+west</w> 6, lo+w</w> 5, w+i 3, wi+d 3, wid+est</w> 3, w+e 2, "
        "we+r</w> 2, lo+wer</w> 2"
    )
    assert ", ".join(f"{a}+{b} {count}" for (a, b), count in found) == expected
    assert page["cut"]([*ASKED, "slow"], "glued", "largest") == "lo west; ne wer; wid e r; s low"


def test_cuts_with_the_first_of_equal_pairs(page: dict[str, Any]) -> None:
    assert page["cut"](ASKED, "glued", "first") == "low est; new e r; wid e r"


def test_merges_of_sentencepiece(page: dict[str, Any]) -> None:
    found = learnt(page, "none", "shortest", 99)
    assert " ".join(map("".join, found)) == "es est lo low ew new newest id wid widest er lower"
    assert page["cut"](["lowest"], "none", "shortest") == "low est"


def test_merges_and_cuts_of_the_library(page: dict[str, Any]) -> None:
    expected = "e+s es+t</w> l+o e+w n+ew new+est</w> lo+w</w> d+est</w> i+dest</w> w+idest</w> e+r</w> w+er</w>"
    assert [f"{a}+{b}" for a, b in learnt(page, "glued", "smallest id", 12)] == expected.split()
    engine = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=26, min_frequency=2, special_tokens=["[UNK]"], end_of_word_suffix="</w>", show_progress=False
    )
    engine.train_from_iterator([" ".join([word] * count) for word, count in page["CORPUS"].items()], trainer)
    assert "; ".join(" ".join(page["spelled"](engine.encode(word).tokens)) for word in ASKED) == "lo w est; new er; w i d er"
    assert page["cut"](ASKED, "glued", "smallest id", 12) == "lo w est; new er; w i d er"


@pytest.mark.parametrize(("mark", "tie"), [("separate", "first"), ("glued", "largest"), ("glued", "first"), ("none", "shortest")])
def test_every_word_of_the_corpus_becomes_one_piece(page: dict[str, Any], mark: str, tie: str) -> None:
    merges = learnt(page, mark, tie)
    for word in page["CORPUS"]:
        assert page["spelled"](page["encode_bpe"](word, merges, mark)) == [word]


words = st.dictionaries(st.text("abcd", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(corpus=words, asked=st.text("abcd", min_size=1, max_size=12))
def test_encoding_with_given_merges_is_that_of_the_library(page: dict[str, Any], corpus: dict[str, int], asked: str) -> None:
    for mark, suffix in (("glued", "</w>"), ("none", None)):
        merges = [pair for pair, _ in page["learn_bpe"](corpus, 12, mark, "largest")]
        pieces = {*"abcd", *(c + "</w>" for c in "abcd"), *map("".join, merges)}
        vocabulary = {piece: i for i, piece in enumerate(sorted(pieces))}
        library = models.BPE(vocabulary, merges, end_of_word_suffix=suffix) if suffix else models.BPE(vocabulary, merges)
        found = page["encode_bpe"](asked, merges, mark)
        assert found == [token.value for token in library.tokenize(asked)]
        assert "".join(page["spelled"](found)) == asked


def test_overlapping_pairs_count_twice_and_are_merged_from_the_left(page: dict[str, Any]) -> None:
    assert page["count_pairs"]([(["a", "a", "a"], 3)]) == {("a", "a"): 6}
    assert page["merge"](["a", "a", "a"], ("a", "a")) == ["aa", "a"]


def test_dropout_keeps_the_word_and_ends_in_characters(page: dict[str, Any]) -> None:
    merges = learnt(page, "glued", "largest")
    generator = random.Random(0)
    drawn = {tuple(page["encode_bpe"]("newest", merges, drop=0.3, random=generator)) for _ in range(100)}
    assert len(drawn) > 3 and {"".join(pieces) for pieces in drawn} == {"newest</w>"}
    assert page["encode_bpe"]("low", merges, drop=1.0, random=generator) == ["l", "o", "w</w>"]
    assert page["encode_bpe"]("low", merges, drop=0.0) == ["low</w>"]


def test_pieces_outside_a_vocabulary_are_taken_apart_again(page: dict[str, Any]) -> None:
    merges = learnt(page, "glued", "largest")
    whole = page["encode_bpe"]("newest", merges)
    assert whole == ["newest</w>"]
    assert page["only_known"](whole, merges, {"ne", "est</w>"}) == ["ne", "w", "est</w>"]


# --- bytes ---------------------------------------------------------------------------------------------------------------


def test_the_byte_alphabet_is_a_bijection_and_that_of_the_library(page: dict[str, Any]) -> None:
    alphabet = page["BYTES"]
    assert len(set(alphabet.values())) == 256 and sum(ord(c) == byte for byte, c in alphabet.items()) == 188
    assert set(alphabet.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    moved = {32: 0x120, 10: 0x10A, 9: 0x109, 0: 0x100, 127: 0x121, 173: 0x143}
    assert {byte: ord(alphabet[byte]) for byte in moved} == moved


SIGNS = st.sampled_from("aZ é猫١2½Ⅷ'’!_-\t\n\x1c\x85\xa0\u2003\u200b\u3000") | st.sampled_from("stmvdlr' ")


@settings(max_examples=200, deadline=None)
@given(text=st.text(SIGNS | st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=24))
def test_stretches_are_those_of_the_library(page: dict[str, Any], text: str) -> None:
    library = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    found = ["".join(page["BYTES"][byte] for byte in stretch.encode()) for stretch in page["stretches"](text)]
    assert found == [piece for piece, _ in library]
    assert "".join(page["stretches"](text)) == text


# --- WordPiece -----------------------------------------------------------------------------------------------------------


def test_wordpiece_takes_the_longest_match_or_nothing(page: dict[str, Any]) -> None:
    encode = page["encode_wordpiece"]
    assert encode("unaffab", {"un", "##aff", "##able"}) == ["[UNK]"]
    assert encode("a" * 101, {"a", "##a"}) == ["[UNK]"]
    assert len(encode("a" * 100, {"a", "##a"})) == 100


@settings(max_examples=100, deadline=None)
@given(pieces=st.sets(st.text("ab", min_size=1, max_size=3).flatmap(lambda s: st.sampled_from([s, "##" + s])), min_size=1),
       asked=st.text("abc", min_size=1, max_size=9))
def test_wordpiece_is_that_of_the_library(page: dict[str, Any], pieces: set[str], asked: str) -> None:
    vocabulary = {piece: i for i, piece in enumerate(["[UNK]", *sorted(pieces)])}
    library = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    assert page["encode_wordpiece"](asked, pieces) == [token.value for token in library.tokenize(asked)]


def test_first_merges_by_likelihood_and_by_frequency(page: dict[str, Any]) -> None:
    words = [([word[0], *("##" + c for c in word[1:])], count) for word, count in page["CORPUS"].items()]
    scores = sorted(page["wordpiece_scores"](words, "likelihood").items(), key=lambda item: -item[1])
    assert scores[:2] == [(("w", "##i"), 3 / 9), (("##i", "##d"), 3 / 9)]
    assert scores[2] == (("l", "##o"), 7 / 49)
    assert page["learn_wordpiece"](page["CORPUS"], 1, "frequency") == [(("##e", "##s"), 9)]
    learnt = page["learn_wordpiece"](page["CORPUS"], 99)
    whole = {a + b.removeprefix("##") for (a, b), _ in learnt}
    assert whole >= set(page["CORPUS"])


# --- unigram -------------------------------------------------------------------------------------------------------------


def every_cut(text: str) -> list[list[str]]:
    borders = range(1, len(text))
    chosen = itertools.chain.from_iterable(itertools.combinations(borders, n) for n in range(len(text)))
    return [[text[a:b] for a, b in itertools.pairwise((0, *cuts, len(text)))] for cuts in chosen]


def test_probabilities_of_all_cuts(page: dict[str, Any]) -> None:
    pieces = page["PIECES"]
    found = {" ".join(cut): math.exp(sum(pieces[p] for p in cut)) for cut in every_cut("abc") if set(cut) <= set(pieces)}
    assert found == pytest.approx({"abc": 0.1, "ab c": 0.03, "a bc": 0.02, "a b c": 0.004})
    assert math.exp(page["expectations"]("abc", pieces)[0]) == pytest.approx(0.154)


def test_expected_counts_and_the_two_second_steps(page: dict[str, Any]) -> None:
    corpus = {"ab": 2, "abc": 1}
    likelihood, expected = page["e_step"](corpus, page["PIECES"])
    assert likelihood == pytest.approx(-4.028422, abs=1e-6)
    assert expected == pytest.approx(
        {"a": 0.391138, "b": 0.261268, "c": 0.220779, "ab": 1.959511, "bc": 0.129870, "abc": 0.649351}, abs=1e-6
    )
    assert page["e_step"](corpus, page["m_step"](expected))[0] == pytest.approx(-2.720830, abs=1e-6)
    assert page["sentencepiece_step"](expected) == pytest.approx({"ab": -0.358850, "abc": -2.127608}, abs=1e-6)
    assert page["digamma"](1.0) == pytest.approx(-0.5772156649015329, abs=1e-10)


@settings(max_examples=30, deadline=None)
@given(corpus=st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 5), min_size=1, max_size=4))
def test_the_likelihood_never_falls(page: dict[str, Any], corpus: dict[str, int]) -> None:
    scores, before = page["PIECES"], -math.inf
    for _ in range(5):
        likelihood, expected = page["e_step"](corpus, scores)
        assert likelihood >= before - 1e-9
        scores, before = page["m_step"](expected), likelihood


def test_marginals_of_the_lattice_of_sentencepieces_own_test(page: dict[str, Any]) -> None:
    total, expected = page["expectations"]("ABC", {"A": 1.0, "B": 1.2, "C": 2.5, "AB": 3.0, "BC": 4.0, "ABC": 2.0})
    assert total == pytest.approx(6.235276, abs=1e-6)
    assert expected == pytest.approx(
        {"A": 0.506151, "B": 0.215396, "C": 0.694770, "AB": 0.479373, "BC": 0.290755, "ABC": 0.014476}, abs=1e-6
    )


@pytest.mark.parametrize(
    ("alpha", "shares"),
    [
        (1.0, (0.649351, 0.194805, 0.129870, 0.025974)), (0.2, (0.329371, 0.258887, 0.238722, 0.173021)),
        (0.0, (0.25, 0.25, 0.25, 0.25)),
    ],
)
def test_sampling_draws_by_the_power_of_the_probability(page: dict[str, Any], alpha: float, shares: tuple[float, ...]) -> None:
    generator = random.Random(1)
    number = 4000
    drawn = [" ".join(page["sample"]("abc", page["PIECES"], alpha, generator)) for _ in range(number)]
    for cut, share in zip(("abc", "ab c", "a bc", "a b c"), shares, strict=True):
        assert drawn.count(cut) / number == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / number))
        exact = math.exp(alpha * sum(page["PIECES"][p] for p in cut.split()))
        total = page["expectations"]("abc", {p: alpha * s for p, s in page["PIECES"].items()})[0]
        assert exact / math.exp(total) == pytest.approx(share, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(text=st.text("abc", min_size=1, max_size=10), longer=st.dictionaries(
    st.text("abc", min_size=2, max_size=4), st.floats(-9, -0.5), max_size=8))
def test_the_best_cut_scores_as_that_of_the_library(page: dict[str, Any], text: str, longer: dict[str, float]) -> None:
    scores = {"a": -3.0, "b": -3.5, "c": -4.1, **longer}
    library = models.Unigram([("[UNK]", 0.0), *scores.items()], 0, False)
    found, theirs = page["viterbi"](text, scores), [token.value for token in library.tokenize(text)]
    assert "".join(found) == text
    assert sum(scores[p] for p in found) == pytest.approx(sum(scores[p] for p in theirs), abs=1e-9)
    assert sum(scores[p] for p in found) == pytest.approx(max(
        sum(scores[p] for p in cut) for cut in every_cut(text) if set(cut) <= set(scores)
    ))


def test_an_unknown_character_costs_ten_more_than_the_worst_piece(page: dict[str, Any]) -> None:
    assert page["viterbi"]("xab", page["PIECES"]) == ["x", "ab"]
    assert page["expectations"]("x", page["PIECES"])[0] == pytest.approx(math.log(0.1) - 10)
