"""`--init [NETWORK=]DIR`: a checkpoint of a plain network in a larger one, what is refused, and what a run keeps of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cloze.api.train import _checkpoints
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CheckpointError, RecipeError
from cloze.runs.binds import parse_inits
from cloze.training.run import RunIdentity
from tests.small_recipe import trainer

PLAIN = """\
name: plain
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 200}}}
corpus: {passages: {length: 16}}
network: {transformer: {layers: 2, width: 16, heads: 2, segments: 2, positions: {learned: {max_length: 32}}}}
exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
objectives: [token_prediction: {transform: gelu, tie: true}]
training: {optimizer: adamw, rate: {linear: {peak: 0.0}}, batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
"""
_network = PLAIN.splitlines()[3]
ZEN = PLAIN.replace(
    _network,
    "tables: {ngrams: {lexicon: {lengths: [2, 3]}}}\n"
    "network: {zen: {layers: 2, width: 16, heads: 2, ngram_layers: 1, max_length: 32}}",
).replace("{predict: masked}]", "{predict: masked}, {match: {table: ngrams}}]").replace("name: plain", "name: zen")
TWO = PLAIN.replace(
    _network, "networks:\n  first: " + _network.removeprefix("network: ") + "\n  second: " + _network.removeprefix("network: ")
).replace(
    "objectives: [token_prediction: {transform: gelu, tie: true}]\n",
    "passes:\n"
    "  - {network: first, objectives: [token_prediction: {transform: gelu, tie: true}]}\n"
    "  - {network: second, objectives: [token_prediction: {transform: gelu, tie: true}]}\n"
    "export: second\n",
)
Train = Callable[..., list[str]]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory, little_text: Path) -> Train:
    return trainer(tmp_path_factory.mktemp("recipes"), little_text, budget="1steps")


@pytest.fixture(scope="module")
def base(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("base") / "run"
    train(out, PLAIN, seed=7)
    return out


@pytest.fixture(scope="module")
def grafted(train: Train, base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("grafted") / "run"
    return out, train(out, ZEN, init=base)


def test_a_larger_network_starts_from_a_plain_one_and_one_line_says_what_is_new(
    base: Path, grafted: tuple[Path, list[str]]
) -> None:
    old, new = load_checkpoint(base), load_checkpoint(grafted[0])
    mine = new.network.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in old.network.state_dict().items())
    counts = {
        part: sum(tensor.numel() for name, tensor in mine.items() if name.startswith(f"{part}."))
        for part in ("ngrams", "ngram_layers")
    }
    listed = ", ".join(f"{part} ({count:,})" for part, count in sorted(counts.items(), key=lambda item: -item[1]))
    (line,) = [line for line in grafted[1] if "start fresh" in line]
    assert line == f"{base}: has no weights for {sum(counts.values()):,} parameters, which start fresh: {listed}."
    drawn = {name: tensor for name, tensor in mine.items() if name.startswith("ngram") and tensor.dim() == 2}
    assert drawn and all(0.01 < float(tensor[1:].std()) < 0.1 for tensor in drawn.values())


def test_the_heads_of_the_checkpoint_come_along_and_its_tokenizer_is_taken(base: Path, grafted: tuple[Path, list[str]]) -> None:
    old, new = load_checkpoint(base), load_checkpoint(grafted[0])
    assert new.tokenizer.hash == old.tokenizer.hash
    theirs, mine = (one.heads["token_prediction"].state_dict() for one in (old, new))
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())


def test_a_head_that_the_checkpoint_lacks_is_among_what_starts_fresh(train: Train, base: Path, tmp_path: Path) -> None:
    more = PLAIN.replace("exercise: [", "exercise: [{pair: {}}, ").replace("{A} [SEP]\"}, {mask", "{A} [SEP] {B} [SEP]\"}, {mask")
    more = more.replace("tie: true}]", "tie: true}, relation_prediction: {classes: 2}]")
    said = train(tmp_path / "run", more, init=base)
    parameters = sum(p.numel() for p in load_checkpoint(tmp_path / "run").heads["relation_prediction"].parameters())
    fresh = f"head relation_prediction ({parameters})"
    assert f"{base}: has no weights for {parameters} parameters, which start fresh: {fresh}." in said


def test_tables_of_further_inputs_may_be_new(train: Train, base: Path, tmp_path: Path) -> None:
    more = PLAIN.replace("heads: 2,", "heads: 2, embedding: {table: {inputs: {task: 3}}},").replace(
        '{frame: "[CLS] {A} [SEP]"}', '{frame: {template: "[CLS] {A} [SEP]", inputs: {task: 1}}}'
    )
    said = train(tmp_path / "run", more, init=base)
    assert f"{base}: has no weights for 48 parameters, which start fresh: embeddings.inputs (48)." in said


def test_segments_beyond_those_of_the_checkpoint_start_fresh(train: Train, base: Path, tmp_path: Path) -> None:
    name = "embeddings.segments.weight"
    said = train(tmp_path / "run", PLAIN.replace("segments: 2", "segments: 6"), init=base)
    assert f"{base}: has no weights for 64 parameters, which start fresh: embeddings.segments (64)." in said
    mine, theirs = (load_checkpoint(folder).network.state_dict()[name] for folder in (tmp_path / "run", base))
    assert torch.equal(mine[:2], theirs) and 0.01 < float(mine[2:].std()) < 0.1
    with pytest.raises(CheckpointError, match=r"segments.weight is \(6, 16\) in the checkpoint and \(2, 16\) in the recipe"):
        train(tmp_path / "fewer", PLAIN, init=tmp_path / "run")


@pytest.mark.parametrize(("text", "told"), [
    (ZEN.replace("width: 16", "width: 32"), r"is \(\d+, 16\) in the checkpoint and \(\d+, 32\) in the recipe.\n"
     "  To give the network the sizes of the checkpoint: --set network.width=16 --set network.feed_forward.inner=64$"),
    (ZEN.replace("layers: 2", "layers: 3"), r"layers\.2\..* is missing in the checkpoint .*\n.*: --set network.layers=2$"),
    (ZEN.replace("heads: 2", "heads: 4"), "heads is 2 in the checkpoint and 4 in the recipe.\n.*: --set network.heads=2$"),
    (PLAIN.replace("heads: 2", "heads: 4"), "heads is 2 in the checkpoint and 4 in the recipe.\n  To continue it with its own"),
    (PLAIN.replace("layers: 2", "layers: 3"), r"layers\.2\..* is missing in the checkpoint .*\n  To continue it with its own"),
    (PLAIN.replace("heads: 2,", "heads: 2, norm: pre,"), "norm"),
])  # fmt: skip
def test_a_checkpoint_of_another_shape_is_refused_with_the_way_out(
    train: Train, base: Path, tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(CheckpointError, match=told):
        train(tmp_path / "run", text, init=base)
    assert not (tmp_path / "run" / "cloze" / "run.json").exists()


def test_a_plain_network_does_not_start_from_a_larger_one(
    train: Train, grafted: tuple[Path, list[str]], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="it holds a network 'zen', expected transformer.\n  To continue it with its own"):
        train(tmp_path / "run", PLAIN, init=grafted[0])


def test_a_checkpoint_of_another_tokenizer_is_refused_with_the_way_out(train: Train, base: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", PLAIN.replace("size: 200", "size: 50"))
    store = tmp_path / "other" / "cloze" / "corpus" / "main" / "store"
    with pytest.raises(CheckpointError, match=f"is not that of the corpus .*\n.*--tokenizer {base}"):
        train(tmp_path / "run", ZEN, init=base, corpus=store)


def test_each_network_may_have_a_checkpoint_of_its_own(train: Train, base: Path, tmp_path: Path) -> None:
    said = train(tmp_path / "run", TWO, init=[f"first={base}", f"second={base}"])
    theirs = load_checkpoint(base).network.state_dict()
    for name in ("first", "second"):
        mine = load_checkpoint(tmp_path / "run").other(name).network.state_dict() if name == "first" else (
            load_checkpoint(tmp_path / "run").network.state_dict()
        )
        assert all(torch.equal(mine[key], tensor) for key, tensor in theirs.items()), name
    assert not any("start fresh" in line for line in said)
    inputs = json.loads((tmp_path / "run" / "cloze" / "run.json").read_text())["inputs"]
    assert inputs["init"]["given"] == str(base) and inputs["networks"]["first"]["given"] == str(base)
    train(tmp_path / "run", TWO, init=f"first={base}", budget="2steps", extend=True)  # only the first is named again
    again = json.loads((tmp_path / "run" / "cloze" / "run.json").read_text())["inputs"]
    assert again["init"] == inputs["init"] and again["networks"].keys() == {"first"}
    train(tmp_path / "alone", TWO)
    with pytest.raises(CheckpointError, match=f"random weights, without --init first={base}"):
        train(tmp_path / "alone", TWO, init=f"first={base}", budget="2steps", extend=True)


def test_a_grafted_run_resumes_without_its_checkpoint_and_is_known_by_it(
    train: Train, base: Path, grafted: tuple[Path, list[str]], tmp_path: Path
) -> None:
    record = json.loads((grafted[0] / "cloze" / "run.json").read_text())
    inputs = record["inputs"]
    assert inputs["init"]["given"] == str(base)
    assert RunIdentity({}, "recipe", inputs=inputs).identity != RunIdentity(
        {}, "recipe", inputs={**inputs, "init": None}
    ).identity
    said = train(grafted[0], ZEN, budget="2steps", extend=True)
    assert not any("start fresh" in line for line in said)


def test_names_of_networks_are_checked(train: Train, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecipeError, match=f"--init third={base}: plain has no network 'third'. .*first, second"):
        train(tmp_path / "run", TWO, init=f"third={base}")
    with pytest.raises(CheckpointError, match="the exported network 'second' has two checkpoints"):
        train(tmp_path / "run", TWO, init=[str(base), f"second={base}"])
    with pytest.raises(CheckpointError, match="the network 'second' has two checkpoints, .* Give one."):
        parse_inits([f"second={base}", f"second={base}"])
    (tmp_path / "x.txt").write_text("It rains.")
    arguments = ["--init", "main=nowhere", "--corpus", str(tmp_path / "x.txt"), "--out", str(tmp_path / "run")]
    assert main(["pretrain", "bert", *arguments]) == 2
    assert "nowhere: there is no such folder. --init takes" in capsys.readouterr().err


def test_a_folder_with_an_equals_sign_in_its_name_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    assert parse_inits(str(tmp_path / "a=b")) == {"": tmp_path / "a=b"}
    assert parse_inits([f"trunk={tmp_path / 'a=b'}"]) == {"trunk": tmp_path / "a=b"}
    assert parse_inits(None) == parse_inits([]) == {}
    assert _checkpoints({"trunk": str(tmp_path)}) == {"trunk": tmp_path} and _checkpoints(tmp_path) == {"": tmp_path}
