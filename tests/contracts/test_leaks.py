"""No state tells of a token that it may not see, at any depth: each network, in each order that a recipe gives it.

One row of a recipe's own batch is repeated, in each copy another token is changed, and every position of every state that then
moves must be one that the state's declaration, the order and the blocks let see that token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze import fields
from cloze.batch import Batch
from cloze.corpus.items.item_store import ItemSet
from cloze.networks import Window
from cloze.networks.routing import routed, seen_by
from cloze.recipe.load import load_recipe, recipe_names, scratch_task_recipe_names
from cloze.registry import names
from cloze.training.passes import Pass
from cloze.training.step import StepModule
from tests.systems_at_tiny import distinct

BAND, DEPTH, LENGTH = 8, 4, 28
#: States of a decoder, which may look at all of the encoder.
DECODER = ("decoder_hidden", "decoder_layers")
#: What it read is forgotten so fast, before it learns, that it cannot be measured a few tokens on.
FADING = {"lstm", "gru", "bilstm", "lstm_encoder_decoder", "two_sided_lstm"}


def deeper(name: str) -> list[str]:
    """Enough layers that what leaks in one of them spreads in the next, short rows, and bands that bind in them."""
    values = []
    for network, spec in load_recipe(name).networks.items():
        assert spec.part is not None
        values += [f"networks.{network}.layers={DEPTH}"] if "layers" in spec.part.arguments else []
        values += [f"networks.{network}.forget_bias=5.0"] if spec.part.name in FADING else []
        attention = spec.part.arguments.get("attention") or {}
        values += [f"networks.{network}.attention.band.width={BAND}"] if attention.get("band") else []
    edits = [edit.part.name for entry in load_recipe(name).entries.values() for edit in entry.exercise]
    frequent = ["exercise.subsample.threshold=1e-3"] if "subsample" in edits else []  # 1e-5 leaves nothing of a sample
    overlapping = any(source.arguments.get("reuse", 0) > 1 for source in load_recipe(name).sources.values())
    return [*values, *frequent, f"length={LENGTH}"] if values and not overlapping else [*values, *frequent]


@pytest.mark.parametrize("name", distinct(only=("networks", "order", "exercise", "passes")))
def test_a_changed_token_moves_only_what_may_see_it(name: str, system: Callable[..., Any]) -> None:
    opened = system(name, *deeper(name))
    step = opened.step().double()
    tested: set[tuple[bool, ...]] = set()
    for entry, batch in opened.batches(step).items():
        for run in step.entries[entry]:
            if any(str(source).rpartition(".")[0] in step.networks for source in run.take.values()):
                print(f"{entry}: pass {run.name} reads another pass instead of tokens; nothing to change in it")
                continue
            tested |= check_pass(step, run, batch)
    assert len(tested) >= len({str(entry.order) for entry in opened.recipe.entries.values()})


#: States of whole rows and of pairs of them.
POOLED = frozenset({"pooled", "text_mean", "item_mean", "pair_pooled"})


@pytest.mark.parametrize("name", ["unicoder-vl", "uniter", "vl-bert", "vilbert", "lxmert", "cbt"])
def test_a_hidden_item_reaches_a_network_by_no_way(
    name: str, system: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"rate": 1.0, "zero": 1.0, "other": 0.0, "keep": 0.0}
    places = [
        f"{'exercise' if entry.name == 'main' else f'mixture.{entry.name}.exercise'}.mask_items"
        for entry in load_recipe(name).entries.values() for edit in entry.exercise if edit.part.name == "mask_items"
    ]
    opened = system(name, *(f"{place}.{option}={value}" for place in places for option, value in whole.items()))
    step = opened.step()
    hidden = opened.batches(step)
    read, vectors = ItemSet.read, ("item_vectors/regions", "item_vectors/frames")
    monkeypatch.setattr(ItemSet, "read", lambda *given: {
        field: value + 7.0 if field in vectors else value for field, value in read(*given).items()
    })  # fmt: skip
    others = opened.batches(step)
    found = 0
    for entry, batch in hidden.items():
        items = next((field.split("/")[1] for field in batch if field.endswith("/masked")), None)
        if items is None:
            continue
        for run in step.entries[entry]:
            for field in map(str, run.take.values()):
                if field in batch:
                    assert torch.equal(batch[field], others[entry][field]), field
        found += int(batch[f"item_length/{items}"].sum())
        assert not batch[f"item_vectors/{items}"].any()
        if "values/features" in batch:  # the items were others
            assert not torch.equal(batch["values/features"], others[entry]["values/features"])
    assert places and found


@pytest.mark.parametrize("name", ["unicoder-vl"])
def test_words_and_items_of_a_wrong_pair_are_hidden_but_not_asked(name: str, system: Callable[..., Any]) -> None:
    """`I[y = 1] (L_MLM + L_MOC) + L_VLM` of the paper (Li et al., 2020): all words and regions are masked, some pairs wrong."""
    rates = [f"exercise.{edit}.rate=1.0" for edit in ("mask", "mask_items")]
    opened = system(name, *rates)
    (batch,) = opened.batches(opened.step()).values()
    right = batch["targets/match"] == 1
    rows, length = batch["tokens"].shape
    assert 0 < int(right.sum()) < rows and (batch["items/regions/masked"] > 0).any(1).all()
    for field, width in (("positions/main", length), ("positions/object", batch["items/regions/masked"].shape[1])):
        asked = torch.bincount(batch[field] // width, minlength=rows) > 0
        assert torch.equal(asked, right), field


def test_every_registered_network_is_checked() -> None:
    recipes = [load_recipe(name) for name in (*recipe_names(), *scratch_task_recipe_names())]
    specs = [spec.part for recipe in recipes for spec in recipe.networks.values()]
    tested = {spec.name for spec in specs if spec is not None}
    assert set(names("network")) == tested, "add a recipe that uses the new network"


def check_pass(step: StepModule, run: Pass, batch: Batch) -> set[tuple[bool, ...]]:
    """Check one row of every kind of order in the batch; returns the kinds."""
    network: Any = step.networks[run.network]
    seen = seen_by(network, batch, run.view)
    taken = {name: source for name, source in run.take.items() if isinstance(source, str)}
    given = {**seen, **{name: batch[source] for name, source in taken.items() if source in batch}}
    given = {name: value for name, value in given.items() if name in network.takes}
    longest = (given.get("block", torch.ones_like(given["tokens"])) > 0).sum(1)
    kinds: dict[tuple[bool, ...], int] = {}
    for row in longest.argsort(stable=True).tolist():
        steps = order_of(run, given, row)[: longest[row]].diff()
        kinds[bool((steps < 0).any()), bool((steps > 0).any()), bool((steps == 0).any())] = row
    for row in kinds.values():
        check_row(network, run, given, row)
    return set(kinds)


def check_row(network: Any, run: Pass, given: dict[str, Tensor], row: int) -> None:
    block = given.get("block", torch.ones_like(given["tokens"]))
    order = order_of(run, given, row)
    shared = block[row][:, None] == block[row][None, :]
    may = {
        "order": (order[None, :] <= order[:, None]) & shared,
        "before": (order[None, :] < order[:, None]) & shared,
        "left_to_right": torch.ones_like(shared).tril() & shared,
        "right_to_left": torch.ones_like(shared).triu() & shared,
        "itself": torch.eye(len(shared), dtype=torch.bool),
        "all_but_itself": ~torch.eye(len(shared), dtype=torch.bool) & shared,
    }
    real = (block[row] > 0).nonzero().view(-1)
    for state, sees, moved in perturbed(network, run, given, row, "tokens", real):
        if sees == "paragraph":
            assert not moved.any(), f"{run.name}.{state} sees tokens"
            continue
        assert moved.any(), f"{run.name}.{state} does not depend on the tokens"
        if state in DECODER:  # the decoder may look at all of the encoder
            continue
        allowed = may[sees][:, real].T.expand_as(moved)
        leaks = (moved & ~allowed)[..., real].reshape(-1, len(real), len(real)).any(0)
        assert not leaks.any(), f"{run.name}.{state} sees what it may not: {real[leaks.any(1)].tolist()}"
        if state in ("hidden", "query") and not banded(network):  # and all that may be seen is seen
            assert (moved == allowed)[..., real].all(), f"{run.name}.{state} does not see all that it may"
    if "decoder.tokens" in given and "decoder_hidden" in network.gives:
        later = given.get("decoder.block", torch.ones_like(given["decoder.tokens"]))
        asked = (later[row] > 0).nonzero().view(-1)
        for state, _, moved in perturbed(network, run, given, row, "decoder.tokens", asked):
            if state not in DECODER:
                assert not moved.any(), f"{run.name}.{state} sees the decoder's tokens"
                continue
            causal = torch.ones(moved.shape[-1], moved.shape[-1], dtype=torch.bool).tril()[:, asked].T
            assert not (moved & ~causal)[..., asked].any(), f"{run.name}.{state} sees what is to its right"
            if state == "decoder_hidden":
                assert (moved == causal)[:, asked].all(), f"{run.name}.{state} does not see all that is to its left"


def perturbed(
    network: Any, run: Pass, given: dict[str, Tensor], row: int, changed: str, positions: Tensor
) -> Iterator[tuple[str, str, Tensor]]:
    """Each state over positions, what it declares to see, and which of its positions (…, M, L) each change moves."""
    copies = len(positions) + 1
    copied = repeated(given, row, copies)
    vocabulary = network.token_tables["tokens"].num_embeddings if "tokens" in network.token_tables else network.vocab_size
    tokens = copied[changed].clone()
    tokens[torch.arange(1, copies), positions] = (tokens[torch.arange(1, copies), positions] + vocabulary // 2) % vocabulary
    copied[changed] = tokens
    with torch.no_grad():
        # states of attention and of pairs have no axis of positions of their own
        placed = {
            name for name, kind in network.gives.items()
            if kind.shape not in ("P", "B R D", "B R W", "E C") and not kind.shape.startswith("N B H") and name not in POOLED
        }  # nor have those of items: tests/networks/test_items.py is about these
        states = dict(network(want=frozenset(placed) - {"carry"}, **routed(network, copied, run.order)))
    if network.gives.get("summary", ("", ""))[1] == "all":  # a mean over the example
        del states["summary"]
    if "summary" in states:  # the state of one position: what that may see has been checked
        vectors = [states[name].flatten(0, 1) for name in ("hidden", "decoder_hidden") if name in states]
        for summary in states.pop("summary"):
            assert any((summary == vector).all(1).any() for vector in vectors), f"{run.name}.summary is no position's state"
    for name, state in sorted(states.items()):
        moved = (state[..., 1:, :, :] - state[..., :1, :, :]).abs().amax(-1) > 1e-9
        yield name, network.gives[name].sees, moved


def repeated(given: dict[str, Tensor], row: int, copies: int) -> dict[str, Tensor]:
    """The fields of one row, as often as `copies`; flat positions of the copies lie one row after another."""
    length = given["tokens"].shape[1]
    made: dict[str, Tensor] = {}
    for name, value in given.items():
        _, field, chosen = fields.split(name)
        copy = torch.arange(copies)
        if field == "links":
            items = next(given[name] for name in (f"items/{chosen}", f"item_vectors/{chosen}") if name in given).shape[1]
            own = value[value[:, 0] // length == row] - torch.tensor([row * length, row * items])
            value = (own[None] + copy[:, None, None] * torch.tensor([length, items])).flatten(0, 1)
        elif field in ("centers", "contexts"):
            own = value[value // length == row] - row * length
            value = (own[None] + copy[:, None] * length).flatten()
        elif field == "summaries":
            value = (value[value // length == row][None] - row * length + copy[:, None] * length).flatten()
        else:
            value = value[row : row + 1].repeat_interleave(copies, 0)
        made[name] = value
    return made


def order_of(run: Pass, given: dict[str, Tensor], row: int) -> Tensor:
    length = given["tokens"].shape[1]
    if "order" in given:
        return given["order"][row]
    return torch.arange(length) if run.order == "left_to_right" else torch.zeros(length, dtype=torch.long)


def banded(network: Any) -> bool:
    """Whether some layers see their neighbourhood alone, so that a state sees less than its order allows. So do the vectors of
    `pair_attention`, where a token takes part in its own shares and in nothing else."""
    inputs = getattr(network, "layer_inputs", None)
    return isinstance(network, Window) or inputs is not None and inputs.band is not None or "vectors" in network.gives
