"""`cloze compress`: a folder in, a smaller one out, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from cloze.bounds import Depth, Width
from cloze.changes import Shape, round_weight
from cloze.changes.keep_layers import KeepLayers
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import share
from cloze.compression.compress import changed_network, compress
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError
from cloze.networks.network import Network, reading_kinds
from cloze.probes.gates import closed, head_kinds
from cloze.probes.heads import AttentionHead, importance, without
from cloze.probes.losses import task_examples
from cloze.registry import Given, register
from cloze.runs.finetuning.finetune import finetune
from tests.interop.conftest import load_systems

Folder = Callable[..., Path]
TEXTS = ["the cat saw the dog", "the rain in the garden all the night"]


def states(folder: Path, **given: Any) -> torch.Tensor:
    """The states that a checkpoint gives for two texts."""
    reader = Reader.of(load_checkpoint(folder))
    with torch.no_grad():
        found: torch.Tensor = reader.states(reader.batch(reader.encode(TEXTS)), {"hidden"}, **given)["hidden"]
    return found


def test_kept_layers_are_a_shallower_checkpoint_that_keeps_tokenizer_head_and_task(
    tuned: Folder, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    said = cloze("compress", tuned(), "--layers", "1", "--out", tmp_path / "small")
    assert said.code == 0 and " parameters, " in said.out and "before: " in said.out, said.err
    before, after = load_checkpoint(tuned()), load_checkpoint(tmp_path / "small")
    assert (before.network_arguments["layers"], after.network_arguments["layers"]) == (2, 1)
    assert after.tokenizer.hash == before.tokenizer.hash and after.heads.keys() == before.heads.keys()
    for name, tensor in before.network.layers[1].state_dict().items():
        assert torch.equal(after.network.layers[0].state_dict()[name], tensor)
    task = json.loads((tmp_path / "small" / "cloze" / "task.json").read_text())
    assert task["labels"] == ["animal", "weather"] and "dev" not in task  # the accuracy was that of the network before
    shown = cloze("show", tmp_path / "small")
    assert "compressed" in shown.out and "keep_layers layers=[1]" in shown.out and "before: " in shown.out
    assert cloze("predict", tmp_path / "small", "the cat saw the rain").code == 0
    record = json.loads((tmp_path / "small" / "cloze" / "compression.json").read_text())
    assert record["after"]["parameters"] == after.parameters < record["before"]["parameters"] == before.parameters
    assert record["after"]["bytes"] < record["before"]["bytes"]


def test_weights_of_layers_outside_the_layers_of_a_users_network_are_named() -> None:
    @register("network", "scaled")
    class Scaled(Network):
        takes, gives = frozenset({"tokens", "order"}), reading_kinds("order")

        def __init__(self, *, layers: Depth, width: Width, vocab_size: Given[int]) -> None:
            super().__init__()
            self.width, self.embeddings = width, nn.Embedding(vocab_size, width)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
            self.scales = nn.Parameter(torch.ones(layers))

        def forward(self, **given: Any) -> Any:
            raise AssertionError("nothing is computed")

    model = SimpleNamespace(part="scaled", changes=())
    loaded: Any = SimpleNamespace(
        folder="RUN", imported=SimpleNamespace(model=model, vocab_size=9), network_arguments={"layers": 3, "width": 4},
        tables=None, tokenizer=SimpleNamespace(spellings=()), network=Scaled(layers=3, width=4, vocab_size=9),
    )
    with pytest.raises(CheckpointError) as caught:
        changed_network(loaded, [KeepLayers((0, 2))])
    assert str(caught.value) == (
        "RUN: scales of the network 'scaled' depends on the number of layers, but is not part of `layers`: (3,) in the "
        "checkpoint, (2,) with fewer layers.\n"
        "  In the file of the network, give each module in `layers` all weights of its layer, and train it again."
    )


@pytest.mark.parametrize(("asked", "kept"), [
    ("every_other", [0, 2, 4, 6]), (2, [0, 6]), (4, [0, 2, 4, 6]), (7, [0, 1, 2, 3, 4, 5, 6]), ("half", [0, 3, 6]), (1, [0]),
])  # fmt: skip
def test_layers_are_chosen_by_a_number_or_by_a_word(asked: Any, kept: list[int]) -> None:
    change, both = KeepLayers(asked), {"encoder_layers": 7, "decoder_layers": 7}
    assert list(change._chosen(Shape("", "transformer", {}), {"layers": 7})) == kept
    assert list(change._chosen(Shape("", "encoder_decoder", {}), both)) == [*kept, *(7 + layer for layer in kept)]


def test_heads_are_pruned_by_their_measured_importance_and_the_same_by_a_file_of_scores(
    tuned: Folder, tables: Path, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    train = tables / "train.tsv"
    assert cloze("compress", tuned(), "--heads", "0.5", "--task", train, "--out", tmp_path / "one").code == 0
    assert cloze("probe", "heads", tuned(), "--task", train, "--out", tmp_path / "probe").code == 0
    assert cloze("compress", tuned(), "--heads", "0.5", "--scores", tmp_path / "probe", "--out", tmp_path / "two").code == 0
    assert torch.equal(states(tmp_path / "one"), states(tmp_path / "two"))

    examples = task_examples(load_checkpoint(tuned()), str(train))
    scores = importance(examples)["gates"]
    ranked = sorted((scores[n, h] / (scores[n] ** 2).sum() ** 0.5, n, h) for n in range(2) for h in range(2))
    pruned = sorted([n, h] for _, n, h in ranked[:2])
    (change,) = load_checkpoint(tmp_path / "one").imported.model.changes
    assert change == ("prune_heads", {"heads": pruned, "of": "attention"})
    network = examples.network
    gates = without(head_kinds(network), [AttentionHead("gates", layer, head) for layer, head in pruned])
    with closed(network, gates):
        expected = Reader.of(load_checkpoint(tuned()))
        expected = Reader(network, expected.tokenizer, expected.reading, expected.order)
        with torch.no_grad():
            gated = expected.states(expected.batch(expected.encode(TEXTS)), {"hidden"})["hidden"]
    torch.testing.assert_close(states(tmp_path / "one"), gated, atol=1e-6, rtol=0)


def test_pruned_and_rounded_weights_are_written_and_stay_zero_when_the_folder_is_tuned(
    tuned: Folder, folder: Folder, tables: Path, tmp_path: Path
) -> None:
    start = folder("bert")
    changes = [("sparsify", {"share": 0.5}), ("quantise", {"bits": 4, "groups": 2})]
    made = compress(start, tmp_path / "small", changes)
    before = load_checkpoint(start).network.state_dict()
    after = load_checkpoint(tmp_path / "small", plain_form=True).network.state_dict()
    for name in ("layers.0.outer.weight", "layers.1.attention.projections.weight"):
        maps = 3 if "projections" in name else 1  # queries, keys and values are maps of their own
        rounded = round_weight(before[name], bits=4, groups=2 * maps).floats
        for weights, values in zip(before[name].chunk(maps), rounded.chunk(maps), strict=True):
            values.view(-1)[weights.abs().flatten().argsort(stable=True)[: weights.numel() // 2]] = 0.0
        assert torch.equal(after[name], rounded)
    assert made.after.zeros > 0.5 * made.before.parameters * 0.5 and made.after.parameters == made.before.parameters
    assert any("holds the masks" in remark for remark in made.remarks)

    finetune(
        tmp_path / "small", train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=tmp_path / "tuned",
        overrides=["training.epochs=1", "length=24", "training.rate.linear.peak=0.01", "task.keep=last"],
        report=lambda line: None,
    )
    trained = load_checkpoint(tmp_path / "tuned", plain_form=True).network.state_dict()
    name = "layers.0.outer.weight"
    assert not torch.equal(trained[name], after[name]) and bool((trained[name][after[name] == 0] == 0).all())
    share(tmp_path / "small", tmp_path / "merged")
    assert not load_checkpoint(tmp_path / "merged").imported.model.changes
    assert torch.equal(states(tmp_path / "merged"), states(tmp_path / "small"))


def test_layers_get_bits_by_their_measured_sensitivity_and_the_same_by_a_file_of_it(
    tuned: Folder, tables: Path, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    train, rounded = tmp_path / "rows.tsv", ["--bits", "4,2", "--groups", "2", "--asymmetric"]
    train.write_text("".join((tables / "train.tsv").read_text().splitlines(keepends=True)[:4]))
    assert cloze("probe", "curvature", tuned(), "--task", train, "--out", tmp_path / "probe").code == 0
    one = cloze("compress", tuned(), *rounded, "--task", train, "--out", tmp_path / "one")
    two = cloze("compress", tuned(), *rounded, "--scores", tmp_path / "probe", "--out", tmp_path / "two")
    assert (one.code, two.code) == (0, 0), one.err + two.err
    assert torch.equal(states(tmp_path / "one"), states(tmp_path / "two"))
    data = json.loads((tmp_path / "probe" / "probe.json").read_text())["checkpoints"]
    ((_, found),) = data.items()
    first, second = found["sensitivity"]
    record = json.loads((tmp_path / "one" / "cloze" / "compression.json").read_text())
    bits = record["changes"][0]["quantise"]["bits"]
    assert bits == ([4, 2] if first > second else [2, 4]) and len(found["eigenvalues"]) == 3
    assert f"""--change 'quantise={{"bits": {bits}, "groups": 2, "symmetric": false, "embeddings": 8}}'""" in one.err
    network: Any = load_checkpoint(tmp_path / "one").network
    assert [len(layer.outer.weight[:8].unique()) <= 2**own for layer, own in zip(network.layers, bits, strict=True)] == [True] * 2


def test_a_folder_can_be_compressed_again(folder: Folder, tmp_path: Path) -> None:
    compress(folder("bert"), tmp_path / "one", [("prune_heads", {"heads": [[0, 1]]})])
    compress(tmp_path / "one", tmp_path / "two", [("sparsify", {"share": 0.25})])
    names = [name for name, _ in load_checkpoint(tmp_path / "two").imported.model.changes]
    assert names == ["prune_heads", "sparsify"]
    result = compress(tmp_path / "two", tmp_path / "three", [("keep_layers", {"layers": [0]})])
    assert any(f"the masks of {tmp_path / 'two'} (prune_heads, sparsify) are not in" in remark for remark in result.remarks)
    last = load_checkpoint(tmp_path / "three")
    assert not last.imported.model.changes and last.network_arguments["layers"] == 1
    assert bool((last.network.layers[0].attention.out.weight[:, 8:] == 0).all())  # the head that was pruned first


def test_the_recipe_of_a_cut_run_describes_the_cut_network(tmp_path: Path) -> None:
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.publish import Publisher
    from cloze.recipe.load import load_recipe

    pieces, recipe = load_systems().tokenizer("wordpiece"), load_recipe("bert", size="tiny")
    Publisher(recipe, pieces)(tmp_path / "run", build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
    compress(tmp_path / "run", tmp_path / "small", [("keep_layers", {"layers": [1]})])
    assert load_recipe(tmp_path / "small").exported.part.arguments["layers"] == 1


@pytest.mark.parametrize(("name", "options", "said"), [
    ("bert", [], "no change was asked for. Give one or more of --layers"),
    ("bert", ["--layers", "0,x"], "--layers 0,x: expected layers, counted from 0"),
    ("bert", ["--layers", "0", "--depth", "1"], "--layers names the layers to keep, --depth their number"),
    ("bert", ["--depth", "3"], "--depth: 3 layers; expected at most the 2 of transformer."),
    ("bert", ["--layers", "5"], r"--layers: [5]; expected layers from 0 to 1"),
    ("bert", ["--heads", "0.5"], "--heads needs the importance of heads. Give exactly one of --scores FILE"),
    ("bert", ["--heads", "1.5", "--text", "F"], "--heads 1.5: expected a share between 0 and 1"),
    ("bert", ["--task", "F"], "--task is used to choose the heads to prune, or the layers that get more bits. Add"),
    ("bert", ["--layers", "0", "--heads", "0.5", "--text", "F"], "use two commands, first --layers, then --heads on what"),
    ("bert", ["--groups", "4"], "--groups and --asymmetric configure --bits. Add it, such as --bits 8."),
    ("bert", ["--embeddings"], "--embeddings and --no-embeddings configure --magnitude or --bits"),
    ("bert", ["--magnitude", "1"], "--magnitude 1.0: expected a share between 0 and 1"),
    ("bert", ["--bits", "2,4"], "--bits with several numbers needs the sensitivity of layers. Give exactly one of"),
    ("bert", ["--bits", "2,x"], "--bits 2,x: expected a number of bits, such as 8, or several for different layers"),
    ("bert", ["--bits", "2,4", "--heads", "0.5", "--text", "F"], "use two commands, first --heads, then --bits"),
    ("bert", ["--bits", "1"], "--bits: 1 bits; expected 2 to 16."),
])  # fmt: skip
def test_what_is_asked_wrongly_is_refused_in_words_and_nothing_is_written(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any], name: str, options: list[str], said: str
) -> None:
    refused = cloze("compress", folder(name), *options, "--out", tmp_path / "out")
    assert refused.code == 2 and said in refused.err and not list(tmp_path.iterdir())


def test_scores_of_another_network_and_other_files_are_refused(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    path = tmp_path / "probe.json"
    other = {"x": {"importance": {"gates": [[1.0, 2.0]]}}}
    for data, said in (
        ({"probe": "heads", "checkpoints": other}, "gates 1 × 2; this one has gates 2 × 2"),
        ({"probe": "geometry", "checkpoints": {"x": {}}}, "holds no importance of heads"),
    ):
        path.write_text(json.dumps(data))
        refused = cloze("compress", folder("bert"), "--heads", "0.5", "--scores", path, "--out", tmp_path / "out")
        assert refused.code == 2 and said in refused.err and not (tmp_path / "out").exists()


def test_a_scheduled_share_is_reached_while_a_task_is_learned_and_is_in_the_folder(
    folder: Folder, tables: Path, tmp_path: Path
) -> None:
    finetune(
        folder("bert"), train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=tmp_path / "tuned",
        changes=["sparsify={share: {linear: {start: 0.0, end: 0.5, until: 0.5}}, on: [outer]}"],
        overrides=["training.epochs=2", "length=24", "training.batch=8", "training.rate.linear.peak=0.01", "task.keep=last"],
        report=lambda line: None,
    )
    for plain in (False, True):
        outer = load_checkpoint(tmp_path / "tuned", plain_form=plain).network.layers[1].outer
        assert int((outer.weight == 0).sum()) == outer.weight.numel() // 2


def test_the_other_tower_of_a_retriever_is_as_before_which_is_said_with_the_way_to_compress_it(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"query": f"the {word}", "passage": f"a {word} in the garden"} for word in ("cat", "dog", "rain", "night")]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = ["training.epochs=1", "training.batch=4", "length=12"]
    options = [word for value in values for word in ("--set", value)]
    tuned = tmp_path / "dpr"
    said = cloze("finetune", folder("bert"), "--recipe", "dpr", "--train", pairs, "--dev", pairs, *options, "--out", tuned)
    assert said.code == 0, said.err
    (name,) = [place.name for place in (tuned / "cloze" / "networks").iterdir()]
    small = tmp_path / "small"
    said = cloze("compress", tuned, "--layers", "1", "--out", small)
    tower = small / "cloze" / "networks" / name
    assert said.code == 0 and f"{tower}: this network is unchanged, and the sizes do not include it." in said.out + said.err
    assert f"cloze compress {tower} --out NEW" in said.out + said.err
    assert [load_checkpoint(place).network_arguments["layers"] for place in (small, tower)] == [1, 2]
    assert cloze("compress", tower, "--layers", "1", "--out", tmp_path / "new").code == 0
    shutil.rmtree(tower)
    (tmp_path / "new").rename(tower)
    said = cloze("evaluate", small, pairs)
    assert said.code == 0 and load_checkpoint(tower).network_arguments["layers"] == 1, said.err
    assert "this network is as before" not in cloze("compress", folder("bert"), "--layers", "1", "--out", tmp_path / "one").out
