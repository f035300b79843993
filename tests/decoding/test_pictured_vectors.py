"""Vectors and pages of texts that are read with pictures: of the text, of the items, and of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.pictures import shown_picture
from cloze.errors import UserError
from cloze.probes.look import look
from cloze.reports.look import page_data
from tests.tasks.pictured import pretrain, write_items

COUNT = 24
KIND = np.arange(COUNT) % 3
SYSTEMS = ("lxmert", "vilbert", "uniter")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("vectors")
    write_items(made / "f.npz", KIND)
    captions = [{"image": str(n), "text": ["what is it", "it is here"], "label": "ab"[n % 2]} for n in range(COUNT)]
    for system in SYSTEMS:
        pretrain(system, made, captions)
    return made


@pytest.mark.parametrize("system_", SYSTEMS)
def test_vectors_are_those_of_the_states_of_a_text_and_its_picture(folder: Path, system_: str) -> None:
    model, items = cloze.load(folder / system_, device="cpu"), folder / "f.npz"
    texts, keys = ["it is here", "what is it"], ["3", "7"]
    found = {of: model.embed(texts, items=items, picture=keys, of=of) for of in ("text", "items")}
    tokenizer: Any = model.checkpoint.tokenizer
    network: Any = model.network
    with np.load(items) as file:
        arrays = dict(file)
    for row, (text, key) in enumerate(zip(texts, keys, strict=True)):
        ids = [tokenizer.roles["[CLS]"], *tokenizer.encode(text).ids, tokenizer.roles["[SEP]"]]
        boxes = torch.tensor(np.concatenate([arrays["boxes"][int(key)], [[0.5], [0.5]]], 1).astype(np.float32))[None]
        vectors = {"regions": torch.tensor(arrays["features"][int(key)])[None], "regions/boxes": boxes}
        tokens = torch.tensor([ids])
        with torch.no_grad():
            states = network(
                want=frozenset({"hidden", "item_hidden"}), tokens=tokens, segments=torch.zeros_like(tokens), item_vectors=vectors
            )
        assert found["text"][row] == pytest.approx(states["hidden"][0].mean(0).numpy(), abs=1e-5)
        assert found["items"][row] == pytest.approx(states["item_hidden"][0].mean(0).numpy(), abs=1e-5)
    alone = model.embed(texts)
    assert np.abs(alone - found["text"]).max() > 1e-3  # the picture is seen
    if "pooled" in network.gives:
        pair = model.embed(texts, items=items, picture="3", of="pair")
        assert pair.shape[0] == 2 and np.abs(pair[0] - pair[1]).max() > 0
        return
    with pytest.raises(UserError, match="--of pair: this network only makes vectors of texts"):
        model.embed(texts, items=items, picture="3", of="pair")


def test_a_file_names_the_picture_of_each_text(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": "what is it", "image": "3"}, {"text": "it is here", "image": "7"}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    start, items = str(folder / "lxmert"), ["--items", str(folder / "f.npz")]
    given = ["--file", str(tmp_path / "c.jsonl"), "--picture-field", "image", "--of", "pair", "--out", str(tmp_path / "v.npy")]
    assert main(["embed", start, *items, *given]) == 0
    model = cloze.load(folder / "lxmert", device="cpu")
    expected = model.embed([row["text"] for row in rows], items=folder / "f.npz", picture=["3", "7"], of="pair")
    assert np.load(tmp_path / "v.npy") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["what", "--of", "items"], "--of items: a text has no picture, or its picture has no items"),
        (["what", "--of", "words"], "unknown subject 'words'"),
        (["what", "--of", "items", "--layer", "0", "--items", "ITEMS", "--picture", "1"], "vectors come from the top layer"),
        (["what", "--picture", "1"], "--picture 1: its items are needed, too"),
        (["what", "--items", "ITEMS"], "has several pictures. Name one of them"),
        (["what", "--items", "ITEMS", "--picture-field", "image"], "names a field of a file of JSON lines"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    given = [str(folder / "f.npz") if word == "ITEMS" else word for word in words]
    assert main(["embed", str(folder / "lxmert"), *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("system_", "pieces"), [("lxmert", ["regions 1", "regions 2"]), ("vilbert", ["picture", "regions 1", "regions 2"])]
)
def test_look_shows_what_both_streams_attend_to(folder: Path, system_: str, pieces: list[str]) -> None:
    from dataclasses import replace

    loaded = load_checkpoint(folder / system_)
    seen = look(replace(loaded, pictures=shown_picture(loaded, [str(folder / "f.npz")], "3")), "what is it")
    assert list(seen.sequences["items"].pieces) == pieces
    kinds = {one.name: (one.rows, one.columns) for one in seen.attention}
    assert kinds == {
        "attention": ("text", "text"), "text to items": ("text", "items"), "items to text": ("items", "text"),
        "items": ("items", "items"),
    }  # fmt: skip
    for one in seen.attention:
        np.testing.assert_allclose(one.shares.sum(-1), 1.0, atol=1e-5)
        assert one.shares.shape[2:] == (len(seen.sequences[one.rows]), len(seen.sequences[one.columns]))
    assert page_data(seen)["sequences"]["items"]["pieces"] == tuple(pieces)
    assert "items" not in look(loaded, "what is it").sequences
