"""Files with authors' names of tensors and random numbers, and the equations of BERT's layers on such tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main

State = dict[str, Tensor]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "Runs", "##s"]
CONFIG: dict[str, Any] = {
    "hidden_act": "gelu", "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 512, "num_attention_heads": 2,
    "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": len(WORDS), "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
}  # fmt: skip
FEATURES, CLASSES = 2048, 1601
TOKENS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
BLOCK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


class Names:
    """A state dictionary that is written module by module, as `nn.Linear`, `nn.LayerNorm` and `nn.Embedding` name tensors."""

    def __init__(self) -> None:
        self.state: State = {}
        self.draw = torch.Generator().manual_seed(5)

    def table(self, name: str, *shape: int) -> None:
        self.state[name] = 0.4 * torch.randn(*shape, generator=self.draw)

    def linear(self, name: str, outputs: int, inputs: int) -> None:
        self.table(f"{name}.weight", outputs, inputs)
        self.table(f"{name}.bias", outputs)

    def norm(self, name: str, width: int) -> None:
        self.table(f"{name}.weight", width)
        self.table(f"{name}.bias", width)
        self.state[f"{name}.weight"] += 1

    def layer(self, name: str, width: int = 8, inner: int = 12) -> None:
        for part in ("query", "key", "value"):
            self.linear(f"{name}.attention.self.{part}", width, width)
        self.linear(f"{name}.attention.output.dense", width, width)
        self.linear(f"{name}.intermediate.dense", inner, width)
        self.linear(f"{name}.output.dense", width, inner)
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            self.norm(f"{name}.{part}", width)

    def bert(self, base: str, segments: int = 2) -> None:
        for part, rows in (("word", len(WORDS)), ("position", 512), ("token_type", segments)):
            self.table(f"{base}embeddings.{part}_embeddings.weight", rows, 8)
        self.norm(f"{base}embeddings.LayerNorm", 8)
        for number in range(2):
            self.layer(f"{base}encoder.layer.{number}")
        self.linear(f"{base}pooler.dense", 8, 8)

    def words(self, lead: str, table: str) -> None:
        self.linear(f"{lead}predictions.transform.dense", 8, 8)
        self.norm(f"{lead}predictions.transform.LayerNorm", 8)
        self.table(f"{lead}predictions.bias", len(WORDS))
        self.state[f"{lead}predictions.decoder.weight"] = self.state[table]


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def norm(state: State, name: str, x: Tensor, epsilon: float = 1e-12) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], epsilon)


def attend(query: Tensor, key: Tensor, value: Tensor, real: Tensor, heads: int = 2) -> Tensor:
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + (1.0 - real[:, None, None].float()) * -10000.0
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def meet(state: State, name: str, x: Tensor, real: Tensor, ending: str = "", heads: int = 2, epsilon: float = 1e-12) -> Tensor:
    """BertAttention; `ending` is `_ent` for that of entities."""
    q, k, v = (linear(state, f"{name}.attention.self{ending}.{part}", x) for part in ("query", "key", "value"))
    out = linear(state, f"{name}.attention.output{ending}.dense", attend(q, k, v, real, heads))
    return norm(state, f"{name}.attention.output{ending}.LayerNorm", out + x, epsilon)


def layer(state: State, name: str, x: Tensor, real: Tensor, heads: int = 2, epsilon: float = 1e-12) -> Tensor:
    """BertLayer."""
    x = meet(state, name, x, real, heads=heads, epsilon=epsilon)
    inner = F.gelu(linear(state, f"{name}.intermediate.dense", x))
    return norm(state, f"{name}.output.LayerNorm", linear(state, f"{name}.output.dense", inner) + x, epsilon)


def text(state: State, base: str) -> Tensor:
    """BertEmbeddings of `TOKENS`."""
    word, place, kind = (state[f"{base}embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type"))
    return norm(state, f"{base}embeddings.LayerNorm", word[TOKENS] + place[: TOKENS.shape[1]] + kind[0])


def regions() -> tuple[dict[str, Any], Tensor, Tensor]:
    """The fields of two pictures of three and two regions, the features, and the corners of boxes."""
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(2, 3, FEATURES, generator=draw)
    features[1, 2] = 0.0
    corners = torch.rand(2, 3, 2, 2, generator=draw).sort(2).values.flatten(2)
    vectors = {"regions": features, "regions/boxes": corners}
    return {"item_vectors": vectors, "item_length": {"regions": torch.tensor([3, 2])}}, features, corners


REAL = torch.tensor([[1, 1, 1], [1, 1, 0]])


def wrapped(state: State) -> State:
    """The tensors as torch's DataParallel names them."""
    return {f"module.{name}": tensor for name, tensor in state.items()}


def folder(place: Path, state: Mapping[str, Any], config: Mapping[str, Any], *, weights: str, file: str) -> Path:
    place.mkdir()
    torch.save(state, place / weights)
    (place / file).write_text(json.dumps(config))
    (place / "vocab.txt").write_text("\n".join(word if word.startswith("[") else word.lower() for word in WORDS) + "\n")
    return place


def imported(capsys: pytest.CaptureFixture[str], source: Path, out: Path) -> tuple[Any, str]:
    """The checkpoint that the command writes, and what it printed; its recipe passes every check."""
    code = main(["import", str(source), "--out", str(out)])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert main(["check", str(out / "cloze" / "recipe.yaml")]) == 0, capsys.readouterr()
    capsys.readouterr()
    return load_checkpoint(out), told.out


def refusal(capsys: pytest.CaptureFixture[str], source: Path, *options: str) -> str:
    out = source.parent / "out"
    assert main(["import", str(source), "--out", str(out), *options]) == 2
    assert not out.exists()
    return capsys.readouterr().err
