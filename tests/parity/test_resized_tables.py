"""Tables of tokens that users resized: added tokens, more rows than tokens, rows that are missing. Ids and rows stay."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.interop import Card, export_folder, import_folder

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity
KINDS = {"bert": "bert.embeddings.word_embeddings.weight", "electra": "electra.embeddings.word_embeddings.weight",
         "gpt2": "transformer.wte.weight", "xlnet": "transformer.word_embedding.weight", "t5": "shared.weight"}  # fmt: skip


def again(folder: Path, place: Path, name: str) -> Path:
    source = import_folder(folder)
    export_folder(
        place, model=source.model, tokenizer=source.tokenizer, reading=source.reading, card=Card("x"), architecture=name,
    )  # fmt: skip
    return place


@pytest.mark.parametrize("name", sorted(KINDS))
def test_added_tokens_and_padding_to_64_rows_stay(systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    folder = foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zebrafish", "qubit", "covid-19", "mRNA", "deep learning"])
    tokenizer.save_pretrained(folder)
    model = getattr(transformers, kind.cls).from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)
    model.save_pretrained(folder)
    rows = model.config.vocab_size
    assert rows % 64 == 0 and rows > len(tokenizer) == pieces.size + 5
    foreign.assert_equal(model.eval(), folder)

    text = "The cat dreams of zebrafish, a qubit and deep learning."
    imported = import_folder(folder)
    assert imported.vocab_size == rows and imported.tokenizer.size == len(tokenizer)
    assert imported.tokenizer.encode(text).ids.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
    exported = again(folder, tmp_path / "again", name)
    assert json.loads((exported / "config.json").read_text())["vocab_size"] == rows
    tables = [load_file(place / "model.safetensors")[KINDS[name]] for place in (folder, exported)]
    assert torch.equal(*tables)
    theirs = transformers.AutoTokenizer.from_pretrained(exported)
    assert len(theirs) == len(tokenizer)
    assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_row_of_padding_is_never_written(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where the network prefers it."""
    kind = foreign.KINDS["gpt2"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces)
    model.resize_token_embeddings(pieces.size, pad_to_multiple_of=64, mean_resizing=False)
    with torch.no_grad():
        table = model.transformer.wte.weight
        table[pieces.size :] = 10 * table[: len(table) - pieces.size]
    folder = foreign.save(model, pieces, tmp_path)
    capsys.readouterr()
    assert main(["generate", str(folder), "The cat", "--tokens", "12", "--greedy"]) == 0
    assert len(capsys.readouterr().out.strip()) >= len("The cat") + 12


def test_a_special_token_without_a_row_is_left_out_and_said(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> None:
    """As in the published BART for summaries, whose table ends before the mask."""
    kind = foreign.KINDS["bart"]
    pieces = systems.tokenizer(kind.tokenizer)
    folder = foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"mask_token": "<last>"})
    tokenizer.save_pretrained(folder)
    imported = import_folder(folder)
    assert imported.remarks == ("the network has no vector for <last>: the tokenizer is read without.",)
    assert imported.tokenizer.size == imported.vocab_size == pieces.size and "[MASK]" not in imported.tokenizer.roles
    text = "The cat <last> sleeps."
    assert max(imported.tokenizer.encode(text).ids) < pieces.size
    exported = again(folder, tmp_path / "again", "bart")
    assert len(transformers.AutoTokenizer.from_pretrained(exported)) == pieces.size


def test_a_word_without_a_row_is_refused_with_both_numbers(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> None:
    kind: Any = foreign.KINDS["bert"]
    pieces = systems.tokenizer(kind.tokenizer)
    folder = foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zebrafish"])
    tokenizer.save_pretrained(folder)
    said = f"the tokenizer has {pieces.size + 1} ids and the network has vectors for {pieces.size}"
    with pytest.raises(CheckpointError, match=said):
        import_folder(folder)
