"""Checkpoints as vectors, files of vectors as checkpoints, and the verbs import and export between them."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.interop import Card, PortableHead, PortableModel, Reading, export_folder
from cloze.interop.vectors import open_fasttext, open_vectors
from cloze.interop.vectors.fasttext import FastText, Settings, write_fasttext
from cloze.text.normalise import Normalise
from cloze.text.words import Words

WORDS = ["the", "where", "naïve", "cat", "</s>"]
TEXT = "5 3\n" + "".join(f"{word} {i} {i + 0.5} {-i}\n" for i, word in enumerate(WORDS, start=1))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "v.vec"
    path.write_text(TEXT)
    return path


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    chance = np.random.default_rng(1)
    table, answers = (chance.standard_normal((rows, 4)).astype(np.float32) for rows in (5 + 40, 5))
    made = FastText(Settings(4, buckets=40, negatives=7), WORDS, (), np.array([9, 7, 5, 3, 1]), 25, table, answers)
    path = tmp_path / "m.bin"
    with path.open("wb") as file:
        write_fasttext(file, made)
    return path


def test_a_file_becomes_a_checkpoint_that_is_open_to_all_verbs(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["import", str(text), "--out", str(out), "--name", "mine"]) == 0
    printed = capsys.readouterr().out
    assert "word_vectors: 8 words, width 3" in printed and "</s> of the file stand for roles" in printed
    found = open_vectors(out)
    assert list(found.words) == ["</s>", "the", "where", "naïve", "cat"]
    assert {word: found.vector(word).tolist() for word in WORDS} == {
        word: open_vectors(text).vector(word).tolist() for word in WORDS
    }
    loaded = load_checkpoint(out)
    assert loaded.network.vectors()[loaded.tokenizer.id("cat")].tolist() == [4, 4.5, -4]  # type: ignore[operator]
    assert loaded.tokenizer.roles["[EOS]"] == loaded.tokenizer.id("</s>") == 3
    assert loaded.tokenizer.encode("the cat where").ids.tolist() == [4, 7, 5]
    assert main(["check", str(out / "cloze" / "recipe.yaml")]) == 0


def test_words_that_are_not_utf8_are_told_and_texts_of_unknown_words_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.vec").write_bytes("the 1 2\ncafé 3 4\n".encode("latin-1"))
    assert main(["import", str(tmp_path / "latin.vec"), "--out", str(tmp_path / "out")]) == 0
    assert "1 of 2 words are not UTF-8, such as caf\\xe9" in capsys.readouterr().out
    assert main(["embed", str(tmp_path / "out"), "the", "never seen", ""]) == 0
    assert "note: 2 of 3 texts have no known tokens: their vectors are zeros." in capsys.readouterr().err


def test_words_in_a_file_that_spell_roles_become_them(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("a 1 2\n[PAD] 3 4\n<unk> 5 6\n")
    assert main(["import", str(tmp_path / "g.txt"), "--out", str(tmp_path / "out")]) == 0
    tokenizer = load_checkpoint(tmp_path / "out").tokenizer
    assert dict(tokenizer.roles) == {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3} and tokenizer.piece(1) == "<unk>"
    found = open_vectors(tmp_path / "out")
    assert list(found.words) == ["<unk>", "a"] and found.own.tolist() == [[5, 6], [1, 2]]


def test_repeated_words_are_refused_or_kept_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g.txt").write_text("a 1 2\na 3 4\nb 5 6\n")
    arguments = ["import", str(tmp_path / "g.txt"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "'a' (lines 1 and 2)" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert main([*arguments, "--repeated", "first"]) == 0
    assert open_vectors(tmp_path / "out").own.tolist() == [[1, 2], [5, 6]]


def test_a_model_of_fasttext_keeps_n_grams_counts_and_answers(binary: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["import", str(binary), "--out", str(out)]) == 0
    before, after, loaded = open_vectors(binary), open_vectors(out), load_checkpoint(out)
    for word in [*WORDS, "nowhere", "cats"]:
        assert np.allclose(before.vector(word), after.vector(word), atol=1e-6)
        assert np.allclose(loaded.network.vector_of(word).numpy(), before.vector(word), atol=1e-6)  # type: ignore[operator]
    assert np.allclose(loaded.network.vectors()[3:].numpy(), after.matrix, atol=1e-6)  # type: ignore[operator]
    assert after.counts is not None and after.counts.tolist() == [0, 9, 7, 5, 3]  # roles count as 0
    assert loaded.heads["negative_sampling"].negatives == 7
    assert main(["check", str(out / "cloze" / "recipe.yaml")]) == 0
    assert main(["export", str(out), str(tmp_path / "again.bin"), "--to", "fasttext"]) == 0
    one, two = open_fasttext(binary), open_fasttext(tmp_path / "again.bin")
    order = [4, 0, 1, 2, 3]
    assert list(two.words) == [one.words[row] for row in order]
    assert np.array_equal(two.table, one.table[[*order, *range(5, 45)]])
    assert np.array_equal(two.answers, one.answers[order]) and two.counts.tolist() == [1, 9, 7, 5, 3]


def test_a_matrix_of_a_checkpoint_is_mapped_and_not_copied(text: Path, tmp_path: Path) -> None:
    assert main(["import", str(text), "--out", str(tmp_path / "out")]) == 0
    own = open_vectors(tmp_path / "out").own
    assert not own.flags.owndata and own.base is not None


def test_both_sides_are_added(tmp_path: Path) -> None:
    tokenizer = Words().of_words(["a", "b"], Normalise(lower=True))
    sides = {name: torch.randn(6, 2) for name in ("embeddings.weight", "contexts.weight")}
    state = {**sides, "bias": torch.zeros(6), "context_bias": torch.zeros(6)}
    model = PortableModel({"width": 2, "both_sides": True, "biases": True}, "open", state, {}, "word_vectors")
    export_folder(tmp_path / "g", model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "first"), card=Card("g"))
    found = open_vectors(tmp_path / "g")
    assert np.array_equal(found.own, (sides["embeddings.weight"] + sides["contexts.weight"])[4:].numpy())
    assert found.row("B") == 1 and found.row("c") is None  # its tokenizer lower-cases


def test_any_network_with_a_table_has_neighbours(
    systems: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bert", "roberta"):
        made = systems.system(name)
        export_folder(
            tmp_path / name, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card(name)
        )
        found = open_vectors(tmp_path / name)
        table = made.network.state_dict()["embeddings.tokens.weight"].numpy()
        assert len(found) == len(made.tokenizer.ordinary_ids) and not set(made.tokenizer.literals.values()) & set(found.words)
        word = "cat" if name == "bert" else next(w[1:] for w in found.words if w.startswith("Ġ") and len(w) > 1)
        row = made.tokenizer.id(word if name == "bert" else "Ġ" + word) if found.ids.get(word) is None else None
        row = made.tokenizer.id(found.words[found.row(word)]) if row is None else row  # type: ignore[index]
        assert np.array_equal(found.vector(word), table[row])
        assert main(["neighbours", str(tmp_path / name), word, "--count", "2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_folder_that_is_damaged_is_told(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["import", str(text), "--out", str(out)]) == 0
    weights = out / "cloze" / "network.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-5])
    with pytest.raises(CheckpointError, match="damaged or copied only in part"):
        open_vectors(out)
    weights.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        open_vectors(out)
    from safetensors.torch import save_file

    save_file({"embeddings.weight": torch.zeros(3, 3)}, weights)
    with pytest.raises(CheckpointError, match="a table of 3 rows for 8 ids"):
        open_vectors(out)
    save_file({"embeddings.weight": torch.full((8, 3), torch.nan)}, weights)
    with pytest.raises(CheckpointError, match="number 1 of '</s>'.*is nan"):
        open_vectors(out)


def test_a_network_without_a_table_says_so(tmp_path: Path) -> None:
    tokenizer = Words().of_words(["a", "b"], Normalise())
    model = PortableModel({"width": 2}, "open", {"other.weight": torch.zeros(2, 2)}, {}, "word_vectors")
    export_folder(tmp_path / "g", model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "first"), card=Card("g"))
    path = tmp_path / "g" / "cloze" / "network.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "part": "another"}))
    with pytest.raises(CheckpointError, match="another has no table with a vector for every token"):
        open_vectors(tmp_path / "g")


def test_other_heads_have_no_answers_for_fasttext(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = Words().of_words(["a", "b"], Normalise())
    head = PortableHead(
        "hierarchical_softmax", {}, {"head.weight": torch.zeros(5, 2), "counts": torch.tensor([0, 0, 0, 0, 5, 3])}
    )
    model = PortableModel({"width": 2}, "open", {"embeddings.weight": torch.randn(6, 2)}, {"words": head}, "word_vectors")
    export_folder(tmp_path / "g", model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "first"), card=Card("g"))
    assert main(["export", str(tmp_path / "g"), str(tmp_path / "g.bin"), "--to", "fasttext"]) == 0
    assert "output matrix is zeros" in capsys.readouterr().out
    assert open_fasttext(tmp_path / "g.bin").counts.tolist() == [5, 3]
