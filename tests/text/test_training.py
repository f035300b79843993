"""Training: the same tokenizer every time, in every process, on a sample that is stated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from cloze.errors import CorpusError, RecipeError
from cloze.registry import lookup, names
from cloze.text import ByteBPE, Normalise, TextSpec, Unigram, WordPiece, train
from cloze.text.vocabularies.sample import Alphabet, sample_texts
from cloze.text.vocabularies.unigram import Lattice, train_pieces
from tests.text.conftest import CHINESE, ENGLISH, SPECS

_PROGRAM = """
from tests.text.conftest import CHINESE, ENGLISH, SPECS
from cloze.text import train
print(*(train(SPECS[name], ENGLISH * 8 + CHINESE * 4).hash for name in sorted(SPECS)))
"""


def test_training_is_the_same_in_another_process(pytestconfig: pytest.Config) -> None:
    here = [train(SPECS[name], ENGLISH * 8 + CHINESE * 4).hash for name in sorted(SPECS)]
    root = str(pytestconfig.rootpath)
    for threads in ("true", "false"):
        environment = {**os.environ, "PYTHONPATH": root, "TOKENIZERS_PARALLELISM": threads, "PYTHONHASHSEED": "random"}
        found = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == here


def test_the_three_kinds_are_registered_with_their_arguments() -> None:
    assert {"wordpiece", "byte_bpe", "unigram"} <= set(names("tokenizer"))
    assert lookup("tokenizer", "wordpiece")(size=99).size == 99
    spec = TextSpec.of({"lower": True}, "byte_bpe", {"size": 300})
    assert spec == TextSpec(Normalise(lower=True), ByteBPE(size=300))


def test_a_recipes_text_can_be_given_as_it_is() -> None:
    part = SimpleNamespace(
        normalise={"lower": True}, tokenizer=SimpleNamespace(name="wordpiece", arguments={"size": 300}), words=None
    )
    found = train(part, ENGLISH, size=100)
    assert (found.kind, found.lower, found.size) == ("wordpiece", True, 100)


def test_no_piece_is_a_special_token_except_those_named() -> None:
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=200)), ENGLISH * 4)
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert tokenizer.id("##s") is not None and tokenizer.id("##s") not in tokenizer.special_ids


def test_a_small_corpus_gives_a_smaller_vocabulary_and_says_so() -> None:
    said: list[str] = []
    tokenizer = train(TextSpec(Normalise(), WordPiece(size=30522)), ENGLISH, report=said.append)
    assert tokenizer.size < 1000
    assert said == [f"the vocabulary has {tokenizer.size} pieces instead of the 30,522 requested: more text would give more"]


def test_a_corpus_over_the_budget_is_sampled_and_said() -> None:
    said: list[str] = []
    texts = [f"{number} {sentence}" for number in range(200) for sentence in ENGLISH]
    spec = TextSpec(Normalise(lower=True), WordPiece(size=200))
    first = train(spec, iter(texts), budget_bytes=20_000, report=said.append)
    assert said[0].startswith("tokenizer trained on a sample of 0 MB of 0 MB (budget 0 MB, seed 0)")
    assert train(spec, iter(texts), budget_bytes=20_000).hash == first.hash


def test_the_sample_is_within_its_budget_in_order_and_fixed() -> None:
    texts = [f"text number {number}" for number in range(5000)]
    sample = sample_texts(texts, 10_000, seed=7)
    assert sample.total_bytes == sum(map(len, texts))
    assert 9_900 < sample.kept_bytes == sum(map(len, sample.texts)) <= 10_000
    assert sample.texts == sorted(sample.texts, key=texts.index)
    assert sample_texts(iter(texts), 10_000, seed=7) == sample
    assert sample_texts(texts, 10_000, seed=8).texts != sample.texts
    places = [texts.index(text) for text in sample.texts]
    assert 2000 < sum(places) / len(places) < 3000
    assert sample_texts(texts, 10**9, seed=7).texts == texts


def test_one_text_larger_than_the_budget_is_cut_to_it() -> None:
    sample = sample_texts(["猫" * 1000], 100, seed=0)
    assert sample.texts == ["猫" * 33]


def test_a_corpus_without_text_is_refused() -> None:
    for texts in ([], ["", " \n"]):
        with pytest.raises(CorpusError, match="no text"):
            train(TextSpec(Normalise(), WordPiece()), texts)


@pytest.mark.parametrize(
    ("special", "message"),
    [
        ({"[UNK]": "[UNK]", "[MSK]": "[M]"}, "unknown role"),
        ({"[UNK]": "unk"}, "at least three characters"),
        ({"[UNK]": "[U K]"}, "without white space"),
        ({"[PAD]": "[PAD]"}, "[UNK] is missing"),
        ({"[UNK]": "[UNK]", "[MASK]": "#mask"}, None),
    ],
)
def test_special_literals_are_checked(special: dict[str, str], message: str | None) -> None:
    spec = TextSpec(Normalise(), WordPiece(size=200, special=special))
    if message is None:
        assert train(spec, ENGLISH).literals == special
        return
    with pytest.raises(RecipeError) as problem:
        train(spec, ENGLISH)
    assert message in str(problem.value)


def test_normalise_names_a_wrong_key_and_a_wrong_value() -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'lowr'. Did you mean 'lower'"):
        Normalise.of({"lowr": True})
    with pytest.raises(RecipeError, match="not true or false"):
        Normalise.of({"lower": "yes"})


def test_normalise_follows_berts_cleaning_switch_by_switch() -> None:
    full = Normalise(lower=True).build("wordpiece")
    assert full is not None and full.normalize_str("Ünï\x00中\tX") == "uni 中  x"
    cased = Normalise().build("wordpiece")
    assert cased is not None and cased.normalize_str("Ünï\t中") == "Ünï  中 "
    kept = Normalise(lower=True, strip_accents=False, cjk_spacing=False).build("wordpiece")
    assert kept is not None and kept.normalize_str("Ünï\t中") == "ünï 中"
    assert Normalise().build("byte_bpe") is None
    nfkc = Normalise().build("unigram")
    assert nfkc is not None and nfkc.normalize_str("ﬁＡ") == "fiA"


def test_unigram_drops_accents_after_a_compatible_decomposition_as_albert_does() -> None:
    bare = Normalise(lower=True, strip_accents=True).build("unigram")
    assert bare is not None and bare.normalize_str("Ünïﬁé´ ǅẛ") == "unifie  dzs"
    assert "´" not in Normalise(lower=True).build("unigram").normalize_str("a´")  # type: ignore[union-attr]


def test_the_alphabet_covers_a_share_and_knows_what_stands_inside_words() -> None:
    counted = Alphabet.of(["aaab a.b b-c"], None)
    assert counted.chosen(1.0, most=99) == (["-", ".", "a", "b", "c"], ["a", "b"])
    assert counted.chosen(0.5, most=99)[0] == ["a", "b"]
    assert counted.chosen(1.0, most=1)[0] == ["a"]


def test_rare_characters_stay_out_of_the_alphabet() -> None:
    texts = ["the cat sleeps " * 2000 + "ж"]
    tokenizer = train(TextSpec(Normalise(), WordPiece(size=100, coverage=0.999)), texts)
    assert tokenizer.id("ж") is None
    unigram = train(TextSpec(Normalise(), Unigram(size=40, coverage=0.999)), texts)
    assert unigram.role("[UNK]") in unigram.encode("ж").ids


def test_unigram_drops_a_quarter_of_its_pieces_at_a_time_and_ends_with_the_likeliest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kudo, 2018, §3.2. Pieces are left out after each of two rounds of fitting, too: those that hardly occur any more."""
    kept: list[tuple[int, int]] = []
    keeping = Lattice.keeping

    def note(self: Lattice, keep: NDArray[np.bool_]) -> Lattice:
        kept.append((len(keep), int(keep.sum())))
        return keeping(self, keep)

    monkeypatch.setattr(Lattice, "keeping", note)
    text = (Path(__file__).parents[2] / "cloze" / "samples" / "english.txt").read_text(encoding="utf-8")
    pieces = train_pieces([text], None, size=120, coverage=0.9995)
    rounds = kept[2::3]
    assert len(rounds) >= 3 and all(after == max(120, int(0.75 * before)) for before, after in rounds)
    scores = [score for _, score in pieces]
    assert len(pieces) <= 120 and scores == sorted(scores, reverse=True) and len(set(scores)) > 10


def test_unigram_pieces_are_frequent_substrings_and_all_characters() -> None:
    tokenizer = train(TextSpec(Normalise(), Unigram(size=90)), ["sleeping sleepers sleep sleeplessly"] * 50 + CHINESE)
    pieces = {tokenizer.piece(i) for i in tokenizer.ordinary_ids}
    assert set("slepingry猫") <= pieces
    assert len(tokenizer.encode("sleeping").ids) <= 2
    assert tokenizer.decode(tokenizer.encode("sleeping sleepers").ids) == "sleeping sleepers"
