"""`cloze import` reads UniVL as its authors release it: states equal the equations of microsoft/UniVL on the file's tensors.

Sources at 8db88f39: modules/modeling.py (`get_sequence_visual_output`, `_get_cross_output`, `_mean_pooling_for_similarity`,
`_cross_similarity`, `_get_decoder_score`), modules/module_visual.py, module_cross.py and module_decoder.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.networks.network import TokenSequence
from tests.interop.released_files import (
    BLOCK,
    CONFIG,
    REAL,
    TOKENS,
    WORDS,
    Names,
    State,
    attend,
    folder,
    imported,
    layer,
    linear,
    norm,
    refusal,
    text,
    wrapped,
)

VIDEO = 16
STACK = {key: CONFIG[key] for key in ("hidden_act", "hidden_size", "intermediate_size", "num_attention_heads")}
STACKS: dict[str, dict[str, Any]] = {
    "visual_config.json": {**STACK, "num_hidden_layers": 1, "max_position_embeddings": 20, "vocab_size": VIDEO},
    "cross_config.json": {**STACK, "num_hidden_layers": 2, "max_position_embeddings": 532, "vocab_size": 8},
    "decoder_config.json": {**STACK, "num_decoder_layers": 1, "max_target_embeddings": 512, "vocab_size": 30522},
}
WRITTEN = torch.tensor([[2, 6, 7], [2, 5, 0]])
WRITTEN_BLOCK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def attention(names: Names, lead: str) -> None:
    """DecoderAttention."""
    for part in ("query", "key", "value"):
        names.linear(f"{lead}.att.{part}", 8, 8)
    names.linear(f"{lead}.output.dense", 8, 8)
    names.norm(f"{lead}.output.LayerNorm", 8)


def univl() -> State:
    """The state of `UniVL` in stage two, with more layers in the stacks of film and decoder than in their configs."""
    names = Names()
    names.bert("bert.")
    names.linear("visual.embeddings.word_embeddings", 8, VIDEO)
    names.table("visual.embeddings.position_embeddings.weight", 20, 8)
    names.table("cross.embeddings.position_embeddings.weight", 532, 8)
    names.table("cross.embeddings.token_type_embeddings.weight", 2, 8)
    for stack, layers in (("visual", 2), ("cross", 1)):
        names.norm(f"{stack}.embeddings.LayerNorm", 8)
        for number in range(layers):
            names.layer(f"{stack}.encoder.layer.{number}")
        names.linear(f"{stack}.pooler.dense", 8, 8)
    for table in ("word", "position"):
        names.state[f"decoder.embeddings.{table}_embeddings.weight"] = names.state[f"bert.embeddings.{table}_embeddings.weight"]
    names.norm("decoder.embeddings.LayerNorm", 8)
    for number in range(2):
        lead = f"decoder.decoder.layer.{number}"
        for part in ("slf_attn", "enc_attn"):
            attention(names, f"{lead}.{part}")
        names.linear(f"{lead}.intermediate.dense", 12, 8)
        names.linear(f"{lead}.output.dense", 8, 12)
        names.norm(f"{lead}.output.LayerNorm", 8)
    for lead in ("cls.", "decoder.classifier.cls."):
        names.words(lead, "bert.embeddings.word_embeddings.weight")
    names.state["cls_visual.predictions.weight"] = names.state["visual.embeddings.word_embeddings.weight"]
    names.table("cls_visual.predictions.bias", VIDEO)
    names.linear("cls_visual.predictions.transform.dense", 8, 8)
    names.norm("cls_visual.predictions.transform.LayerNorm", 8)
    names.linear("similarity_dense", 1, 8)
    names.norm("normalize_video.visual_norm2d", VIDEO)
    return names.state


def univl_folder(place: Path, state: State, **changed: dict[str, Any]) -> Path:
    source = folder(place, state, CONFIG, weights="univl.pretrained.bin", file="bert_config.json")
    for file, config in STACKS.items():
        (source / file).write_text(json.dumps({**config, **changed.get(file.removesuffix("_config.json"), {})}))
    return source


def joined(state: State, x: Tensor, v: Tensor, real: Tensor) -> Tensor:
    """`_get_cross_output`, of a text and a film. The authors' texts are padded to 48 tokens (`max_words`), which are hidden."""
    table = {name: state[f"cross.embeddings.{name}_embeddings.weight"] for name in ("position", "token_type")}
    kinds = torch.tensor([0] * x.shape[1] + [1] * v.shape[1])
    positions = [*range(x.shape[1]), *range(48, 48 + v.shape[1])]
    both = torch.cat([x, v], 1) + table["position"][positions] + table["token_type"][kinds]
    return layer(state, "cross.encoder.layer.0", norm(state, "cross.embeddings.LayerNorm", both), real)


def read_by(state: State, name: str, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
    """DecoderAttention of x, which sees those of the memory that are 1 in `seen` (B, T, N)."""
    query = linear(state, f"{name}.att.query", x)
    key, value = (linear(state, f"{name}.att.{part}", memory) for part in ("key", "value"))
    rows = [attend(query[:, at : at + 1], key, value, seen[:, at]) for at in range(x.shape[1])]
    return norm(state, f"{name}.output.LayerNorm", linear(state, f"{name}.output.dense", torch.cat(rows, 1)) + x)


def transformed(state: State, lead: str, x: Tensor) -> Tensor:
    """BertOnlyMLMHead."""
    x = norm(state, f"{lead}transform.LayerNorm", F.gelu(linear(state, f"{lead}transform.dense", x)))
    return x @ state["bert.embeddings.word_embeddings.weight"].t() + state[f"{lead}bias"]


def test_univls_file_gives_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, film = univl(), torch.randn(2, 3, VIDEO, generator=torch.Generator().manual_seed(1))
    loaded, told = imported(capsys, univl_folder(tmp_path / "univl", wrapped(state)), tmp_path / "out")
    assert "joint_modal: 2 layers, width 8" in told
    assert "used by no part of cloze: cls_visual.predictions.bias, cls_visual.predictions.transform" in told
    assert set(loaded.heads) == {"token_prediction", "decoder", "pairs"}
    assert loaded.imported.model.flat["items.layers"] == 2 and loaded.imported.model.flat["joint_layers"] == 1

    x, v = text(state, "bert."), linear(state, "visual.embeddings.word_embeddings", norm(
        state, "normalize_video.visual_norm2d", film
    ))
    v = norm(state, "visual.embeddings.LayerNorm", v + state["visual.embeddings.position_embeddings.weight"][:3])
    for number in range(2):
        x = layer(state, f"bert.encoder.layer.{number}", x, BLOCK)
        v = layer(state, f"visual.encoder.layer.{number}", v, REAL)
    words, frames = BLOCK.float()[..., None].clone(), REAL.float()[..., None]
    words[:, 0] = 0.0
    real = torch.cat([BLOCK, REAL], 1)
    both = joined(state, x, v, real)
    pooled = linear(state, "cross.pooler.dense", both[:, 0]).tanh()

    w = state["bert.embeddings.word_embeddings.weight"][WRITTEN] + state["bert.embeddings.position_embeddings.weight"][:3]
    w = norm(state, "decoder.embeddings.LayerNorm", w)
    earlier = torch.ones(3, 3).tril() * WRITTEN_BLOCK[:, None]  # slf_attn_mask: neither padding nor what follows
    for number in range(2):
        lead = f"decoder.decoder.layer.{number}"
        w = read_by(state, f"{lead}.slf_attn", w, w, earlier)
        w = read_by(state, f"{lead}.enc_attn", w, both, real[:, None].expand(-1, 3, -1))
        inner = F.gelu(linear(state, f"{lead}.intermediate.dense", w))
        w = norm(state, f"{lead}.output.LayerNorm", linear(state, f"{lead}.output.dense", inner) + w)

    states = loaded.network.eval()(
        want=frozenset({
            "hidden", "item_hidden", "item_tower", "text_mean", "item_mean", "pooled", "pair_pooled", "decoder_hidden",
        }),
        tokens=TOKENS, block=BLOCK, item_vectors={"frames": film}, item_length={"frames": torch.tensor([3, 2])},
        decoder=TokenSequence(WRITTEN, block=WRITTEN_BLOCK),
    )  # fmt: skip
    shown = {"hidden": (both[:, :4], BLOCK), "item_hidden": (both[:, 4:], REAL), "item_tower": (v, REAL),
             "decoder_hidden": (w, WRITTEN_BLOCK)}  # fmt: skip
    for name, (expected, seen) in shown.items():
        torch.testing.assert_close(states[name][seen > 0], expected[seen > 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states["text_mean"], (x * words).sum(1) / words.sum(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(states["item_mean"], (v * frames).sum(1) / frames.sum(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(states["pooled"], pooled, atol=1e-5, rtol=0)
    crossed = joined(state, x[:1], v[1:], torch.cat([BLOCK[:1], REAL[1:]], 1))  # the first text with the second film
    other = linear(state, "cross.pooler.dense", crossed[:, 0]).tanh()
    pairs = loaded.heads["pairs"].head(states["pair_pooled"])
    scores = linear(state, "similarity_dense", torch.cat([pooled[:1], other]))
    torch.testing.assert_close(pairs[0, 1] - pairs[0, 0], scores[1] - scores[0], atol=1e-5, rtol=0)
    table = loaded.network.embeddings.tokens.weight
    for name, lead, hidden in (
        ("token_prediction", "cls.predictions.", both[:1, :4]), ("decoder", "decoder.classifier.cls.predictions.", w[:1]),
    ):
        head = loaded.heads[name].head
        logits = head.norm(F.gelu(head.dense(hidden))) @ table.t() + head.bias
        torch.testing.assert_close(logits[..., : len(WORDS)], transformed(state, lead, hidden), atol=1e-5, rtol=0)


def test_weights_of_univls_first_stage_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = {name: tensor for name, tensor in univl().items() if name.startswith(("bert.", "visual.", "normalize_video."))}
    told = refusal(capsys, univl_folder(tmp_path / "univl", state))
    assert "the weights have no joint layers, so they are those of the first stage; take those of the second" in told


@pytest.mark.parametrize(("stack", "config", "message"), [
    ("visual", {"num_attention_heads": 4}, "num_attention_heads is 2, and 4 in visual_config.json; cloze's stacks have the same"),
    ("cross", {"max_position_embeddings": 600}, "512 positions of a text, 20 of a film and 600 of both, which is not their sum"),
])  # fmt: skip
def test_a_univl_with_stacks_of_other_shapes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stack: str, config: dict[str, Any], message: str
) -> None:
    assert message in refusal(capsys, univl_folder(tmp_path / "univl", univl(), **{stack: config}))


def test_a_univl_needs_the_configs_of_all_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = univl_folder(tmp_path / "univl", univl())
    (source / "cross_config.json").unlink()
    told = refusal(capsys, source)
    assert "no cross_config.json; UniVL needs several configs.\n  Put all of them next to the weights" in told


def test_a_decoder_with_a_table_of_its_own_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = univl()
    state["decoder.embeddings.position_embeddings.weight"] = state["bert.embeddings.position_embeddings.weight"] + 1
    told = refusal(capsys, univl_folder(tmp_path / "univl", state))
    assert "decoder.embeddings.position_embeddings.weight differs from bert.embeddings.position_embeddings.weight" in told
