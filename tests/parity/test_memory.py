"""XLNet against transformers 5, Transformer-XL against 4.57, the last version that has it, in a second environment.

`CLOZE_PYTHON_WITH_TRANSFORMERS_4` names that environment's Python; without it the tests of Transformer-XL are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.interop import Card, PortableHead, PortableModel, Reading, complete, export_folder, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.export import tensors_there
from cloze.networks import Clock, TransformerXL, TwoStream
from cloze.objectives.tokens.adaptive import adaptive_prediction
from cloze.objectives.tokens.token_prediction import token_prediction
from tests.making import data, network_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

PYTHON = os.environ.get("CLOZE_PYTHON_WITH_TRANSFORMERS_4", "")
needs_old = pytest.mark.skipif(not PYTHON, reason="CLOZE_PYTHON_WITH_TRANSFORMERS_4 names no Python")
READING = Reading("{A} [SEP] [CLS]", "{A} [SEP] {B} [SEP] [CLS]", "last")
SHAPE: dict[str, Any] = {"layers": 3, "width": 16, "heads": 2, "feed_forward.inner": 24, "memory.size": 6}
ROWS, LENGTH, TARGETS = 3, 8, 3


def random(module: nn.Module, seed: int = 0) -> nn.Module:
    """Every parameter drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            parameter.normal_(std=0.3, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return module.eval()


def xlnet(systems: ModuleType, tie: bool) -> tuple[TwoStream, Any, Any, PortableModel]:
    """A random network, its head, its tokenizer, and both as interop takes them."""
    pieces = systems.tokenizer("unigram")
    network = network_of("two_stream", **SHAPE, vocab_size=pieces.size, clock=Clock())
    arguments = {"tie": tie}
    head = token_prediction(**arguments, width=16, vocab_size=pieces.size, table=network.token_tables["tokens"])
    random(network), random(head, 1)
    model = PortableModel(
        complete(data("two_stream", **SHAPE), "two_stream"), "open", network.state_dict(),
        {"lm": PortableHead("token_prediction", arguments, head.state_dict())}, "two_stream",
    )
    return network, head, pieces, model


def opened(folder: Path, cls: str) -> Any:
    """The model as transformers opens it; a missing, unexpected or misshapen tensor fails the test."""
    model, info = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], (kind, info[kind])
    return model.eval()


def segment(size: int, number: int) -> dict[str, Tensor]:
    """Rows with segments, a random order and positions that see something; the last row is padded, in the last segment."""
    generator = torch.Generator().manual_seed(number)
    order = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(ROWS)])
    block = torch.ones(ROWS, LENGTH, dtype=torch.long)
    if number == 2:
        block[-1, 6:] = 0
    seeing = [
        ((real > 0) & (row > row[real > 0].min())).nonzero().view(-1) for row, real in zip(order, block, strict=True)
    ]
    columns = torch.stack([positions[torch.randperm(len(positions), generator=generator)[:TARGETS]] for positions in seeing])
    return {
        "tokens": torch.randint(size, (ROWS, LENGTH), generator=generator), "order": order, "block": block,
        "segments": torch.randint(2, (ROWS, LENGTH), generator=generator), "columns": columns,
    }


def theirs_of(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    mapping = torch.zeros(ROWS, TARGETS, LENGTH).scatter_(2, rows["columns"][..., None], 1.0)
    blocked = (rows["order"][:, None, :] >= rows["order"][:, :, None]).float()
    return {
        "input_ids": rows["tokens"], "token_type_ids": rows["segments"], "attention_mask": (rows["block"] > 0).float(),
        "perm_mask": blocked, "target_mapping": mapping,
    }


@pytest.mark.parametrize("tie", [True, False])
def test_xlnet_has_transformers_scores_gradients_and_memories(systems: ModuleType, tmp_path: Path, tie: bool) -> None:
    network, head, pieces, model = xlnet(systems, tie)
    assert export_folder(tmp_path, model=model, tokenizer=pieces, reading=READING, card=Card("test")) == []
    other = opened(tmp_path, "XLNetLMHeadModel")
    carry, memories = None, None
    for number in range(3):
        rows = segment(pieces.size, number)
        positions = (rows["columns"] + torch.arange(ROWS)[:, None] * LENGTH).flatten()
        fields = {name: rows[name] for name in ("tokens", "order", "block", "segments")}
        states = network(want=frozenset({"query", "carry"}), positions=positions, carry=carry, **fields)
        scores = head.scores({"hidden": states["query"]}, Batch({"positions/main": positions, "targets/main": positions}))
        output = other(**theirs_of(rows), mems=memories, use_mems=True)
        torch.testing.assert_close(scores, output.logits.flatten(0, 1), atol=1e-4, rtol=0)
        for module in (network, head, other):
            module.zero_grad()
        weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(number)) / scores.numel() ** 0.5
        (scores * weights).sum().backward()
        (output.logits.flatten(0, 1) * weights).sum().backward()
        assert_same_gradients(network, head, other, model, pieces)
        carry, memories = states["carry"], output.mems
        for layer, memory in enumerate(memories):
            kept = carry["known"] if number == 2 else torch.ones_like(carry["known"])
            torch.testing.assert_close(carry["states"][:, layer][kept], memory.transpose(0, 1)[kept], atol=1e-4, rtol=0)


def assert_same_gradients(network: Any, head: Any, other: Any, model: PortableModel, pieces: Any) -> None:
    choice = choose(model, tokenizer_kind="unigram", pad=0)
    assert isinstance(choice, ArchitectureChoice)

    def gradients(module: Any) -> dict[str, Tensor]:
        return {
            name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in module.named_parameters()
        }

    heads = {name: replace(known, state=gradients(head)) for name, known in model.heads.items()}
    carried = replace(model, network=gradients(network), heads=heads)
    mapped = tensors_there(carried, choice, vocab_size=pieces.size, pad=0)
    theirs = gradients(other)
    assert theirs.keys() <= mapped.keys()
    for name, expected in theirs.items():
        assert float((mapped[name] - expected).abs().max()) <= 1e-4 * max(1.0, float(expected.abs().max())), name


def test_xlnet_reads_a_padded_text_as_transformers_does_and_comes_back(systems: ModuleType, tmp_path: Path) -> None:
    network, _, pieces, model = xlnet(systems, True)
    export_folder(tmp_path / "ours", model=model, tokenizer=pieces, reading=READING, card=Card("test"))
    whole = opened(tmp_path / "ours", "XLNetLMHeadModel")
    rows = segment(pieces.size, 2)
    fields = {name: rows[name] for name in ("tokens", "block", "segments")}
    with torch.no_grad():
        found = network(want=frozenset({"hidden"}), **fields)["hidden"]
        given = {"token_type_ids": rows["segments"], "attention_mask": rows["block"]}
        expected = whole.transformer(rows["tokens"], **given).last_hidden_state
    real = rows["block"] > 0
    torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=0)
    whole.save_pretrained(tmp_path / "theirs")
    pieces.save(tmp_path / "theirs", length=20, frame_single=READING.single, frame_pair=READING.pair)
    back = import_folder(tmp_path / "theirs")
    assert back.architecture == "xlnet" and back.remarks == () and back.model.arguments == model.arguments
    assert all(torch.equal(back.model.network[name], tensor) for name, tensor in model.network.items())


# Transformer-XL

OLD = {"d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 6, "d_inner": 24, "n_layer": 3, "vocab_size": 40, "mem_len": 7,
    "clamp_len": -1, "same_length": False, "cutoffs": [10, 25], "div_val": 1, "untie_r": False}
KINDS: dict[str, dict[str, Any]] = {
    "released base": {},
    "untied, clamped, same length": {"untie_r": True, "clamp_len": 4, "same_length": True},
    "adaptive input": {"div_val": 2, "untie_r": True},
    "one softmax": {"cutoffs": []},
}


def in_old(wanted: dict[str, Any], folder: Path) -> dict[str, Tensor]:
    """What `old_transfo_xl.py` finds."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    script, given, result = Path(__file__).parent / "old_transfo_xl.py", folder / "wanted.json", folder / "result"
    given.write_text(json.dumps(wanted))
    run = subprocess.run([PYTHON, str(script), str(given), str(result)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    return load_file(result)


def ours_of(config: dict[str, Any]) -> tuple[TransformerXL, Any]:
    clamp = config["clamp_len"]
    network = network_of("transformer_xl", layers=config["n_layer"], width=config["d_model"], heads=config["n_head"],
        head_width=config["d_head"], vocab_size=config["vocab_size"], clock=Clock(), **{"feed_forward.inner": config["d_inner"],
            "feed_forward.activation": "relu",
        "memory.size": config["mem_len"], "positions.clamp": clamp if clamp > 0 else None,
            "memory.same_length": config["same_length"], "positions.untie": config["untie_r"],
            "embedding.cutoffs": config["cutoffs"], "embedding.divide": config["div_val"]}).eval()
    head = adaptive_prediction(
        cutoffs=config["cutoffs"], divide=config["div_val"], width=config["d_model"], vocab_size=config["vocab_size"],
        table=network.token_tables["tokens"],
    )
    return network, head.eval()


def names(network: TransformerXL, head: Any, divide: int) -> dict[str, str]:
    """Our names → theirs, where a value is carried over as it is."""
    inside = {"attention.projections": "dec_attn.qkv_net", "attention.distances": "dec_attn.r_net",
        "attention.out": "dec_attn.o_net", "attention_norm": "dec_attn.layer_norm", "inner": "pos_ff.CoreNet.0",
            "outer": "pos_ff.CoreNet.3", "inner_norm": "pos_ff.layer_norm", "attention.content_bias": "dec_attn.r_w_bias",
            "attention.distance_bias": "dec_attn.r_r_bias"}
    found = {}
    for name, _ in network.named_parameters():
        parts = name.split(".")
        if parts[0] == "layers":
            stem, kind = ".".join(parts[2:]), ""
            if stem not in inside:
                stem, kind = ".".join(parts[2:-1]), "." + parts[-1]
            found[name] = f"transformer.layers.{parts[1]}.{inside[stem]}{kind}"
        elif parts[0] == "embeddings":
            kinds = {"tables": "emb_layers.{}.weight", "projections": "emb_projs.{}"}
            found[name] = "transformer.word_emb." + kinds[parts[1]].format(parts[2])
        else:
            found[name] = {"content_bias": "transformer.r_w_bias", "distance_bias": "transformer.r_r_bias"}[name]
    for name, _ in head.named_parameters():
        parts = name.split(".")
        if parts[1].startswith("cluster"):
            found[name] = "crit." + parts[1]
        elif parts[1] == "projections":
            found[name] = f"crit.out_projs.{parts[2]}"
    return found


@needs_old
@pytest.mark.parametrize("kind", KINDS)
def test_transformer_xl_has_the_scores_gradients_and_memories_of_transformers(tmp_path: Path, kind: str) -> None:
    config = {**OLD, **KINDS[kind]}
    found = in_old({"model": config, "segments": 3, "rows": 2, "length": 5, "seed": 1}, tmp_path)
    network, head = ours_of(config)
    table = names(network, head, config["div_val"])
    biases = [f"crit.out_layers.{n}.bias" for n in range(len(head.head.bounds) if config["div_val"] > 1 else 1)]
    with torch.no_grad():
        for name, parameter in [*network.named_parameters(), *head.named_parameters()]:
            if name != "head.bias":
                parameter.copy_(found[f"weight/{table[name]}"])
        head.head.bias.copy_(torch.cat([found[f"weight/{name}"] for name in biases]))
    carry: Any = None
    for number in range(3):
        tokens = found[f"tokens/{number}"]
        memory = torch.stack([found[f"memory/{number}/{layer}"] for layer in range(config["n_layer"])], dim=1)
        if carry is not None:
            torch.testing.assert_close(carry["states"], memory, atol=1e-5, rtol=0)
        states = network(want=frozenset({"hidden", "carry"}), tokens=tokens, carry={"states": memory})
        positions = torch.arange(tokens.numel())
        batch = Batch({"positions/main": positions, "targets/main": tokens.flatten()})
        scores = head.scores({"hidden": states["hidden"]}, batch)
        torch.testing.assert_close(scores.view_as(found[f"scores/{number}"]), found[f"scores/{number}"], atol=1e-4, rtol=0)
        network.zero_grad(), head.zero_grad()
        (-head({"hidden": states["hidden"]}, batch).total / tokens.numel()).backward()
        for name, parameter in [*network.named_parameters(), *head.named_parameters()]:
            theirs = biases if name == "head.bias" else [table[name]]
            expected = torch.cat([found[f"gradient/{number}/{there}"] for there in theirs])
            torch.testing.assert_close(parameter.grad, expected, atol=1e-5, rtol=1e-4)
        carry = states["carry"]


@needs_old
@pytest.mark.parametrize("cutoffs", [(20, 50), ()])
def test_transformer_xl_folders_open_there_and_come_back(systems: ModuleType, tmp_path: Path, cutoffs: tuple[int, ...]) -> None:
    pieces = systems.tokenizer("wordpiece")
    arguments = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "feed_forward.activation": "relu",
        "embedding.cutoffs": list(cutoffs)}
    network = network_of("transformer_xl", **arguments, vocab_size=pieces.size, clock=Clock())
    given = {"width": 16, "vocab_size": pieces.size, "table": network.token_tables["tokens"]}
    made: Any = adaptive_prediction(cutoffs=list(cutoffs), **given) if cutoffs else token_prediction(tie=True, **given)
    random(network), random(made, 1)
    part, told = ("adaptive_prediction", {"cutoffs": list(cutoffs)}) if cutoffs else ("token_prediction", {"tie": True})
    model = PortableModel(
        complete(data("transformer_xl", **arguments), "transformer_xl"), "left_to_right", network.state_dict(),
        {"lm": PortableHead(part, told, made.state_dict())}, "transformer_xl",
    )
    folder = tmp_path / "model"
    remarks = export_folder(folder, model=model, tokenizer=pieces, reading=Reading("{A}", None, "last"), card=Card("test"))
    assert remarks == []
    found = in_old({"folder": str(folder), "segments": 1, "rows": 2, "length": 9, "seed": 2}, tmp_path)
    tokens = found["tokens/0"]
    with torch.no_grad():
        states = network(want=frozenset({"hidden"}), tokens=tokens)
        positions = torch.arange(tokens.numel())
        scores = made.scores(states, Batch({"positions/main": positions, "targets/main": tokens.flatten()}))
    torch.testing.assert_close(torch.log_softmax(scores, dim=-1), found["scores/0"].flatten(0, 1), atol=1e-4, rtol=0)
    back = import_folder(folder)
    assert back.architecture == "transfo-xl" and back.model.arguments == model.arguments
