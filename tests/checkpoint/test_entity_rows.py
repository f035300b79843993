"""E-BERT: rows for entities by least squares, and a checkpoint that reads and opens as before with a longer vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.changes.align import least_squares, shared_words
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.entity_rows import add_entities
from cloze.cli.main import main
from cloze.decoding.filling import fill
from cloze.decoding.reader import Reader, head_of_kind
from cloze.errors import CheckpointError, CorpusError
from cloze.interop.vectors import open_vectors


def test_a_rotation_is_recovered_with_nothing_left() -> None:
    draw = np.random.default_rng(0)
    rotation, rows = np.linalg.qr(draw.standard_normal((8, 8)))[0], draw.standard_normal((50, 8))
    found = least_squares(rows @ rotation.T, rows)
    assert np.allclose(found.map, rotation, atol=1e-5) and found.explained == pytest.approx(1.0)


def exported(name: str, folder: Path) -> Path:
    """A small checkpoint with random weights."""
    from cloze.interop import Card, export_folder
    from tests.decoding.conftest import load_systems

    system = load_systems().system(name, **{"positions.max_length": 40})
    export_folder(folder, model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card(name))
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported("bert", tmp_path_factory.mktemp("bert") / "bert")


@pytest.fixture(scope="module")
def vectors(bert: Path) -> Callable[[Path], tuple[Path, np.ndarray]]:
    """A file whose words are the rotated rows of the checkpoint, with two entities whose rows are known."""
    loaded: Any = load_checkpoint(bert)
    table = loaded.network.embeddings.tokens.weight.detach().numpy()
    draw = np.random.default_rng(1)
    rotation = np.linalg.qr(draw.standard_normal((16, 16)))[0]
    rows = draw.standard_normal((2, 16)).astype(np.float32)

    def write(path: Path) -> tuple[Path, np.ndarray]:
        words = {loaded.tokenizer.piece(number): table[number] for number in loaded.tokenizer.ordinary_ids.tolist()}
        words = {word: row for word, row in words.items() if not word.startswith("##")}
        words |= {"ENTITY/Q1": rows[0], "ENTITY/Q12": rows[1]}
        lines = [f"{len(words)} 16"] + [" ".join([word, *(f"{x:.9g}" for x in row @ rotation.T)]) for word, row in words.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path, rows

    return write


def test_entities_are_tokens_with_aligned_rows_and_all_else_is_as_before(
    bert: Path, vectors: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rows = vectors(tmp_path / "wiki.txt")
    assert main(["vocab", "entities", str(bert), "--vectors", str(file), "--out", str(tmp_path / "e")]) == 0
    assert "2 entities" in capsys.readouterr().out
    before, after = load_checkpoint(bert), load_checkpoint(tmp_path / "e")
    size = before.tokenizer.size
    assert np.allclose(after.network.embeddings.tokens.weight.detach()[size:], rows, atol=1e-4)  # type: ignore[union-attr]
    ids = after.tokenizer.encode("the [ENTITY/Q12] / cat saw [ENTITY/Q1]").ids.tolist()  # concat, replace
    assert [i for i in ids if i >= size] == [size + 1, size] and ids[1] == size + 1
    text = "the cat [MASK] on the mat"
    there, here = (fill(Reader.of(one), head_of_kind(one, "token_prediction"), [text])[0] for one in (before, after))
    assert [c.id for c in there.masks[0]] == [c.id for c in here.masks[0]]
    assert [c.probability for c in there.masks[0]] == pytest.approx([c.probability for c in here.masks[0]], abs=1e-6)


def test_entities_that_a_checkpoint_has_already_are_refused(
    bert: Path, vectors: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, _ = vectors(tmp_path / "wiki.txt")
    add_entities(bert, file, tmp_path / "e")
    file.write_text(file.read_text().replace("ENTITY/Q12 ", "ENTITY/Q7 "))  # its row would be that of another entity
    assert main(["vocab", "entities", str(tmp_path / "e"), "--vectors", str(file), "--out", str(tmp_path / "twice")]) == 2
    message = capsys.readouterr().err
    assert "has 1 of the 2 entities of" in message and "already, such as [ENTITY/Q1]" in message
    assert "leave out of the vectors those that it has" in message and not (tmp_path / "twice").exists()


def test_mentions_are_replaced_or_stand_beside_their_entities(
    bert: Path, vectors: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_entities(bert, vectors(tmp_path / "wiki.txt")[0], tmp_path / "e")
    spans = '[{"start": 4, "end": 7, "id": "Q12"}, {"start": 12, "end": 15, "id": "Q7"}]'
    (tmp_path / "m.jsonl").write_text(f'{{"text": "the cat saw you", "spans": {spans}}}\n{{"text": "rain", "spans": []}}\n')
    for reading, expected in (("concat", "the [ENTITY/Q12] / cat saw you"), ("replace", "the [ENTITY/Q12] saw you")):
        command = ["vocab", "mentions", str(tmp_path / "e"), str(tmp_path / "m.jsonl"), "--as", reading, "--out"]
        assert main([*command, str(tmp_path / f"{reading}.txt")]) == 0
        assert (tmp_path / f"{reading}.txt").read_text() == f"{expected}\nrain\n"  # nobody knows Q7
        assert "2 texts, 1 of them with entities" in capsys.readouterr().out
    assert main([*command[:5], "both", "--out", str(tmp_path / "both.txt")]) == 2
    assert "--as both: expected concat or replace" in capsys.readouterr().err


def test_transformers_opens_the_longer_vocabulary(bert: Path, vectors: Callable[..., Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    add_entities(bert, vectors(tmp_path / "wiki.txt")[0], tmp_path / "e")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "e").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "e")
    loaded = load_checkpoint(tmp_path / "e")
    text = "[ENTITY/Q12] / the cat sleeps"
    given = tokenizer(text, return_tensors="pt")
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode([text]))
    assert given["input_ids"].tolist() == batch["tokens"].tolist()
    with torch.no_grad():
        theirs = model(**given).logits
        head = head_of_kind(loaded, "token_prediction")
        ours = reader.scores(head, reader.states(batch, head.reads), batch, torch.arange(batch["tokens"].numel()))
        vectors_there = model.get_input_embeddings()(given["input_ids"])
        same = model(inputs_embeds=vectors_there, **{k: v for k, v in given.items() if k != "input_ids"}).logits
    assert torch.allclose(theirs[0], ours, atol=1e-4) and torch.equal(theirs, same)


def test_vectors_without_entities_or_without_shared_words_are_refused(
    bert: Path, vectors: Callable[..., Any], tmp_path: Path
) -> None:
    file, _ = vectors(tmp_path / "wiki.txt")
    with pytest.raises(CorpusError, match=r"no entry begins with 'E/', so none is an entity[\s\S]*--prefix"):
        add_entities(bert, file, tmp_path / "e", prefix="E/")
    (tmp_path / "few.txt").write_text("3 16\n" + "".join(f"{w} {' '.join('1' * 16)}\n" for w in ("CAT", "the", "ENTITY/Q1")))
    with pytest.raises(CheckpointError, match=r"has vectors for 1 of the words of the vocabulary [\s\S]*lower-cased if"):
        add_entities(bert, tmp_path / "few.txt", tmp_path / "e")
    assert not (tmp_path / "e").exists()
    assert len(shared_words(open_vectors(file), load_checkpoint(bert).tokenizer)) > 20


def test_a_head_that_would_predict_entities_is_refused(
    vectors: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, (file, _) = exported("gpt2", tmp_path / "gpt2"), vectors(tmp_path / "wiki.txt")
    assert main(["vocab", "entities", str(source), "--vectors", str(file), "--out", str(tmp_path / "e")]) == 2
    said = capsys.readouterr().err
    assert f"{source}: the head lm (token_prediction) scores tokens without a bias for each, so it would predict entities" in said
    assert "\n  Give a checkpoint whose head has one, such as BERT's" in said and not (tmp_path / "e").exists()
    discriminator = exported("electra", tmp_path / "electra")
    assert main(["vocab", "entities", str(discriminator), "--vectors", str(file), "--out", str(tmp_path / "e")]) == 0
