"""Encoders of sentences from a checkpoint: dropout twins (SimCSE), rows with a wrong text, and denoising (TSDAE)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cloze.batch import Batch
from cloze.changes.read_vector import Crossing, ReadVector
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import Records
from cloze.corpus.records.match import TripletAnswer
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed, sentence_head
from cloze.errors import CheckpointError, TaskError
from cloze.interop import import_folder
from cloze.networks import Clock, Transformer
from cloze.networks.cost import Operations
from cloze.recipe.load import load_recipe, sentence_recipe_names
from cloze.runs.finetuning.finetune import finetune
from cloze.text import Tokenizer
from tests.making import network_of

FRAME = "[CLS] {A} [SEP]"
WORDS = ["cat", "dog", "mice", "rain", "river", "night", "garden", "mat"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty-four short sentences of some words, each a document."""
    chance = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(f"the {' '.join(chance.choice(WORDS, 5))}" for _ in range(64)) + "\n", encoding="utf-8")
    return path


def trained(name: str, start: Path, text: Path, out: Path, *values: str, steps: int = 4) -> list[dict[str, Any]]:
    """The log of a run of the command."""
    given = ["pretrain", name, "--bind", f"start={start}", "--corpus", str(text), "--budget", f"{steps}steps", "--as-published"]
    settings = ["training.batch=16", "length=16", "training.log_every=1", *values]
    assert main([*given, *(part for value in settings for part in ("--set", value)), "--out", str(out)]) == 0
    lines = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "train"]


@pytest.mark.parametrize("name", sentence_recipe_names())
def test_a_checkpoint_becomes_an_encoder_of_sentences_by_text_alone(
    name: str, folder: Callable[[str], Path], text: Path, tmp_path: Path
) -> None:
    log = trained(name, folder("bert"), text, tmp_path / "run", "training.rate.peak=1e-3")
    assert all(line["loss"] > 0 for line in log)
    start, made = (load_checkpoint(place) for place in (folder("bert"), tmp_path / "run"))
    head = sentence_head(made)
    assert sentence_head(start) is None and head.reads == ("summary",)
    assert made.imported.architecture == "bert" and made.tokenizer.hash == start.tokenizer.hash
    before, after = (import_folder(place).model.network["layers.0.outer.weight"] for place in (folder("bert"), tmp_path / "run"))
    assert not torch.equal(before, after)
    summary = embed(Reader.of(made), ["the cat"], pooling="summary")
    np.testing.assert_allclose(embed(Reader.of(made), ["the cat"], head=head), summary, atol=1e-5)
    listed = [module["type"].rpartition(".")[2] for module in json.loads((tmp_path / "run" / "modules.json").read_text())]
    pooling = json.loads((tmp_path / "run" / "1_Pooling" / "config.json").read_text())
    assert listed == ["Transformer", "Pooling"] and pooling["pooling_mode_cls_token"] and not pooling["pooling_mode_mean_tokens"]


def twins(rate: float) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """What the two passes of SimCSE make of the same rows in training, and the step."""
    data = load_recipe("bert", size="tiny").canonical()
    network = {"transformer": {**data["networks"]["main"]["transformer"], "dropout": rate, "layers": 1, "width": 16, "heads": 2}}
    recipe = load_recipe({
        "name": "twins", "text": {"tokenizer": {"wordpiece": {"size": 200}}}, "corpus": {"sentences": {"length": 8}},
        "network": network,
        "exercise": [{"copy": {"to": "twin"}}, {"frame": FRAME}, {"frame": {"in": "twin", "template": FRAME}}],
        "passes": [
            {"name": "one", "network": "main"},
            {"name": "twin", "network": "main", "view": "twin", "objectives": [
                {"contrast": {"read": {"query": "one.summary", "key": "summary"}, "temperature": 0.05, "normalise": True}}]},
        ],
        "training": {"optimizer": "adamw", "rate": {"constant": {"peak": 1e-3}}, "batch": 4},
        "reading": {"single": FRAME},
    })  # fmt: skip
    step = build_step(recipe, vocab_size=11, seed=0)
    step.clock.set(seed=5, step=3, first_row=8)
    tokens = torch.arange(20).view(4, 5) % 11
    fields = {"tokens": tokens, "segments": torch.zeros_like(tokens), "position_ids": torch.arange(5).expand(4, 5)}
    batch = Batch({**fields, **{f"twin.{name}": value for name, value in fields.items()}}, checked=True)
    states = step.train().states_of("main", batch, frozenset({"one.summary", "twin.summary"}))
    assert step.clock.numbers == (5, 3, 8) and int(step.clock.first_row) == 8
    return states["one.summary"], states["twin.summary"], (step, batch)


def test_two_passes_of_a_network_over_the_same_rows_draw_their_own_dropout() -> None:
    one, twin, _ = twins(0.0)
    torch.testing.assert_close(one, twin)
    one, twin, (step, batch) = twins(0.4)
    assert ((one - twin).norm(dim=1) > 0.1 * one.norm(dim=1)).all()
    again, second, _ = twins(0.4)
    assert torch.equal(one, again) and torch.equal(twin, second)
    scores = F.normalize(one, dim=1) @ F.normalize(twin, dim=1).T / 0.05
    loss = step("main", batch)["contrast"].total
    torch.testing.assert_close(loss, F.cross_entropy(scores, torch.arange(4), reduction="sum"))


# --- rows with a wrong text ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def triplets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(f"the {a} saw the {b}", f"all {b} and {a}", f"no {a} but a mat") for a in WORDS for b in WORDS if a < b]
    path = tmp_path_factory.mktemp("triplets") / "triplets.tsv"
    path.write_text("query\tpassage\twrong\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_of_three_texts_train_an_encoder_that_ranks_the_right_ones(
    folder: Callable[[str], Path], triplets: Path, tmp_path: Path
) -> None:
    values = ["training.batch=14", "training.epochs=6", "training.rate.peak=5e-3", "length=24", "network.dropout=0"]
    made = finetune(
        folder("bert"), recipe="simcse-supervised", train=[str(triplets)], dev=[str(triplets)], out=tmp_path / "out",
        overrides=values, report=lambda line: None,
    )  # fmt: skip
    standing = made.outcomes[1].standing
    assert standing is not None and standing.metrics["mrr"] > 0.3  # by chance 0.14 among 28
    loaded = load_checkpoint(made.folder)
    vectors = embed(Reader.of(loaded), ["the cat"], head=sentence_head(loaded))
    assert loaded.heads["embedding"].activation == "tanh"
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_the_wrong_text_is_a_view_cut_to_its_length(folder: Callable[[str], Path], triplets: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder("bert"))
    source = Records(text="query", text_b="passage", answer=TripletAnswer(length=3))
    store = source.build_store([str(triplets)], tokenizer, tmp_path / "store", base=None, report=lambda line: None)
    bound = source.bind(store, seed=0, entry="main")
    plan = bound.plan(0, 100)
    rows = bound.read(plan, np.arange(5), frozenset())
    for row in range(5):
        line = triplets.read_text().splitlines()[int(rows["document"][row]) + 1]
        expected = tokenizer.encode(line.split("\t")[2]).ids[:3]
        assert rows["wrong.tokens"][row][: rows["wrong.length"][row]].tolist() == expected.tolist()


@pytest.mark.parametrize(("header", "row", "message"), [
    ("query\tpassage", "a\tb", "wrong"), ("query\tpassage\twrong", "a\tb\t ", "rows.tsv:2: an empty 'wrong'"),
])  # fmt: skip
def test_rows_without_a_wrong_text_are_refused_with_their_line(
    folder: Callable[[str], Path], tmp_path: Path, header: str, row: str, message: str
) -> None:
    (tmp_path / "rows.tsv").write_text(f"{header}\n{row}\n")
    source = Records(text="query", text_b="passage", answer="triplet")
    with pytest.raises(TaskError, match=message):
        source.build_store(
            [str(tmp_path / "rows.tsv")], Tokenizer.load(folder("bert")), tmp_path / "s", base=None, report=lambda line: None
        )


# --- a decoder that reads one vector -------------------------------------------------------------------------------------


def reading(**changed: Any) -> Transformer:
    network: Transformer = network_of("transformer", layers=2, width=8, heads=2, vocab_size=9, clock=Clock(), **changed)
    torch.manual_seed(4)
    ReadVector().apply(network)
    return network.eval()


def test_a_crossing_is_attention_to_a_single_vector() -> None:
    network = reading()
    crossing: Crossing = network.outside[0].crossings[1]
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight[16:] = crossing.value.weight
        theirs.in_proj_bias[16:] = crossing.value.bias.normal_()
        theirs.out_proj.weight.copy_(crossing.out.weight)
        theirs.out_proj.bias.copy_(crossing.out.bias.normal_())
    x, vector = torch.randn(3, 5, 8), torch.randn(3, 8)
    expected = crossing.norm(x + theirs(x, vector[:, None], vector[:, None])[0])
    torch.testing.assert_close(crossing(x, vector), expected)


def test_a_crossing_costs_two_maps_of_each_rows_vector() -> None:
    network, fields = reading(), {"tokens": torch.zeros(3, 5, dtype=torch.long)}
    counted = Operations(fields, gradients=False)
    network.outside[0].begin_operations(counted)  # no vector, no maps
    counted.fields = {**fields, "condition": torch.zeros(3, 8)}
    network.outside[0].begin_operations(counted)
    assert counted.total == 2 * len(network.layers) * 3 * 2 * 8 * 8


def test_a_decoder_writes_from_the_vector_and_the_tokens_to_the_left_alone() -> None:
    network = reading()
    tokens, vector = torch.tensor([[1, 2, 3, 4]]), torch.randn(1, 8)

    def states(tokens: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        want = frozenset({"hidden"})
        found: torch.Tensor = network(want=want, tokens=tokens, order="left_to_right", condition=vector)["hidden"]
        return found.detach()

    first = states(tokens, vector)
    torch.testing.assert_close(states(torch.tensor([[1, 2, 8, 8]]), vector)[:, :2], first[:, :2])
    assert (states(tokens, vector + 1) - first).abs().amax(-1).min() > 1e-3  # every position reads the vector
    alone = network_of("transformer", layers=2, width=8, heads=2, vocab_size=9, clock=Clock()).eval()
    alone.load_state_dict({name: tensor for name, tensor in network.state_dict().items() if name in alone.state_dict()})
    want = frozenset({"hidden"})
    torch.testing.assert_close(network(want=want, tokens=tokens)["hidden"], alone(want=want, tokens=tokens)["hidden"])


def test_a_network_that_normalises_first_is_unchanged_by_crossings_of_zeros() -> None:
    arguments: dict[str, Any] = {"norm": {"pre": {}}}
    plain = network_of("transformer", layers=2, width=8, heads=2, vocab_size=9, clock=Clock(), **arguments).eval()
    network = network_of("transformer", layers=2, width=8, heads=2, vocab_size=9, clock=Clock(), **arguments).eval()
    ReadVector().apply(network)
    network.load_state_dict({**network.state_dict(), **plain.state_dict()})
    for crossing in network.outside[0].crossings:
        nn.init.zeros_(crossing.out.weight)
    tokens, want = torch.tensor([[1, 2, 3, 4]]), frozenset({"hidden"})
    expected = plain(want=want, tokens=tokens)["hidden"]
    torch.testing.assert_close(network(want=want, tokens=tokens, condition=torch.randn(1, 8))["hidden"], expected)


def test_what_cannot_read_a_vector_is_refused() -> None:
    with pytest.raises(CheckpointError, match="LSTM is not a plain stack of Transformer layers"):
        ReadVector().apply(network_of("lstm", layers=1, width=8, vocab_size=9, clock=Clock()))
    with pytest.raises(CheckpointError, match="cannot be written as an ordinary network"):
        ReadVector().plain(reading())
