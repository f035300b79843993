"""ERNIE's fusion of entities: the published numbers of parameters, the authors' arithmetic, and what entities may change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Clock, KnowledgeFusion
from tests.making import network_of

VOCABULARY, LENGTH, WIDTH = 11, 6, 4
HIDDEN = frozenset({"hidden"})
MATRIX = np.concatenate([np.zeros((1, WIDTH)), np.random.default_rng(0).normal(size=(5, WIDTH))]).astype(np.float32)
ARGUMENTS: dict[str, Any] = {"layers": 3, "width": 8, "heads": 2, "max_length": 16, "dropout": 0.0, "initial.std": 0.3}


def build(matrix: Any = MATRIX, **changed: Any) -> KnowledgeFusion:
    torch.manual_seed(3)
    arguments = {**ARGUMENTS, "mix_at": 1, "entities.width": WIDTH, "entities.heads": 2, **changed}
    tables = {"entities": SimpleNamespace(size=len(matrix), matrix=matrix)}
    network = network_of("knowledge_fusion", **arguments, vocab_size=VOCABULARY, clock=Clock(1), tables=tables).double().eval()
    for layer in network.entity_layers:
        torch.nn.init.normal_(layer.inward.bias, std=0.3)
        torch.nn.init.normal_(layer.outward.bias, std=0.3)
    return network


def plain(network: KnowledgeFusion) -> Any:
    given = {name: value for name, value in ARGUMENTS.items() if name != "max_length"}
    made = network_of("transformer", **given, segments=2, **{"positions.max_length": 16}, vocab_size=VOCABULARY, clock=Clock(1))
    made.double().eval().load_state_dict(network.state_dict(), strict=False)
    return made


def ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))


def entities(items: list[list[int]], links: list[tuple[int, int]]) -> dict[str, Any]:
    """Ids of entities, and pairs (flat position of a token, flat position of an entity)."""
    return {
        "items": {"entity": torch.tensor(items)}, "links": {"entity": torch.tensor(links, dtype=torch.long).view(-1, 2)}
    }


TWO = entities([[2, 5], [3, 0]], [(1, 0), (4, 1), (LENGTH + 2, 2)])


def test_the_published_sizes_add_4_568_004_parameters_to_bert_base() -> None:
    with torch.device("meta"):
        tables = {"entities": SimpleNamespace(size=9)}
        made = network_of(
            "knowledge_fusion", layers=12, width=768, heads=12, vocab_size=30522, clock=Clock(0), tables=tables,
        )
    counts = [sum(p.numel() for p in layer.parameters()) for layer in made.entity_layers]
    assert counts == [617_772, *[658_372] * 6] and sum(counts) == 4_568_004
    assert sum(p.numel() for p in made.parameters()) == 109_482_240 - 590_592 + 4_568_004  # BertModel without its pooler


def test_without_what_entities_add_tokens_take_berts_way() -> None:
    network = build()
    for layer in network.entity_layers:
        torch.nn.init.zeros_(layer.inward.weight)
        torch.nn.init.zeros_(layer.inward.bias)
    want = frozenset({"hidden", "summary", "layers"})
    block = torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 2])
    mine, theirs = network(want=want, tokens=ids(), block=block, **TWO), plain(network)(want=want, tokens=ids(), block=block)
    for name in want:
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=1e-12)


def test_vectors_of_zero_are_not_enough_for_that() -> None:
    network = build(np.zeros_like(MATRIX))
    mine = network(want=HIDDEN, tokens=ids(), **TWO)["hidden"]
    assert not torch.allclose(mine, plain(network)(want=HIDDEN, tokens=ids())["hidden"])


def by_hand(network: KnowledgeFusion, tokens: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
    """The authors' way: an entity at every token (B, S, W), zero where there is none, and `mask` (B, S) where there is one."""
    def norm(module: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], module.weight, module.bias, 1e-12)

    def attend(module: Any, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in module.projections(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + (1.0 - seen[:, None, None, :].double()) * -10000.0
        out: Tensor = module.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return out

    w = network.embeddings(tokens, None, None, None)
    e = vectors
    for number, layer in enumerate(network.layers):
        w = norm(layer.attention_norm, w + attend(layer.attention, w, torch.ones_like(mask)))
        if number < network.mix_at:
            w = norm(layer.inner_norm, w + layer.outer(F.gelu(layer.inner(w))))
            continue
        own = network.entity_layers[number - network.mix_at]
        if own.attention is not None:
            e = norm(own.attention_norm, e + attend(own.attention, e, mask))
        e = e * mask[..., None]
        h = F.gelu(layer.inner(w) + own.inward(e))
        w = norm(layer.inner_norm, w + layer.outer(h))
        e = norm(own.norm, e + own.outward(h))
    return w


def test_the_arithmetic_is_the_authors() -> None:
    network, mask = build(), torch.zeros(2, LENGTH)
    vectors = torch.zeros(2, LENGTH, WIDTH, dtype=torch.double)
    for row, column, entity in ((0, 1, 2), (0, 4, 5), (1, 2, 3)):
        vectors[row, column], mask[row, column] = torch.from_numpy(MATRIX[entity]).double(), 1.0
    mask[:, 0] = 1.0
    mine = network(want=HIDDEN, tokens=ids(), **TWO)["hidden"]
    torch.testing.assert_close(mine, by_hand(network, ids(), vectors, mask), rtol=0, atol=1e-9)
    nothing = network(want=HIDDEN, tokens=ids())["hidden"]
    mask = torch.zeros(2, LENGTH)
    mask[:, 0] = 1.0
    torch.testing.assert_close(nothing, by_hand(network, ids(), torch.zeros_like(vectors), mask), rtol=0, atol=1e-9)


def test_a_dropped_entity_is_none_and_other_rows_stay_as_they_are() -> None:
    network = build()
    both = network(want=HIDDEN, tokens=ids(), **TWO)["hidden"]
    dropped = network(want=HIDDEN, tokens=ids(), **entities([[2, 0], [3, 0]], [(1, 0), (4, 1), (LENGTH + 2, 2)]))["hidden"]
    absent = network(want=HIDDEN, tokens=ids(), **entities([[2, 0], [3, 0]], [(1, 0), (LENGTH + 2, 2)]))["hidden"]
    torch.testing.assert_close(dropped, absent, rtol=0, atol=1e-12)
    assert not torch.allclose(both[0], dropped[0])
    torch.testing.assert_close(both[1], dropped[1], rtol=0, atol=1e-12)


def test_packed_texts_have_their_own_entities() -> None:
    network = build()
    tokens = ids(1, LENGTH)
    apart = [network(want=HIDDEN, tokens=part, **entities([[3]], [(1, 0)]))["hidden"] for part in (tokens[:, :3], tokens[:, 3:])]
    packed = network(
        want=HIDDEN, tokens=tokens, block=torch.tensor([[1, 1, 1, 2, 2, 2]]), summaries=torch.tensor([0, 3]),
        position_ids=torch.tensor([[0, 1, 2] * 2]), **entities([[3], [3]], [(1, 0), (4, 1)]),
    )["hidden"]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=0, atol=1e-12)


def test_everything_that_is_read_is_trained_and_the_vectors_are_not() -> None:
    network = build().train()
    network(want=HIDDEN, tokens=ids(), **TWO)["hidden"].square().sum().backward()
    without = {name for name, parameter in network.named_parameters() if parameter.requires_grad and parameter.grad is None}
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert not without - {"embeddings.segments.weight"}
    assert frozen == {f"entity_layers.1.{name}" for name in ("outward.weight", "outward.bias", "norm.weight", "norm.bias")}
    assert "entities.weight" not in network.state_dict() and not network.entities.weight.requires_grad


@pytest.mark.parametrize(("changed", "told"), [
    ({"mix_at": 3}, r"mix_at: got 3, expected 0 to 2, a layer"),
    ({"entities.heads": 3}, "entities: 3 heads do not divide the width 4"),
    ({"entities.width": 6, "entities.heads": 2}, r"have width 4, expected 6.\n  Say their width: --set network.entities.width=4"),
    ({"entities.table": "entitties"}, "there is no table 'entitties'. .*entities"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        build(**changed)


def test_entities_without_vectors_are_refused() -> None:
    tables = {"entities": SimpleNamespace(size=3, matrix=None)}
    with pytest.raises(RecipeError, match="has no vectors. .*--set tables.entities.vectors=PATH"):
        network_of("knowledge_fusion", **ARGUMENTS, mix_at=1, vocab_size=9, clock=Clock(0), tables=tables)
