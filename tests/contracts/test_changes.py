"""Every registered change on every kind of network: it computes what its plain form computes and survives every kind of
checkpoint, or it is refused in words."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_part, build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.share import share
from cloze.checkpoint.warm_start import load_origins
from cloze.errors import CheckpointError, UserError
from cloze.networks.blocks.computed import ComputedLinear, is_added
from cloze.networks.fast.switch import switched
from cloze.recipe.changes import lasts
from cloze.recipe.load import load_recipe
from cloze.recipe.parts import load_kind
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.registry import lookup, names
from cloze.training.checkpoints.state import gather_parameters, load_parameters
from cloze.training.step import StepModule

#: A recipe for every kind of network.
SYSTEMS = [
    "bert", "t5-small", "transformer-xl", "xlnet-base", "lstm", "skip-thought", "nnlm", "elmo", "context2vec", "cove", "zen",
    "ernie-thu", "knowbert", "word2vec-cbow", "ib-bert", "uniter", "vilbert", "lxmert", "cbt", "speechbert", "mamba",
    "smollm2-135m",
]  # fmt: skip
#: A table next to a network, one that reads triples and no text, and two that a task or a text trains without a checkpoint.
HELPERS = {"pair_attention", "graph_vectors", "bag_of_ngrams", "dssm", "paragraph_vectors"}
load_kind("change")
CHANGES: dict[str, Mapping[str, Any]] = {
    "adapters": {"width": 2},
    "arguments": {"to": {"dropout": 0.0}},
    "features": {},
    "fuse": {"network": "bert"},  # of unknown width; tests/changes/test_fuse.py and tests/tasks/test_fused.py have both networks
    "drop_segments": {},
    "invert_linkers": {},
    "join_vocabulary": {},
    "keep_layers": {"layers": [1]},
    "knowledge_adapter": {"width": 4, "heads": 2, "layers": 1, "at": [0, 1]},
    "layer_dropout": {"odds": 0.2},
    "lora": {"rank": 2},
    "marks": {"tokens": {"[START]": "_start_"}},
    "mean_layer": {},
    "more_segments": {"to": 5, "like": 1},
    "mean_of_items": {},
    "pfeiffer_adapters": {"width": 2},
    "read_vector": {},  # a pass gives the vector; tests/tasks/test_sentences.py has both networks
    "replace_layers": {"group": 2},
    "prefix": {"tokens": 3},
    "prompt": {"tokens": 3},
    "prune_heads": {"heads": [[0, 0], [1, 1]]},
    "quantise": {"bits": 4},
    "quantise_activations": {"bits": 14, "outputs": []},
    "sparsify": {"share": 0.5, "embeddings": True},
    "train_linker": {},
    "tune_trunk": {},
    "vocabulary": {},
}
#: Other arguments, where those above make no sense.
OTHERS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("keep_layers", "t5-small"): {"layers": [1, 3]}, ("keep_layers", "zen"): {"layers": [0]},
}  # fmt: skip
LSTMS = "lstm skip-thought elmo context2vec cove"
#: What is refused: the change, systems, and what is said.
REFUSED = (
    ("adapters pfeiffer_adapters", "nnlm context2vec cove word2vec-cbow", r"\w+ has no layers that adapters can follow"),
    (
        "fuse", "bert transformer-xl xlnet-base lstm mamba skip-thought nnlm elmo context2vec cove zen word2vec-cbow ib-bert "
        "ernie-thu knowbert uniter vilbert lxmert cbt speechbert smollm2-135m",
        r"fuse: \w+ is not an encoder-decoder of Transformer layers",
    ),
    (
        "mean_layer",
        "t5-small transformer-xl xlnet-base lstm skip-thought nnlm elmo context2vec cove zen word2vec-cbow ernie-thu knowbert "
        "ib-bert mamba uniter vilbert lxmert cbt speechbert",
        r"mean_layer: \w+ is not a plain Transformer encoder",
    ),
    ("mean_layer", "smollm2-135m", "its norms stand before attention"),
    (
        "mean_of_items", "transformer-xl xlnet-base lstm skip-thought nnlm elmo context2vec cove word2vec-cbow",
        r"mean_of_items: \w+ cannot read vectors in place of tokens",
    ),
    (
        "knowledge_adapter",
        "t5-small transformer-xl xlnet-base lstm mamba skip-thought nnlm elmo context2vec cove word2vec-cbow ib-bert",
        r"knowledge_adapter: \w+ is not a Transformer encoder. Use adapters",
    ),
    (
        "train_linker", " ".join(name for name in SYSTEMS if name != "knowbert"), r"train_linker: \w+ has no entity linker",
    ),
    (
        "invert_linkers", " ".join(name for name in SYSTEMS if name != "knowbert"), r"invert_linkers: \w+ has no entity linker",
    ),
    ("tune_trunk", " ".join(SYSTEMS), r"tune_trunk: \w+ has no knowledge adapters"),
    (
        "drop_segments",
        "t5-small transformer-xl xlnet-base lstm mamba skip-thought nnlm elmo context2vec cove word2vec-cbow",
        r"drop_segments: \w+ has no segments",
    ),
    ("drop_segments", "uniter", "these items have a segment of their own"),
    (
        "more_segments",
        "t5-small transformer-xl xlnet-base lstm mamba skip-thought nnlm elmo context2vec cove word2vec-cbow",
        r"more_segments: \w+ has no segments",
    ),
    ("more_segments", "smollm2-135m", "more_segments: like: 1, and the network has 0 segments"),
    ("fuse", "t5-small", "fuse: the recipe has no network 'bert' of known width"),
    ("arguments", "skip-thought word2vec-cbow", r"\w+ has no dropout, which this change sets"),
    ("keep_layers", "nnlm skip-thought word2vec-cbow context2vec", r"keep_layers: \w+ has no stack of layers"),
    ("keep_layers", "lstm cove", r"layer 1 cannot become layer 0: it has other parts or widths"),
    (
        "prefix", "t5-small transformer-xl xlnet-base lstm skip-thought nnlm elmo context2vec cove zen word2vec-cbow ib-bert "
        "mamba ernie-thu knowbert uniter vilbert lxmert cbt speechbert",
        r"prefix: expected a Transformer whose layers have weights of their own and no relative distances, got \w+",
    ),
    (
        "prompt", "transformer-xl xlnet-base lstm skip-thought nnlm elmo context2vec cove zen ernie-thu knowbert word2vec-cbow "
        "uniter vilbert lxmert cbt speechbert",
        r"prompt: \w+ does not read vectors in place of a table's rows",
    ),
    (
        "replace_layers",
        "t5-small transformer-xl xlnet-base lstm mamba skip-thought nnlm elmo context2vec cove word2vec-cbow ib-bert",
        r"replace_layers: \w+ is not a Transformer whose layers have weights of their own and see the same tokens",
    ),
    (
        "read_vector", "t5-small transformer-xl xlnet-base lstm skip-thought nnlm elmo context2vec cove zen ernie-thu knowbert "
        "mamba word2vec-cbow ib-bert uniter vilbert lxmert cbt speechbert",
        r"read_vector: \w+ is not a plain stack of Transformer layers",
    ),
    ("layer_dropout", f"mamba {LSTMS} nnlm word2vec-cbow", r"\w+ has no layers that can be skipped"),
    ("layer_dropout", "xlnet-base", r"TwoStream computes two streams in each layer"),
    ("prune_heads", f"mamba {LSTMS} nnlm word2vec-cbow", r"prune_heads: \w+ has no attention heads"),
    ("quantise_activations", f"mamba {LSTMS} nnlm", r"\w+ is not built of Transformer layers. Use"),
    ("lora quantise_activations", "word2vec-cbow", r"\w+ has no linear maps above its embeddings"),
)
#: Changes that have no plain form, and what is said.
UNMERGED = dict.fromkeys(
    ("adapters", "features", "knowledge_adapter", "pfeiffer_adapters", "prefix", "prompt"), "cannot be merged into weights"
) | {"read_vector": "cannot be written as an ordinary network"}
#: Changes whose plain form computes about the same, and the relative difference of losses: 0.0031 at the most, for `vilbert`. It
#: depends on the processor, because float32 sums in another order round an activation to the step above or below, and stirred
#: networks amplify a step: with 12 bits 0.0106 in MKL's code for AVX-512, 0.0069 in that for AVX2, 0.0100 in that for all.
ROUGH = {"quantise_activations": 0.01}
#: Changes of states that the recipes of these systems do not train on.
UNREAD = {
    "features": "t5-small xlnet-base skip-thought nnlm elmo context2vec cove word2vec-cbow cbt",
    "knowledge_adapter": "cbt",
    # no batch links items; tests/changes/test_mean_of_items.py does
    "mean_of_items": "bert t5-small zen ernie-thu knowbert ib-bert uniter vilbert lxmert cbt speechbert mamba smollm2-135m",
    "read_vector": "bert smollm2-135m",  # no pass of it takes a vector
    "replace_layers": "bert smollm2-135m zen ernie-thu knowbert uniter vilbert lxmert cbt speechbert",  # outside of training
}
ALL = [(change, name) for change in CHANGES for name in SYSTEMS]


def refusal(change: str, name: str) -> str | None:
    """What is said where a change is refused."""
    return next((said for changes, ones, said in REFUSED if change in changes.split() and name in ones.split()), None)


def begun(
    own: Any, folder: Path, change: tuple[str, Mapping[str, Any]] | None, *, resumes: bool = False
) -> tuple[Recipe, StepModule]:
    """The system's recipe with its exported network from a folder, changed, and its step with those weights."""
    data = replace(own.recipe, stages=()).canonical()
    network = {"from": "start", **({} if change is None else {"change": [{change[0]: dict(change[1])}]})}
    kept = {key: value for key, value in data["networks"][own.recipe.export].items() if key == "architecture"}
    recipe = load_recipe(
        {**data, "networks": {**data["networks"], own.recipe.export: {**network, **kept}}},
        checkpoints=BoundCheckpoints({"start": folder}),
    )
    step = build_step(
        recipe, vocab_size=own.tokenizer.size, tables=own.tables, store=next(iter(own.stores.values())),
        tokenizer=own.tokenizer, to_be_loaded=frozenset({recipe.export}),
    )
    load_origins(step, recipe, {recipe.export: folder}, own.tokenizer, resumes=resumes, say=lambda line: None)
    step.eval()
    step.clock.set(seed=0, step=0, first_row=0, share=0.0)
    return recipe, step


def losses(step: StepModule, batches: Mapping[str, Any]) -> list[torch.Tensor]:
    """The sums of losses of the batches of entries."""
    return [loss.total for entry, batch in batches.items() for _, loss in sorted(step(entry, batch).items())]


def network_of(step: StepModule, recipe: Recipe) -> Any:
    return step.networks[recipe.export]


@torch.no_grad()
def stir(module: torch.nn.Module, *, added: bool) -> None:
    """Move parameters away from where they start, which for many is zero: those that a change has added, or all."""
    generator = torch.Generator().manual_seed(3)
    for name, parameter in module.named_parameters():
        if is_added(name) or not added:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))


def assert_same_state(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    found_, expected_ = found.state_dict(), expected.state_dict()
    assert found_.keys() == expected_.keys()
    assert all(torch.equal(found_[name], tensor) for name, tensor in expected_.items())
    computed = [name for name, module in expected.named_modules() if isinstance(module, ComputedLinear)]
    assert computed == [name for name, module in found.named_modules() if isinstance(module, ComputedLinear)]


def test_every_change_and_every_network_is_in_the_contract() -> None:
    assert set(CHANGES) == set(names("change")), "add the new change to CHANGES"
    kinds = set()
    for name in SYSTEMS:
        recipe = load_recipe(name)
        kinds |= {network.part.name for network in recipe.networks.values() if network.part is not None}
    assert set(names("network")) - HELPERS <= kinds, "add a recipe of the new network to SYSTEMS"


Stirred = tuple[StepModule, dict[str, Batch], list[float]]


@pytest.fixture(scope="module")
def stirred(system: Callable[..., Any]) -> Callable[[str], Stirred]:
    """The step of a system whose parameters were moved, which no test changes, the first batch of every entry, and its losses."""

    @cache
    def make(name: str) -> Stirred:
        own = system(name)
        step = own.step()
        stir(step, added=False)
        batches = own.batches(step)
        with torch.no_grad():
            return step, batches, [loss.item() for loss in losses(step, batches)]

    return make


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("change", [name for name in CHANGES if lasts(name)])
def test_a_changed_network_computes_the_same_by_fast_functions_by_plain_modules_and_in_its_plain_form(
    change: str, name: str, system: Callable[..., Any], stirred: Callable[[str], Stirred]
) -> None:
    recipe, (unchanged, batches, before) = system(name).recipe, stirred(name)
    part = build_part(PartSpec("change", change, dict(CHANGES[change])))
    said = refusal(change, name)
    if said is not None:
        with pytest.raises(UserError, match=said):
            part.apply(network_of(unchanged, recipe))
        return
    step = copy.deepcopy(unchanged)
    network = network_of(step, recipe)
    torch.manual_seed(0)  # a change draws weights of its own, whose size decides how far the losses move
    part.apply(network)
    step._freeze()
    stir(network, added=True)
    for module in network.modules():
        if hasattr(module, "kept"):
            module.kept[::2] = False
        if hasattr(module, "range"):
            module.range.fill_(12.0)
    changed = losses(step, batches)
    with switched(False):
        assert [loss.item() for loss in losses(step, batches)] == pytest.approx([loss.item() for loss in changed], rel=1e-5)
    if name in UNREAD.get(change, "").split():
        assert [loss.item() for loss in changed] == pytest.approx(before, rel=1e-5)
        return
    assert [loss.item() for loss in changed] != pytest.approx(before, rel=1e-5 if change in ROUGH else 1e-4)
    torch.stack([loss for loss in changed if loss.requires_grad]).sum().backward()
    added = {name: p for name, p in network.named_parameters() if is_added(name)}
    kept = {name: p for name, p in network.named_parameters() if name not in added}
    assert not added or all(p.grad is None for p in kept.values() if not p.requires_grad)
    assert not added or all("norm" in name for name, p in kept.items() if p.requires_grad)
    assert all(p.grad is not None and bool(p.grad.any()) for p in added.values() if p.requires_grad)
    if change in UNMERGED:
        with pytest.raises(CheckpointError, match=UNMERGED[change]):
            part.plain(network)
        return
    part.plain(network)
    assert not any(isinstance(module, ComputedLinear) for module in network.modules())
    expected = pytest.approx([loss.item() for loss in changed], rel=ROUGH.get(change, 1e-5))
    assert [loss.item() for loss in losses(step, batches)] == expected


def assert_survives(change: str, name: str, system: Callable[..., Any], start: Callable[[str], Path], out: Path) -> None:
    """Loaded, saved, opened, shared, taken over again and resumed, a changed network is the same, or the change is refused."""
    own, given = system(name), (change, OTHERS.get((change, name), CHANGES[change]))
    said = refusal(change, name)
    if said is not None:
        with pytest.raises(UserError, match=said):
            begun(own, start(name), given)
        return
    recipe, step = begun(own, start(name), given)
    network = network_of(step, recipe)
    stir(network, added=True)
    Publisher(recipe, own.tokenizer, own.tables)(out / "run", step.state_dict(), 1)
    loaded = load_checkpoint(out / "run")
    assert_same_state(loaded.network, network)

    again, resumed = begun(own, start(name), given, resumes=True)
    load_parameters(resumed, gather_parameters(step), where="here")
    assert_same_state(network_of(resumed, again), network)
    assert again.canonical() == recipe.canonical()

    further, taken = begun(own, out / "run", None)
    assert_same_state(network_of(taken, further), network)
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {name for name, p in network_of(taken, further).named_parameters() if p.requires_grad}

    share(out / "run", out / "shared")
    plain = load_checkpoint(out / "shared")
    if change in UNMERGED:
        assert_same_state(plain.network, network)
        return
    assert not plain.imported.model.changes
    merged = copy.deepcopy(step)
    for spec in reversed(recipe.networks[recipe.export].change):
        build_part(spec).plain(network_of(merged, recipe))
    for key, tensor in network_of(merged, recipe).state_dict().items():
        torch.testing.assert_close(plain.network.state_dict()[key], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "name"),
    [("arguments", "bert"), ("keep_layers", "t5-small"), ("keep_layers", "elmo"), ("adapters", "t5-small"),
     ("pfeiffer_adapters", "elmo"), ("lora", "bert"), ("lora", "lstm"), ("mean_layer", "bert"),
     ("mean_of_items", "bert"), ("features", "bert"), ("features", "lstm"), ("prompt", "t5-small"), ("prefix", "bert"),
     ("sparsify", "xlnet-base"), ("vocabulary", "bert"),
     ("prune_heads", "t5-small"), ("quantise", "lstm"), ("quantise_activations", "t5-small"),
     ("replace_layers", "bert"), ("more_segments", "bert"), ("more_segments", "zen"),
     *((changes.split()[0], ones.split()[0]) for changes, ones, _ in REFUSED)],
)  # fmt: skip
def test_a_changed_network_survives_every_checkpoint(
    change: str, name: str, system: Callable[..., Any], start: Callable[[str], Path], tmp_path: Path
) -> None:
    assert_survives(change, name, system, start, tmp_path)


def test_a_changed_network_without_a_plain_form_is_written_for_cloze_alone(
    system: Callable[..., Any], start: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(self: Any, network: Any) -> None:
        raise CheckpointError("these updates cannot be merged.")

    monkeypatch.setattr(lookup("change", "lora"), "plain", plain)
    recipe, step = begun(system("bert"), start("bert"), ("lora", {"rank": 2}))
    remarks = Publisher(recipe, system("bert").tokenizer)(tmp_path / "run", step.state_dict(), 1)
    assert remarks[0].startswith("transformers has no architecture for this network: these updates cannot be merged. Its")
    assert not (tmp_path / "run" / "config.json").exists()
    share(tmp_path / "run", tmp_path / "shared")
    for folder in (tmp_path / "run", tmp_path / "shared"):
        assert_same_state(load_checkpoint(folder).network, network_of(step, recipe))
        with pytest.raises(CheckpointError, match="these updates cannot be merged.\n  Continue with the changed network"):
            load_checkpoint(folder, plain_form=True)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "name"), ALL)
def test_every_change_of_every_network_survives_every_checkpoint(
    change: str, name: str, system: Callable[..., Any], start: Callable[[str], Path], tmp_path: Path
) -> None:
    assert_survives(change, name, system, start, tmp_path)
