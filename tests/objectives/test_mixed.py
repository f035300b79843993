"""Classifying texts by mixed layers: where the mix comes in, its cost, padding, and what cannot be built."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import mixed_classification
from cloze.objectives.labels.mixed import MixedLayers

LAYERS, WIDTH, SIZE = 3, 4, 9


def made(**changed: Any) -> Any:
    torch.manual_seed(0)
    own = {name: changed.pop(name) for name in ("encoder", "pool") if name in changed}
    arguments = {"mixed": MixedLayers(layers=LAYERS, **changed), "classes": 3, "encoder": 5, "dropout": 0.0, "pool": "concat"}
    return mixed_classification(**{**arguments, **own}, width=WIDTH, vocab_size=SIZE, clock=Clock()).double()


def given(rows: int = 2, length: int = 4, lengths: tuple[int, ...] | None = None) -> tuple[dict[str, Any], Batch]:
    generator = torch.Generator().manual_seed(3)
    layers = torch.randn(LAYERS, rows, length, WIDTH, dtype=torch.float64, generator=generator)
    fields = {
        "tokens": torch.randint(0, SIZE, (rows, length), generator=generator), "targets/label": torch.arange(rows) % 3,
        "positions/label": torch.arange(rows),
    }
    if lengths is not None:
        fields["block"] = (torch.arange(length) < torch.tensor(lengths)[:, None]).long()
    return {"layers": layers}, Batch(fields)


@pytest.mark.parametrize(("mix", "mixes", "inner", "outer"), [
    ("input", 1, WIDTH + 6, 10), ("output", 1, 6, 10 + WIDTH), ("both", 2, WIDTH + 6, 10 + WIDTH),
])  # fmt: skip
def test_the_layers_come_in_where_they_are_asked_to(mix: str, mixes: int, inner: int, outer: int) -> None:
    objective = made(mix=mix, embedding_width=6)
    head = objective.head
    assert len(head.mixes) == mixes and head.encoder.forwards.input.in_features == inner
    assert head.pooling.output.in_features == 3 * outer
    states, batch = given()
    objective(states, batch).total.backward()
    assert all(p.grad is not None and p.grad.ne(0).any() for name, p in head.named_parameters() if "weights" in name)


def test_without_an_encoder_the_mean_of_the_mix_is_classified() -> None:
    objective = made(encoder=0, pool="mean", embedding_width=0)
    states, batch = given()
    pooled = states["layers"].mean(0).mean(1)  # the mix begins as the mean of the layers
    expected = objective.head.pooling.output(pooled)
    torch.testing.assert_close(objective.scores(states, batch), expected)


def test_a_view_of_vectors_is_classified_without_tokens() -> None:
    objective = made()
    states, batch = given()
    pictures = Batch({**{name: batch[name] for name in batch if name != "tokens"}, "vectors": torch.ones(2, 4, 3)})
    assert "tokens" not in objective.takes and "tokens" in made(mix="both").takes
    torch.testing.assert_close(objective.scores(states, pictures), objective.scores(states, batch))


def test_padding_changes_nothing() -> None:
    objective = made(mix="both", embedding_width=6).eval()
    states, batch = given(lengths=(2, 4))
    short = {"layers": states["layers"][:, :1, :2]}
    alone = Batch({"tokens": batch["tokens"][:1, :2], "targets/label": torch.tensor([0]), "positions/label": torch.tensor([0])})
    torch.testing.assert_close(objective.scores(states, batch)[:1], objective.scores(short, alone))


def test_the_cost_of_the_mixes_is_in_the_mean_once() -> None:
    objective = made(mix="both", embedding_width=6, penalty=0.5)
    states, batch = given()
    free = float(objective(states, batch).total.detach()) / 2
    with torch.no_grad():
        for mix in objective.head.mixes:
            mix.weights.fill_(2.0)  # all alike: the mix is the same
    costly = float(objective(states, batch).total.detach()) / 2
    assert costly - free == pytest.approx(2 * 0.5 * LAYERS * 4.0)


def test_an_output_without_anything_to_encode_is_refused() -> None:
    for changed in ({"mix": "output", "embedding_width": 0}, {"mix": "both", "encoder": 0}):
        with pytest.raises(RecipeError, match="mixed layers"):
            made(**changed)


@pytest.mark.parametrize(("use", "combine", "expected"), [
    ((-1,), "sum", lambda layers: layers[2]), ((0,), "mix", lambda layers: layers[0]),
    ((-2, -1), "sum", lambda layers: layers[1] + layers[2]), ((-2, -1), "mix", lambda layers: (layers[1] + layers[2]) / 2),
    ((2, 0), "concatenate", lambda layers: torch.cat([layers[2], layers[0]], dim=-1)),
])  # fmt: skip
def test_chosen_layers_are_summed_mixed_or_side_by_side(use: tuple[int, ...], combine: str, expected: Any) -> None:
    objective = made(encoder=0, pool="mean", embedding_width=0, use=use, combine=combine)
    states, batch = given()
    head = objective.head.pooling.output(expected(states["layers"]).mean(1))
    torch.testing.assert_close(objective.scores(states, batch), head)
    objective(states, batch).total.backward()


@pytest.mark.parametrize("use", [(), (3,), (-4,)])
def test_a_layer_that_is_not_there_is_refused(use: tuple[int, ...]) -> None:
    with pytest.raises(RecipeError, match="Expected numbers from 0, the embeddings, to 2, the top layer, or"):
        made(use=use)
