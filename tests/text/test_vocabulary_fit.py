"""How well a vocabulary fits a text, the words that would save most, and a vocabulary with these words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.changes import transfer_rows
from cloze.cli.main import main
from cloze.errors import CorpusError
from cloze.text import ByteBPE, Normalise, Tokenizer, Unigram, WordPiece
from cloze.text.vocabularies.vocabulary import extended, fit_of

GENERAL = ["the cell and the gene are in the body", "a gene is in the cell", "the body and the cell are a body"] * 20
DOMAIN = ["The cytokine binds the receptor.", "cytokine and cytokine receptor", "a cytoplasm in the cell"]


def made(kind: Any) -> Tokenizer:
    return kind.train([*GENERAL, "abcdefghijklmnopqrstuvwxyz ."], Normalise(lower=True))


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return made(WordPiece(size=90))


def test_words_that_save_most_tokens_come_first_as_the_tokenizer_normalises_them(wordpiece: Tokenizer) -> None:
    fit = fit_of(wordpiece, DOMAIN)
    found = {one.word: one for one in fit.candidates(min_count=1)}
    assert next(iter(found)) == "cytokine" and set(found) == {"cytokine", "receptor", "binds", "cytoplasm"}
    pieces = len(wordpiece.encode("cytokine").ids)
    assert found["cytokine"].times == 3 and found["cytokine"].saved == 3 * max(pieces - 1, 1)
    assert fit.tokens == sum(len(wordpiece.encode(text).ids) for text in DOMAIN)
    assert fit.words == 15 and fit.fertility == fit.tokens / 15 and fit.bytes == sum(map(len, DOMAIN))
    assert [one.word for one in fit.candidates(min_count=2)] == ["cytokine", "receptor"]


@pytest.mark.parametrize("kind", [WordPiece(size=90), Unigram(size=90)])
def test_added_words_are_single_pieces_and_all_other_ids_stay(kind: Any) -> None:
    old = made(kind)
    new = extended(old, ["cytokine", "receptor"])
    assert new.size == old.size + 2
    assert new.encode("the cytokine").ids.tolist() == [*old.encode("the").ids.tolist(), old.size]
    assert new.encode("receptor").ids.tolist() == [old.size + 1]
    for text in GENERAL:
        assert new.encode(text).ids.tolist() == old.encode(text).ids.tolist()


def test_byte_pairs_take_words_by_merges_behind_the_old_ones() -> None:
    old = made(ByteBPE(size=300))
    words = ["cytokine", "cytoplasm", "receptor", "acyto", "脑炎"]  # one begins like another, one ends like its beginning
    new = extended(old, words)
    assert new.spellings[: old.size] == old.spellings
    for word in words:
        assert len(old.encode(f"the {word}").ids) > 2
        assert len(new.encode(f"the {word}").ids) == 2 and new.decode(new.encode(f"the {word}").ids[1:]) == f" {word}"
    assert words[0].startswith("cyto") and len({new.encode(f" {word}").ids[0] for word in words}) == len(words)
    for text in GENERAL:
        assert new.encode(text).ids.tolist() == old.encode(text).ids.tolist()
    assert fit_of(new, DOMAIN).tokens < fit_of(old, DOMAIN).tokens and new.decode(new.encode(DOMAIN[1]).ids) == DOMAIN[1]


def test_a_word_of_byte_pairs_starts_at_the_mean_of_the_pieces_behind_a_space() -> None:
    old = made(ByteBPE(size=300))
    new = extended(old, ["cytokine"])
    table = torch.randn(old.size, 4, generator=torch.Generator().manual_seed(0))
    rows = transfer_rows(old, new, table, "pieces")
    assert torch.equal(rows[: old.size], table)
    torch.testing.assert_close(rows[new.encode(" cytokine").ids[0]], table[old.encode(" cytokine").ids.tolist()].mean(0))
    for number in range(old.size, new.size):  # and so do its beginnings
        assert not torch.allclose(rows[number], table.mean(0))


def test_a_vocabulary_of_another_kind_cannot_take_a_word(wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece, "kind", "bpe")
    with pytest.raises(CorpusError, match="is of kind bpe; words can be added to a wordpiece, unigram or byte_bpe vocabulary"):
        extended(wordpiece, ["cytokine"])


def test_a_new_word_starts_at_the_mean_of_its_pieces(wordpiece: Tokenizer) -> None:
    table = torch.randn(wordpiece.size, 4, generator=torch.Generator().manual_seed(0))
    new = extended(wordpiece, ["bodycell", "łódź"])
    rows = transfer_rows(wordpiece, new, table, "pieces")
    read = wordpiece.encode("bodycell").ids.tolist()
    assert len(read) > 1 and wordpiece.role("[UNK]") not in read
    torch.testing.assert_close(rows[wordpiece.size], table[read].mean(0))
    torch.testing.assert_close(rows[wordpiece.size + 1], table.mean(0))
    assert torch.equal(rows[: wordpiece.size], table)


def test_the_verb_ranks_words_and_writes_a_tokenizer(
    wordpiece: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wordpiece.save(tmp_path / "old", length=16, frame_single="{A}")
    (tmp_path / "text.txt").write_text("\n".join(DOMAIN * 5), encoding="utf-8")
    corpus = ["--corpus", str(tmp_path / "text.txt")]
    arguments = ["vocab", "candidates", str(tmp_path / "old"), *corpus, "--add", "2", "--out", str(tmp_path / "new"), "--json"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["word"] for one in told["words"]] == ["cytokine", "receptor"]
    assert told["before"]["tokens"] - told["after"]["tokens"] == sum(one["saved"] for one in told["words"])
    assert Tokenizer.load(tmp_path / "new").size == wordpiece.size + 2
    assert main(["vocab", "fit", str(tmp_path / "old"), str(tmp_path / "new"), *corpus]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert float(lines[1].split()[1]) == pytest.approx(told["before"]["tokens_per_word"], abs=1e-4)
    assert float(lines[2].split()[1]) == pytest.approx(told["after"]["tokens_per_word"], abs=1e-4)
    assert main(["vocab", "candidates", str(tmp_path / "old"), *corpus, "--min-count", "1000"]) == 2
    assert "every word that occurs at least 1000 times is already one token of" in capsys.readouterr().err
    for out, said in (("text.txt", "is a file."), ("old", "is not empty.")):
        assert main([*arguments[:-3], "--out", str(tmp_path / out)]) == 2
        assert f"{tmp_path / out}: {said} Choose a new or empty folder." in capsys.readouterr().err
