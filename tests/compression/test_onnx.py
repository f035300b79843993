"""`cloze export --to onnx`: onnxruntime opens the file and computes the same, at every batch and length."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.decoding.reader import Reader

Folder = Callable[..., Path]
TEXTS = ["the cat saw the dog", "the rain", "the night in the garden all the night"]


def run_file(path: Path, folder: Path) -> tuple[dict[str, Any], Any]:
    """The outputs of a file for three texts of different lengths, and the batch that the network reads."""
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    reader = Reader.of(load_checkpoint(folder))
    batch = reader.batch(reader.encode(TEXTS))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = {"input_ids": "tokens", "attention_mask": "block", "token_type_ids": "segments"}
    given = {one.name: batch[named[one.name]].numpy() for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(names, given)), strict=True))
    return found, (reader, batch, session)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "electra", "modern"])
def test_an_encoder_computes_the_same_states(folder: Folder, cloze: Callable[..., Any], tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    said = cloze("export", folder(name), tmp_path / "m.onnx", "--to", "onnx")
    assert said.code == 0 and "opened by onnxruntime" in said.out, said.err
    found, (reader, batch, _) = run_file(tmp_path / "m.onnx", folder(name))
    with torch.no_grad():
        expected = reader.states(batch, {"hidden"})["hidden"]
    real = batch["block"] > 0
    torch.testing.assert_close(found["last_hidden_state"][real], expected[real], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "shape"), [("classifier", 2), ("gpt2-classifier", 2), ("tagger", 3)])
def test_a_classifier_and_a_labeller_give_the_scores_of_their_heads(
    folder: Folder, tuned: Folder, cloze: Callable[..., Any], tmp_path: Path, name: str, shape: int
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    source = tuned() if name == "classifier" else folder(name)
    assert cloze("export", source, tmp_path / "m.onnx", "--to", "onnx").code == 0
    found, (reader, batch, session) = run_file(tmp_path / "m.onnx", source)
    (head,) = [one for key, one in load_checkpoint(source).heads.items() if key in ("classification", "class", "tags")]
    with torch.no_grad():
        states = reader.states(batch, set(head.reads))
        expected = head.head(states["hidden"], batch["block"]) if shape == 3 else head.head(states["summary"])
    assert found["logits"].dim() == shape
    real = batch["block"] > 0 if shape == 3 else slice(None)
    torch.testing.assert_close(found["logits"][real], expected[real], atol=1e-4, rtol=0)
    if name == "classifier":
        assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == ["animal", "weather"]


def test_int8_is_smaller_and_close(folder: Folder, cloze: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    assert cloze("export", folder("bert"), tmp_path / "a.onnx", "--to", "onnx").code == 0
    said = cloze("export", folder("bert"), tmp_path / "b.onnx", "--to", "onnx", "--int8")
    assert said.code == 0 and "int8: the largest difference from the network is" in said.out
    exact, rounded = (run_file(tmp_path / f"{one}.onnx", folder("bert"))[0]["last_hidden_state"] for one in "ab")
    assert 1e-5 < float((exact - rounded).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize(("options", "said"), [
    (["out.bin", "--to", "onnx"], "out.bin: expected a new file that ends in .onnx"),
    (["no/such/m.onnx", "--to", "onnx"], "its folder does not exist"),
    (["vectors.txt", "--int8"], "--int8 is for --to onnx, not for --to word2vec"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = cloze("export", folder("bert"), *options)
    assert refused.code == 2 and said in refused.err and not list(tmp_path.iterdir())


def test_without_the_packages_the_extra_is_named(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused = cloze("export", folder("bert"), tmp_path / "m.onnx", "--to", "onnx")
    assert refused.code == 2
    assert "--to onnx needs the package onnx, which is not installed." in refused.err
    assert 'Install it with: pip install "cloze-lm[onnx]"' in refused.err


def test_a_network_that_the_format_cannot_hold_is_refused_in_words(
    cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.assembly.build import build_step
    from cloze.assembly.load import load_recipe
    from cloze.assembly.publish import Publisher
    from tests.interop.conftest import load_systems

    pieces, recipe = load_systems().tokenizer("t5"), load_recipe("t5-small", size="tiny")
    Publisher(recipe, pieces)(tmp_path / "run", build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
    refused = cloze("export", tmp_path / "run", tmp_path / "m.onnx", "--to", "onnx")
    assert refused.code != 0 and "this is encoder decoder" in refused.err and not (tmp_path / "m.onnx").exists()
