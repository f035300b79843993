"""KnowBert's linker: the published number of parameters, the authors' arithmetic, and what names may change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.changes import InvertLinkers, Shape, TrainLinker, Transition
from cloze.errors import CheckpointError, RecipeError
from cloze.networks import Clock, LinkedTransformer
from cloze.networks.linked import Linker
from cloze.recipe.load import load_recipe
from tests.making import network_of

VOCABULARY, LENGTH, WIDTH = 11, 6, 4
HIDDEN, LINKING = frozenset({"hidden"}), frozenset({"hidden", "linking/surface"})
#: None, three entities, no entity, the hidden one.
MATRIX = np.concatenate([np.zeros((1, WIDTH)), np.random.default_rng(0).normal(size=(5, WIDTH))]).astype(np.float32)
#: Name 1 has two candidates, name 2 one, name 3 three, name 4 is the hidden one.
CANDIDATES = np.array([[0, 0, 0], [1, 2, 0], [3, 0, 0], [2, 3, 1], [5, 0, 0]], np.int32)
PRIORS = np.array([[0, 0, 0], [0.75, 0.25, 0], [1, 0, 0], [0.5, 0.25, 0.25], [1, 0, 0]], np.float32)
TABLE = SimpleNamespace(size=4, matrix=MATRIX, candidates=CANDIDATES, priors=PRIORS)
ARGUMENTS: dict[str, Any] = {"layers": 3, "width": 8, "heads": 2, "max_length": 16, "dropout": 0.0, "initial.std": 0.3}


def build(**changed: Any) -> LinkedTransformer:
    torch.manual_seed(3)
    sizes = {"after_layer": 1, "width": WIDTH, "heads": 2, "inner": 6, "scorer": 5}
    arguments = {**ARGUMENTS, **{f"linkers.surface.{key}": value for key, value in sizes.items()}, **changed}
    made: LinkedTransformer = network_of(
        "linked", **arguments, vocab_size=VOCABULARY, clock=Clock(1), tables={"surfaces": TABLE}
    ).double().eval()
    for linker in made.linkers.values():
        for part in (linker.span_norm, linker.entity_norm, linker.mixed_norm, linker.norm):
            torch.nn.init.normal_(part.weight, mean=1.0, std=0.3)
            torch.nn.init.normal_(part.bias, std=0.3)
    return made


def ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))


def names(items: list[list[int]], links: list[tuple[int, int]]) -> dict[str, Any]:
    """Ids of names, and pairs (flat position of a token, flat position of a name)."""
    return {
        "items": {"surface": torch.tensor(items)}, "links": {"surface": torch.tensor(links, dtype=torch.long).view(-1, 2)}
    }


#: In the first text name 1 at tokens 1 and 2 and name 3 at token 4, in the second name 2 at token 2.
THREE = names([[1, 3], [2, 0]], [(1, 0), (2, 0), (4, 1), (LENGTH + 2, 2)])


def test_the_linker_of_the_published_size_has_2_422_153_parameters() -> None:
    with torch.device("meta"):
        made = network_of(
            "linked", layers=12, width=768, heads=12, vocab_size=30522, clock=Clock(0),
            tables={"surfaces": SimpleNamespace(size=9)}, **{"linkers.surface.after_layer": 9},
        )
    assert sum(p.numel() for p in made.linkers["surface"].parameters()) == 2_422_153
    assert sum(p.numel() for p in made.parameters()) == 109_482_240 - 590_592 + 2_422_153  # BertModel without its pooler


def test_a_back_projection_of_zero_leaves_the_norm_alone() -> None:
    network = build(**{"linkers.surface.after_layer": 2})
    torch.nn.init.zeros_(network.linkers["surface"].outward.weight)
    torch.nn.init.zeros_(network.linkers["surface"].outward.bias)
    given = {name: value for name, value in ARGUMENTS.items() if name != "max_length"}
    plain = network_of("transformer", **given, segments=2, **{"positions.max_length": 16}, vocab_size=VOCABULARY, clock=Clock(1))
    plain.double().eval().load_state_dict(network.state_dict(), strict=False)
    expected = network.linkers["surface"].norm(plain(want=HIDDEN, tokens=ids())["hidden"])
    torch.testing.assert_close(network(want=HIDDEN, tokens=ids(), **THREE)["hidden"], expected, rtol=0, atol=1e-12)


def test_one_candidate_above_the_threshold_is_the_entity_itself() -> None:
    linker, null = build().linkers["surface"], torch.full((WIDTH,), 7.0, dtype=torch.double)
    vectors, item = torch.randn(3, WIDTH, dtype=torch.double), torch.tensor([0, 1, 1])
    mixed = linker.mixed(torch.tensor([0.1, 0.0, -0.5], dtype=torch.double), item, vectors, null, 3)
    torch.testing.assert_close(mixed, torch.stack([vectors[0], vectors[1], null]), rtol=0, atol=0)


def test_candidates_below_the_threshold_are_not_read_and_none_is_left_to_no_entity() -> None:
    scores, item = torch.tensor([0.3, -0.1, 1.0, -2.0, -0.01], dtype=torch.double), torch.tensor([0, 0, 0, 1, 1])
    vectors, null = torch.randn(5, WIDTH, dtype=torch.double), torch.randn(WIDTH, dtype=torch.double)
    mixed = build().linkers["surface"].mixed(scores, item, vectors, null, 2)
    torch.testing.assert_close(mixed[0], scores[[0, 2]].softmax(0) @ vectors[[0, 2]])
    assert torch.equal(mixed[1], null)
    every = build(**{"linkers.surface.threshold": None}).linkers["surface"].mixed(scores, item, vectors, null, 2)
    torch.testing.assert_close(every[1], scores[3:].softmax(0) @ vectors[3:])


def test_the_way_back_starts_as_the_pseudo_inverse() -> None:
    linker = build().linkers["surface"]
    inward, outward = linker.inward.weight, linker.outward.weight
    torch.testing.assert_close(inward @ outward, torch.eye(WIDTH, dtype=torch.double), rtol=0, atol=1e-4)
    torch.testing.assert_close(outward @ inward, (outward @ inward).t(), rtol=0, atol=1e-4)


def test_a_trained_linker_is_inverted_when_a_stage_takes_it_over() -> None:
    """W⁺ and W⁺b of the loaded map (allenai/kb, kb/knowbert.py, 686-699 and 719-721)."""
    network = build()
    torch.nn.init.normal_(network.linkers["surface"].inward.bias)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    weight, bias = (state[f"linkers.surface.inward.{name}"] for name in ("weight", "bias"))
    inverse = weight.t() @ torch.linalg.inv(weight @ weight.t())  # its rank is that of its rows
    loaded = InvertLinkers().weights(state, Transition(Shape("", "linked", {}), network, network, {}, cast(Any, 0), cast(Any, 0)))
    torch.testing.assert_close(loaded["linkers.surface.outward.weight"], inverse, rtol=0, atol=1e-9)
    torch.testing.assert_close(loaded["linkers.surface.outward.bias"], inverse @ bias, rtol=0, atol=1e-9)
    others = [name for name in state if ".outward." not in name]
    assert all(loaded[name] is state[name] for name in others) and loaded.keys() == state.keys()


def by_hand(linker: Linker, x: Tensor, spans: list[tuple[int, int, int]]) -> tuple[Tensor, list[Tensor]]:
    """The authors' way for one text (L, D) with the names (first token, last token, id): its states and scores."""
    def norm(module: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], module.weight, module.bias, module.eps)

    def layer(module: Any, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(0, 1) for part in (q, k, v))
        told = ((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(0, 1).flatten(1)
        x = norm(module.attention_norm, x + module.attention.out(told))
        return norm(module.inner_norm, x + module.outer(F.gelu(module.inner(x))))

    p = linker.inward(x)
    pooled = []
    for first, last, _ in spans:
        own = p[first : last + 1]
        pooled.append(linker.pool(own).squeeze(-1).softmax(0) @ own)
    s = norm(linker.span_norm, torch.stack(pooled))
    s = layer(linker.encoder, s, *linker.encoder.attention.projections(s).chunk(3, -1))
    mixed, scored = [], []
    for state, (_, _, name) in zip(s, spans, strict=True):
        real = torch.from_numpy(CANDIDATES[name][CANDIDATES[name] > 0]).long()
        e = norm(linker.entity_norm, torch.from_numpy(MATRIX).double()[real])
        prior = torch.from_numpy(PRIORS[name][: len(real)]).double()
        both = torch.stack([e @ state / WIDTH ** 0.5, prior], -1)
        score = linker.score_outer(F.relu(linker.score_inner(both))).squeeze(-1)
        kept = score >= 0
        mixed.append(score[kept].softmax(0) @ e[kept] if kept.any() else torch.from_numpy(MATRIX).double()[-2])
        scored.append(score)
    read = norm(linker.mixed_norm, s + torch.stack(mixed))
    key, value = linker.reader.attention.memory(read).chunk(2, -1)
    told = layer(linker.reader, p, linker.reader.attention.query(p), key, value)
    return norm(linker.norm, x + linker.outward(told)), scored


def test_the_arithmetic_is_the_authors() -> None:
    network, before = build(), dict[str, Tensor]()
    network.layers[1].register_forward_hook(lambda module, given, out: before.update(x=out))
    network.layers[2].register_forward_pre_hook(lambda module, given: before.update(y=given[0]))
    made = network(want=LINKING, tokens=ids(), **THREE)
    one, scored = by_hand(network.linkers["surface"], before["x"][0], [(1, 2, 1), (4, 4, 3)])
    other, more = by_hand(network.linkers["surface"], before["x"][1], [(2, 2, 2)])
    torch.testing.assert_close(before["y"], torch.stack([one, other]), rtol=0, atol=1e-9)
    torch.testing.assert_close(made["linking/surface"], torch.cat([*scored, *more]), rtol=0, atol=1e-9)


def two_linkers(**changed: Any) -> LinkedTransformer:
    """Another linker, with the same table, after the last layer."""
    sizes = {"after_layer": 2, "width": WIDTH, "heads": 2, "inner": 3, "scorer": 2}
    return build(**{f"linkers.sense.{key}": value for key, value in sizes.items()} | changed)


@pytest.mark.parametrize("after", [1, 2])
def test_linkers_follow_each_other_and_each_reads_its_own_names(after: int) -> None:
    network, between = two_linkers(**{"linkers.sense.after_layer": after}), list[Tensor]()
    network.layers[1].register_forward_hook(lambda module, given, out: between.append(out))
    network.layers[2].register_forward_hook(lambda module, given, out: between.append(out))
    senses = names([[2, 0], [4, 1]], [(3, 0), (LENGTH + 1, 2), (LENGTH + 4, 3), (LENGTH + 5, 3)])
    both = {field: {**THREE[field], "sense": senses[field]["surface"]} for field in ("items", "links")}
    made = network(want=LINKING | {"linking/sense"}, tokens=ids(), **both)
    for row, (surfaces, row_senses) in enumerate([
        ([(1, 2, 1), (4, 4, 3)], [(3, 3, 2)]), ([(2, 2, 2)], [(1, 1, 4), (4, 5, 1)])
    ]):  # fmt: skip
        state, surface_scores = by_hand(network.linkers["surface"], between[0][row], surfaces)
        if after == 2:
            state = between[1][row]
        state, sense_scores = by_hand(network.linkers["sense"], state, row_senses)
        for name, scores in (("surface", surface_scores), ("sense", sense_scores)):
            count = sum(map(len, scores))
            all_scores = made[f"linking/{name}"]
            torch.testing.assert_close(all_scores[-count:] if row else all_scores[:count], torch.cat(scores), rtol=0, atol=1e-9)
        if after == 2:
            torch.testing.assert_close(made["hidden"][row], state, rtol=0, atol=1e-9)


def test_packed_texts_have_their_own_names() -> None:
    network, tokens = build(), ids(1)
    apart = [network(want=HIDDEN, tokens=part, **names([[3]], [(1, 0)]))["hidden"] for part in (tokens[:, :3], tokens[:, 3:])]
    packed = network(
        want=HIDDEN, tokens=tokens, block=torch.tensor([[1, 1, 1, 2, 2, 2]]), summaries=torch.tensor([0, 3]),
        position_ids=torch.tensor([[0, 1, 2] * 2]), **names([[3], [3]], [(1, 0), (4, 1)]),
    )["hidden"]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=0, atol=1e-12)


def test_a_text_without_names_does_not_read_those_of_another() -> None:
    network = build()
    alone = network(want=HIDDEN, tokens=ids()[1:])["hidden"]
    both = network(want=HIDDEN, tokens=ids(), **names([[1], [0]], [(1, 0)]))["hidden"]
    torch.testing.assert_close(both[1:], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("changed", "told"), [
    ({"linkers.surface.after_layer": 3}, r"linkers.surface.after_layer: got 3, expected 0 to 2, a layer"),
    ({"linkers.surface.heads": 3}, "entities: 3 heads do not divide the width 4"),
    (
        {"linkers.surface.width": 6},
        r"have width 4, expected 6.\n  Say their width: --set network.linkers.surface.width=4",
    ),
    ({"linkers.surface.table": "surface"}, "there is no table 'surface'. .*surfaces"),
    ({"linkers.keys.after_layer": 1}, "a linker cannot be called 'keys'. Use a word of letters"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        build(**changed)


def test_the_linker_is_trained_alone_where_a_recipe_says_so() -> None:
    network = two_linkers()
    for change, trained in ((TrainLinker(), {"surface", "sense"}), (TrainLinker(only=["sense"]), {"sense"})):
        change.apply(network)
        expected = {f"linkers.{name}.{p}" for name in trained for p, _ in network.linkers[name].named_parameters()}
        assert {name for name, parameter in network.named_parameters() if parameter.requires_grad} == expected
    with pytest.raises(CheckpointError, match="the network has no linker 'senses'. Did you mean 'sense'"):
        TrainLinker(only=["senses"]).apply(network)
    linker, joint = (stage.recipe for stage in load_recipe("knowbert-staged").stages)
    assert [change.name for change in linker.exported.change] == ["train_linker"]
    assert [change.name for change in joint.exported.change] == ["invert_linkers"]
    assert {name: entry.odds for name, entry in linker.entries.items()} == {"text": 0.0, "links": 1.0}
    assert {name: entry.odds for name, entry in joint.entries.items()} == {"text": 4.0, "links": 1.0}
