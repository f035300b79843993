"""Weights of every architecture in the forms in which folders of the Hub have them: all are read as the same network.

That the network of a plain folder is transformers' is tested by the files next to this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop import Imported, import_folder

pytest.importorskip("transformers")
from tests.parity import foreign

pytestmark = pytest.mark.parity
State = dict[str, Tensor]
KINDS = tuple(foreign.KINDS)


def legacy(state: State, folder: Path) -> None:
    """A pickle of torch before 1.6, which is no zip file, with every copy of a tied table."""
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def copies(state: State, folder: Path) -> None:
    """Every copy of a tied table, each with its own memory."""
    save_file({name: tensor.clone() for name, tensor in state.items()}, folder / "model.safetensors")


def old_names(state: State, folder: Path) -> None:
    """LayerNorm's parameters as they were called before 2020."""
    ends = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    renamed = {name.replace(*ends[0]).replace(*ends[1]): tensor for name, tensor in state.items()}
    torch.save(renamed, folder / "pytorch_model.bin")


def wrapped(state: State, folder: Path) -> None:
    """Saved from inside of DataParallel."""
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, folder / "pytorch_model.bin")


def compiled(state: State, folder: Path) -> None:
    """Saved from inside of torch.compile, under a key of its own."""
    torch.save({"model": {f"_orig_mod.{name}": tensor for name, tensor in state.items()}}, folder / "pytorch_model.bin")


def buffers(state: State, folder: Path) -> None:
    """The constants that transformers 2 and 3 saved with the parameters."""
    extra: State = {}
    for name, tensor in state.items():
        lead, _, last = name.rpartition("word_embeddings.weight")
        if lead and not last:
            extra[f"{lead}position_ids"] = torch.arange(30)[None]
        if name.endswith("attn.c_attn.weight"):
            extra[name.replace("c_attn.weight", "bias")] = torch.ones(1, 1, 30, 30, dtype=torch.uint8).tril()
        if name.endswith("ln_2.weight") and "transformer.wte.weight" in state:
            extra[name.replace("ln_2.weight", "attn.masked_bias")] = torch.tensor(-1e4)
        if name == "transformer.position_embeddings.weight":
            extra["transformer.position_ids"] = torch.arange(30)[None]
        if name == "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight":
            extra["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones_like(tensor)
        if name == "model.shared.weight":
            extra |= {f"model.{stack}.version": torch.tensor([3.0]) for stack in ("encoder", "decoder")}
    torch.save({**state, **extra}, folder / "pytorch_model.bin")


FORMS: Mapping[str, Callable[[State, Path], None]] = {
    form.__name__: form for form in (legacy, copies, old_names, wrapped, compiled, buffers)
}


def parts_of(imported: Imported) -> dict[str, Tensor]:
    """All parameters of the network and its heads."""
    heads = {f"{name}: {key}": tensor for name, head in imported.model.heads.items() for key, tensor in head.state.items()}
    return {**imported.model.network, **heads}


def assert_same(imported: Imported, expected: Imported, *, rounded: bool = False) -> None:
    parts, wanted = parts_of(imported), parts_of(expected)
    assert parts.keys() == wanted.keys()
    assert {name for name, tensor in parts.items() if tensor.dtype != wanted[name].dtype} == set()
    error = 2e-2 if rounded else 0.0  # of bfloat16, which has eight bits
    assert {name for name, tensor in parts.items() if not torch.allclose(tensor, wanted[name], rtol=error, atol=error)} == set()
    assert imported.model.spare.keys() == expected.model.spare.keys()


def empty(folder: Path) -> None:
    for file in [*folder.glob("*.bin"), *folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        file.unlink()


@pytest.mark.parametrize("name", KINDS)
def test_every_form_of_the_weights_is_the_same_network(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces)
    folder = foreign.save(model, pieces, tmp_path)
    plain = import_folder(folder)
    for write in FORMS.values():
        empty(folder)
        write(model.state_dict(), folder)
        imported = import_folder(folder)
        assert_same(imported, plain)
        assert imported.remarks == plain.remarks

    empty(folder)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="20kB")
    assert (folder / "model.safetensors.index.json").is_file()
    imported = import_folder(folder)
    assert_same(imported, plain, rounded=True)
    said = "the weights are stored in bfloat16; cloze computes and writes in float32."
    assert set(imported.remarks) == {*plain.remarks, said}


@pytest.mark.parametrize("name", KINDS)
def test_a_network_that_was_saved_without_its_head_and_prefix_is_read(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces)
    plain = import_folder(foreign.save(model, pieces, tmp_path / "whole"))
    bare = import_folder(foreign.save(model.base_model, pieces, tmp_path / "bare"))
    assert bare.model.network.keys() == plain.model.network.keys()
    assert all(torch.equal(tensor, plain.model.network[key]) for key, tensor in bare.model.network.items())


def test_an_error_about_weights_names_the_file_that_was_read(systems: ModuleType, tmp_path: Path) -> None:
    kind: Any = foreign.KINDS["bert"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces)
    folder = foreign.save(model, pieces, tmp_path)
    state = model.state_dict()
    del state["bert.embeddings.word_embeddings.weight"]
    empty(folder)
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: 1 tensors? (is|are) missing .*word_embeddings"):
        import_folder(folder)
    (folder / "pytorch_model.bin").rename(folder / "shard.bin")
    index = {"weight_map": dict.fromkeys(state, "shard.bin")}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin.index.json: 1 tensors? (is|are) missing"):
        import_folder(folder)
