"""Runs whose network is changed: begun from a checkpoint, broken off and resumed, taken over by a further run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cloze.checkpoint.build import load_checkpoint
from cloze.compression.compress import compress
from cloze.errors import CheckpointError, UserError
from cloze.networks.blocks.computed import is_added
from cloze.runs.run import pretrain
from cloze.training.interrupt import Interrupt
from tests.small_recipe import MINE, Write

SMALL = (("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4"))
CHANGED = (("{transformer: {layers: 2, width: 64, heads: 2}}", "{from: start, change: [lora: {rank: 2, on: [query, outer]}]}"),)
FURTHER = (("{transformer: {layers: 2, width: 64, heads: 2}}", "{from: start}"),)


@pytest.fixture(scope="module")
def start(little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("start")
    text = MINE
    for old, new in SMALL:
        text = text.replace(old, new)
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    pretrain(folder / "mine.yaml", corpus=little_text, out=folder / "run", budget="2steps", report=lambda line: None)
    return folder / "run"


def run(recipe: Path, text: Path, start: Path, out: Path) -> bool:
    return pretrain(
        recipe, corpus=text, binds=[f"start={start}"], tokenizer=start, out=out, budget="4steps", report=lambda line: None
    ).finished


def test_a_run_with_lora_trains_its_updates_alone_and_resumes_exactly(
    write: Write, little_text: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(*SMALL[:2], SMALL[3], *CHANGED)
    assert run(recipe, little_text, start, tmp_path / "whole")
    stops = iter([False] * 2 + [True] * 9)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "__bool__", lambda self: next(stops))
        assert not run(recipe, little_text, start, tmp_path / "broken")
    assert run(recipe, little_text, start, tmp_path / "broken")
    before, after, resumed = (load_checkpoint(folder) for folder in (start, tmp_path / "whole", tmp_path / "broken"))
    found = after.network.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in resumed.network.state_dict().items())
    for name, tensor in found.items():
        if is_added(name):
            assert bool(tensor.any()), name
        else:
            assert torch.equal(tensor, before.network.state_dict()[name]), name
    described = json.loads((tmp_path / "whole" / "cloze" / "network.json").read_text())
    assert described["changes"] == [{"lora": {"rank": 2, "alpha": None, "on": ["query", "outer"]}}]


def test_a_further_run_goes_on_with_the_changed_network(
    write: Write, little_text: Path, start: Path, tmp_path: Path
) -> None:
    assert run(write(*SMALL[:2], SMALL[3], *CHANGED), little_text, start, tmp_path / "first")
    assert run(write(*SMALL[:2], SMALL[3], *FURTHER), little_text, tmp_path / "first", tmp_path / "second")
    first, second = (load_checkpoint(tmp_path / name).network.state_dict() for name in ("first", "second"))
    assert first.keys() == second.keys() and any(is_added(name) for name in first)
    assert {name for name in first if not torch.equal(first[name], second[name])} == set(filter(is_added, first))


@pytest.mark.parametrize(("change", "said"), [
    ("lora: {on: [gate]}", r"lora: on: Transformer has no linear map 'gate'. Its maps: inner, key, out, outer, projections,"),
    ("keep_layers: [0, 2]", r"keep_layers: \[0, 2\]; expected layers from 0 to 1, in ascending order."),
])  # fmt: skip
def test_a_change_that_the_network_cannot_have_is_refused_with_its_place(
    write: Write, little_text: Path, start: Path, tmp_path: Path, change: str, said: str
) -> None:
    recipe = write(*SMALL[:2], SMALL[3], (CHANGED[0][0], f"{{from: start, change: [{change}]}}"))
    with pytest.raises(UserError, match=rf"mine.yaml:4: networks.main.change\[0\].*{said}"):
        run(recipe, little_text, start, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", ["lora: {rank: 2}", "sparsify: {share: 0.5}", "keep_layers: [0]"])
def test_a_change_of_weights_that_start_at_random_is_refused(
    write: Write, little_text: Path, tmp_path: Path, change: str
) -> None:
    recipe = write(*SMALL, ("layers: 2,", f"layers: 2, change: [{change}],"))
    name = change.partition(":")[0]
    with pytest.raises(UserError, match=f"networks.main.change: {name} changes the weights of a checkpoint, but"):
        pretrain(recipe, corpus=little_text, out=tmp_path / "run", budget="2steps", report=lambda line: None)


def test_layers_are_skipped_weights_pruned_and_rounded_from_the_first_step_of_a_network_that_starts_at_random(
    write: Write, little_text: Path, start: Path, tmp_path: Path
) -> None:
    changes = "layer_dropout: 0.5, quantise: {bits: 4}, sparsify: {share: {cubic: {start: 0.0, end: 0.5, until: 0.5}}}"
    recipe = write(*SMALL, ("layers: 2,", f"layers: 2, change: [{changes}],"))
    out = tmp_path / "run"
    run_ = pretrain(recipe, corpus=little_text, tokenizer=start, out=out, budget="3steps", report=lambda line: None)
    assert run_.finished
    outer = load_checkpoint(out, plain_form=True).network.layers[1].outer.weight
    assert int((outer == 0).sum()) >= outer.numel() // 2 and len(outer.unique()) <= 2 * 7 + 1


def test_lora_has_the_parameters_of_the_paper() -> None:
    """294,912 for BERT-base with rank 8 on query and value (Hu et al., 2021, §4.2: 2 × layers × 2 × width × rank)."""
    from cloze.changes import LoRA
    from cloze.networks import Clock, Transformer
    from cloze.networks.blocks.initial import SkipInit

    with torch.device("meta"), SkipInit():
        network = Transformer(layers=12, width=768, heads=12, vocab_size=30522, clock=Clock())
        LoRA(rank=8, on=("query", "value")).apply(network)
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == 2 * 12 * 2 * 768 * 8 == 294_912


def test_a_task_on_some_of_a_checkpoints_layers_mixes_these_and_keeps_its_architecture(start: Path) -> None:
    from cloze.recipe.load import load_recipe
    from cloze.runs.finetuning.task_recipe import recipe_onto

    data = load_recipe("frozen_features").canonical()
    data["networks"]["main"]["change"] = [{"keep_layers": [1]}]
    made, whole = (recipe_onto(one, load_checkpoint(start)) for one in (data, "frozen_features"))
    part = made.exported.part
    assert part is not None and part.arguments["layers"] == 1
    assert made.exported.architecture == whole.exported.architecture == "bert"
    mixed = [next(o.part.arguments["mixed"]["layers"] for _, o in one.entries["main"].objectives()) for one in (made, whole)]
    assert mixed == [2, 3]


def pruned_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Which weights of the matrices of a folder are zero."""
    state = load_checkpoint(folder, plain_form=True).network.state_dict()
    return {name: tensor == 0 for name, tensor in state.items() if name.startswith("layers.") and tensor.dim() == 2}


@pytest.fixture(scope="module")
def pruned(start: Path) -> Path:
    """The run with half of the weights of each map and one head pruned."""
    folder = start.parent / "pruned"
    compress(start, folder, [("sparsify", {"share": 0.5}), ("prune_heads", {"heads": [[0, 1]]})])
    return folder


def test_a_run_that_starts_from_a_pruned_folder_keeps_its_zeros_as_from_does(
    write: Write, little_text: Path, pruned: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"corpus": little_text, "tokenizer": pruned, "budget": "3steps", "report": lambda line: None}
    pretrain(write(*SMALL), init=pruned, out=tmp_path / "init", **options)
    pretrain(write(*SMALL[:2], SMALL[3], *FURTHER), binds=[f"start={pruned}"], out=tmp_path / "from", **options)
    folders = (pruned, tmp_path / "init", tmp_path / "from")
    before, after, same = (load_checkpoint(folder).network.state_dict() for folder in folders)
    assert all(torch.equal(tensor, same[name]) for name, tensor in after.items()) and after.keys() == same.keys()
    assert not torch.equal(before["layers.0.outer.weight"], after["layers.0.outer.weight"])
    zeros, zeros_after = pruned_weights(pruned), pruned_weights(tmp_path / "init")
    assert all(bool((zeros_after[name] | ~mask).all()) for name, mask in zeros.items())
    assert sum(int(mask.sum()) for mask in zeros.values()) > sum(mask.numel() for mask in zeros.values()) // 2
    again = pretrain(tmp_path / "init", init=tmp_path / "init", out=tmp_path / "again", **options)  # has them already
    assert again.finished
    described = json.loads((tmp_path / "again" / "cloze" / "network.json").read_text())
    assert [name for change in described["changes"] for name in change] == ["sparsify", "prune_heads"]


def test_masks_that_a_recipe_would_lose_are_refused_with_both_ways_out(
    write: Write, little_text: Path, pruned: Path, tmp_path: Path
) -> None:
    lora = tmp_path / "lora"
    assert run(write(*SMALL[:2], SMALL[3], *CHANGED), little_text, pruned, lora)
    options: dict[str, Any] = {"corpus": little_text, "budget": "2steps", "report": lambda line: None}
    with pytest.raises(CheckpointError) as error:
        pretrain(write(*SMALL), init=lora, out=tmp_path / "run", **options)
    assert str(error.value) == (
        f"--init {lora}: its masks (sparsify, prune_heads), which keep pruned weights at zero, belong to a network 'transformer' "
        "with the changes lora. The network of the recipe would lose them.\n"
        f"  To keep them: `networks: {{main: {{from: pruned}}}}` in a recipe of your own, and --bind pruned={lora}.\n"
        f"  To train without them: cloze export {lora} MERGED --to merged, then --init MERGED."
    )
    zen = write(*SMALL, ("transformer:", "mobile_transformer:"))
    with pytest.raises(CheckpointError, match=r"belong to a network 'transformer'\. The network of the recipe would lose them"):
        pretrain(zen, init=pruned, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_the_stages_of_a_recipe_keep_the_masks_of_the_folder_that_the_first_starts_from(
    write: Write, little_text: Path, pruned: Path, tmp_path: Path
) -> None:
    stage = yaml.safe_load(write(*SMALL).read_text())
    stage.pop("name")
    second = {**stage, "network": {"from": "first"}}
    recipe = tmp_path / "staged.yaml"
    recipe.write_text(yaml.safe_dump({"name": "staged", "stages": {"first": stage, "second": second}}, sort_keys=False))
    options: dict[str, Any] = {"tokenizer": pruned, "init": pruned, "budget": "4steps", "report": lambda line: None}
    pretrain(recipe, corpus=little_text, out=tmp_path / "run", **options)
    zeros, zeros_after = pruned_weights(pruned), pruned_weights(tmp_path / "run")
    assert all(bool((zeros_after[name] | ~mask).all()) for name, mask in zeros.items())


def test_a_run_does_not_resume_with_other_facts_in_a_file_of_the_same_name(tmp_path: Path) -> None:
    text, facts = tmp_path / "text.txt", tmp_path / "facts.tsv"
    text.write_text("".join(f"alpha beta gamma {number} .\n\n" for number in range(40)), encoding="utf-8")
    facts.write_text("alpha\tis\tbeta\n", encoding="utf-8")

    def run(budget: str) -> None:
        pretrain(
            "k-bert", corpus=text, binds=[f"facts={facts}"], out=tmp_path / "run", budget=budget, size="tiny", extend=True,
            seed=1, fit=False, overrides=["training.batch=4", "text.tokenizer.size=60"], report=lambda line: None,
        )

    run("1steps")
    run("2steps")
    facts.write_text("alpha\tis\tgamma\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"other contents of tables\.facts\.file: then .*facts\.tsv .*, now"):
        run("3steps")
