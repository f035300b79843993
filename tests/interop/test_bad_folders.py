"""Folders that cannot be read: what the messages say, and that nothing is left half-written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cloze.checkpoint.build import load_checkpoint
from cloze.errors import CheckpointError
from cloze.interop import Card, export_folder, import_folder
from cloze.interop import files as interop_files

Change = Callable[[Path], None]


@pytest.fixture
def folder(systems: ModuleType, tmp_path: Path) -> Path:
    """A small BERT as transformers would leave it."""
    made = systems.system("bert")
    place = tmp_path / "model"
    export_folder(place, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    shutil.rmtree(place / "cloze")
    return place


def set_config(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def change_tensors(edit: Callable[[dict[str, torch.Tensor]], None]) -> Change:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def pickle_instead(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def sparse_instead(folder: Path) -> None:
    tensors = {name: tensor.to_sparse() for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


def pipe_instead(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def write_text(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text) and None


def drop(tensors: dict[str, torch.Tensor]) -> None:
    for layer in (0, 1):
        del tensors[f"bert.encoder.layer.{layer}.attention.self.key.weight"]


def shrink(tensors: dict[str, torch.Tensor]) -> None:
    tensors["bert.encoder.layer.0.intermediate.dense.weight"] = torch.zeros(23, 16)


CASES: dict[str, tuple[Change, list[str]]] = {
    "unknown architecture": (
        set_config(model_type="bertt"),
        ["config.json: model_type 'bertt'", "bart, bert, bert-generation, big_bird, camembert", "Did you mean 'bert'"],
    ),
    "an architecture that no network of cloze has": (
        set_config(model_type="convbert"),
        ["model_type 'convbert': cloze has no such network. It has convolutions next to attention.", "\n  cloze reads albert, "],
    ),
    "no model_type": (
        set_config(model_type=None, architectures=None),
        ["config.json: no model_type; its tensors have the names of BERT's.", 'config.json: "model_type": "bert",'],
    ),
    "classes that are numbers": (
        set_config(architectures=[5]), ["architectures is [5]; expected a list with the name of a class"]
    ),
    "classes that are no list": (set_config(architectures=0.5), ["architectures is 0.5; expected a list"]),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(), ["no weights; expected model.safetensors", "Copy the missing file."]
    ),
    "no pickle": (
        pickle_instead,
        ["pytorch_model.bin: torch does not read it as tensors alone: it is damaged, or holds code", "torch.save("],
    ),
    "sparse tensors": (sparse_instead, ["pytorch_model.bin: bert.", "is no plain array of real numbers (sparse"]),
    "a pipe": (pipe_instead, ["model.safetensors: not an ordinary file"]),
    "half a file": (cut, ["model.safetensors: damaged or copied only in part", "Copy it again"]),
    "not safetensors": (write_text("model.safetensors", "hello"), ["damaged or copied only in part (5 bytes"]),
    "LFS pointer": (
        write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        ["Git LFS pointer", "git lfs pull"],
    ),
    "missing tensors": (
        change_tensors(drop),
        ["2 tensors are missing that config.json asks for: bert.encoder.layer.0.attention.self.key.weight", "whole folder"],
    ),
    "misshapen tensor": (
        change_tensors(shrink),
        ["bert.encoder.layer.0.intermediate.dense.weight: the file gives (23, 16), config.json asks for (24, 16)"],
    ),
    "another vocabulary size": (
        set_config(vocab_size=150_000), ["word_embeddings.weight", "config.json asks for (150000, 16)"]
    ),
    "config is not JSON": (write_text("config.json", '{"model_type": '), ["config.json, line 1: not JSON"]),
    "config is a list": (write_text("config.json", "[]"), ["config.json: a JSON list"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["config.json: there is no such file"]),
    "relative positions": (
        set_config(position_embedding_type="relative_key"), ["position_embedding_type is 'relative_key'", "'absolute'"]
    ),
    "a decoder": (set_config(is_decoder=True), ["is_decoder is True"]),
    "unknown activation": (set_config(hidden_act="gelu_tan"), ["hidden_act is 'gelu_tan'", "Did you mean"]),
    "quantised": (set_config(quantization_config={}), ["quantised"]),
    "wrong type": (set_config(hidden_size="16"), ["hidden_size is '16'"]),
    "heads do not divide": (set_config(num_attention_heads=3), ["3 attention heads do not divide the width 16"]),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), ["no tokenizer here; expected tokenizer.json"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_cannot_be_used_says_what_is_wrong(folder: Path, name: str) -> None:
    change, expected = CASES[name]
    change(folder)
    with pytest.raises(CheckpointError) as caught:
        import_folder(folder)
    text = str(caught.value)
    assert str(folder) in text
    for words in expected:
        assert words in text


def without_width(arguments: dict[str, Any]) -> None:
    del arguments["width"]


def with_a_schedule_of_segments(arguments: dict[str, Any]) -> None:
    arguments["segments"] = {"linear": 2}


def with_a_text_for_a_number(arguments: dict[str, Any]) -> None:
    arguments["positions"]["learned"]["max_length"] = "512"


def with_an_unknown_argument(arguments: dict[str, Any]) -> None:
    arguments["norm"]["post"]["std"] = 1.0


OTHER_VERSION = "another version of cloze wrote the folder, or {} was changed.\n  Open it with the version that wrote it, or copy"

@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (with_a_text_for_a_number, "positions.max_length is '512'; expected a number"),
        (with_a_schedule_of_segments, r"segments is .*expected a number"), (without_width, "says nothing of width"),
        (with_an_unknown_argument, f"transformer has no argument 'norm.std': {OTHER_VERSION.format('the file')}"),
    ],
)
def test_a_spoilt_description_of_ours_is_refused(
    systems: ModuleType, tmp_path: Path, spoil: Callable[[dict[str, Any]], None], expected: str
) -> None:
    made = systems.system("bert")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    path = tmp_path / "cloze" / "network.json"
    described = json.loads(path.read_text())
    spoil(described["arguments"])
    path.write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match=rf"network\.json: {expected}"):
        import_folder(tmp_path)


def test_a_head_with_an_unknown_argument_is_refused(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    path = tmp_path / "cloze" / "network.json"
    described = json.loads(path.read_text())
    described["heads"]["mlm"]["arguments"]["deviation"] = 0.01
    path.write_text(json.dumps(described))
    expected = f"token_prediction has no argument 'deviation': {OTHER_VERSION.format('its description')}"
    with pytest.raises(CheckpointError, match=expected):
        load_checkpoint(tmp_path)


ELSEWHERE: dict[str, list[tuple[str, Any]]] = {
    "gpt2": [("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True), ("add_cross_attention", True)],
    "modern": [("norm_bias", True), ("decoder_bias", False), ("classifier_activation", "silu")],
    "bert as albert": [("num_hidden_groups", 9), ("inner_group_num", 2)],
}


@pytest.mark.parametrize(("system", "key", "value"), [(name, *case) for name, cases in ELSEWHERE.items() for case in cases])
def test_a_setting_that_means_another_network_is_refused_by_its_name(
    systems: ModuleType, tmp_path: Path, system: str, key: str, value: Any
) -> None:
    name, _, kind = system.partition(" as ")  # settings are looked at before tensors
    made = systems.system(name)
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    shutil.rmtree(tmp_path / "cloze")
    set_config(**{key: value}, **({"model_type": kind} if kind else {}))(tmp_path)
    with pytest.raises(CheckpointError, match=f"{key} is {value!r}"):
        import_folder(tmp_path)


def test_a_folder_that_is_not_there_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no such file or folder; expected a folder with config.json, .*"):
        import_folder(tmp_path / "bert-base-uncased")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="a file; expected a folder"):
        import_folder(tmp_path / "file")


def test_a_tokenizer_of_another_model_is_refused(systems: ModuleType, folder: Path) -> None:
    systems.tokenizer("gpt2").save(folder, length=20, frame_single="{A}")
    with pytest.raises(CheckpointError, match=r"the tokenizer has \d+ ids and the network has vectors for \d+"):
        import_folder(folder)


def test_a_table_much_larger_than_the_vocabulary_is_refused_with_a_way_out(systems: ModuleType, tmp_path: Path) -> None:
    made, pieces = systems.system("roberta"), systems.tokenizer("wordpiece")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    pieces.save(tmp_path, length=20, frame_single="{A}")
    with pytest.raises(CheckpointError) as caught:
        import_folder(tmp_path)
    further = "If no text uses the further vectors, save it without: model.resize_token_embeddings"
    assert str(caught.value).endswith(f"into the folder. {further}({pieces.size})")


def test_writing_with_a_tokenizer_of_another_model_is_refused(systems: ModuleType, tmp_path: Path) -> None:
    made, other = systems.system("bert"), systems.tokenizer("roberta")
    with pytest.raises(CheckpointError, match="the tokenizer it was trained with"):
        export_folder(tmp_path / "out", model=made.model(), tokenizer=other, reading=made.reading, card=Card("x"))
    assert not (tmp_path / "out").exists()


def test_a_shard_that_is_missing_or_outside_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    half = len(names) // 2
    save_file({n: tensors[n] for n in names[:half]}, folder / "a.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: "a.safetensors" if i < half else "b.safetensors" for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=f"b.safetensors: there is no such file.*places {len(names) - half} tensors"):
        import_folder(folder)
    save_file({n: tensors[n] for n in names[half:-1]}, folder / "b.safetensors")
    with pytest.raises(CheckpointError, match=f"promises 1 tensors that its files do not hold: {names[-1]}"):
        import_folder(folder)
    save_file({n: tensors[n] for n in names[half:]}, folder / "b.safetensors")
    assert import_folder(folder).model.heads.keys() == {"token_prediction", "relation_prediction"}
    index["weight_map"][names[0]] = "../a.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="expected files of the same folder"):
        import_folder(folder)


def test_half_precision_and_old_names_are_read(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor.to(torch.bfloat16)
        for name, tensor in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(20)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    save_file(old, folder / "model.safetensors")
    back = import_folder(folder)
    assert back.remarks == ("the weights are stored in bfloat16; cloze computes and writes in float32.",)
    norm = back.model.network["embeddings.norm.weight"]
    assert norm.dtype == torch.float32
    assert torch.equal(norm, tensors["bert.embeddings.LayerNorm.weight"].bfloat16().float())


def test_a_copy_of_a_tied_table_that_differs_is_said(folder: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = torch.zeros_like(tensors["bert.embeddings.word_embeddings.weight"])

    change_tensors(add)(folder)
    (remark,) = import_folder(folder).remarks
    assert "cls.predictions.decoder.weight differs" in remark


def test_tensors_without_a_place_are_named_and_carried_along(folder: Path, tmp_path: Path) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors["next_frames.weight"] = torch.ones(2, 16)

    change_tensors(add)(folder)
    back = import_folder(folder)
    assert back.remarks == ("carried along, but used by no part of cloze: next_frames.weight.",)
    export_folder(tmp_path / "again", model=back.model, tokenizer=back.tokenizer, reading=back.reading, card=Card("x"))
    assert torch.equal(load_file(tmp_path / "again" / "model.safetensors")["next_frames.weight"], torch.ones(2, 16))


def test_a_crash_while_writing_leaves_the_old_folder_whole(
    systems: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = systems.system("bert", seed=1), systems.system("bert", seed=2)
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(interop_files, "save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        export_folder(tmp_path, model=other.model(), tokenizer=other.tokenizer, reading=other.reading, card=Card("x"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not list(tmp_path.glob(".writing-*"))


def test_a_full_disk_reported_by_safetensors_is_an_ordinary_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def fail(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(interop_files, "save_file", fail)
    with pytest.raises(OSError) as caught:
        interop_files.write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(1)})
    assert caught.value.errno == 28


def test_weights_are_readable_by_whoever_may_read_the_folder(folder: Path) -> None:
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == (folder / "config.json").stat().st_mode & 0o777


def test_tied_weights_are_stored_once(folder: Path) -> None:
    names = set(load_file(folder / "model.safetensors"))
    assert "bert.embeddings.word_embeddings.weight" in names
    assert not {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"} & names
