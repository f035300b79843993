"""Labelling tokens: the plain map, the task's LSTMs, mixed layers and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import sequence_labelling
from cloze.objectives.labels.mixed import MixedLayers
from cloze.objectives.transforms import Gelu

LAYERS, WIDTH, SIZE = 3, 4, 9


def made(**changed: Any) -> Any:
    torch.manual_seed(0)
    return sequence_labelling(**{"classes": 3, **changed}, width=WIDTH, vocab_size=SIZE, clock=Clock()).double()


def given(lengths: tuple[int, ...] = (4, 2)) -> tuple[dict[str, Any], Batch]:
    generator = torch.Generator().manual_seed(3)
    layers = torch.randn(LAYERS, len(lengths), 4, WIDTH, dtype=torch.float64, generator=generator)
    fields = {
        "tokens": torch.randint(0, SIZE, (len(lengths), 4), generator=generator),
        "block": (torch.arange(4) < torch.tensor(lengths)[:, None]).long(),
        "positions/label": torch.tensor([1, 2, 4]), "targets/label": torch.tensor([0, 2, 1]),
    }
    return {"layers": layers, "hidden": layers[-1]}, Batch(fields)


def test_without_anything_above_it_is_a_linear_map() -> None:
    objective = made()
    states, batch = given()
    expected = objective.head.output(states["hidden"].flatten(0, 1)[[1, 2, 4]])
    torch.testing.assert_close(objective.scores(states, batch), expected)
    assert objective.reads == ("hidden",) and float(objective.count(batch)) == 3


@pytest.mark.parametrize("changed", [
    {"encoder": 5}, {"encoder": 5, "mixed": MixedLayers(layers=LAYERS, mix="both", embedding_width=6)},
])  # fmt: skip
def test_padding_and_other_rows_change_nothing(changed: Any) -> None:
    objective = made(**changed).eval()
    states, batch = given()
    alone = {name: state[..., 1:, :2, :] if name == "hidden" else state[:, 1:, :2] for name, state in states.items()}
    short = Batch({"tokens": batch["tokens"][1:, :2], "positions/label": torch.tensor([0]), "targets/label": torch.tensor([1])})
    torch.testing.assert_close(objective.scores(alone, short), objective.scores(states, batch)[2:])


@pytest.mark.parametrize("changed", [{"encoder": 5}, {"mixed": MixedLayers(layers=LAYERS)}])
def test_a_view_of_vectors_is_labelled_without_tokens(changed: Any) -> None:
    objective = made(**changed).eval()
    states, batch = given()
    pictures = Batch({**{name: batch[name] for name in batch if name != "tokens"}, "vectors": torch.ones(2, 4, 3)})
    assert "tokens" not in objective.takes
    torch.testing.assert_close(objective.scores(states, pictures), objective.scores(states, batch))


def test_only_a_table_of_the_tasks_own_words_takes_tokens() -> None:
    assert "tokens" in made(encoder=5, mixed=MixedLayers(layers=LAYERS, embedding_width=6)).takes


def test_what_mixes_cost_is_added_once_for_each_answer() -> None:
    objective = made(mixed=MixedLayers(layers=LAYERS, penalty=0.5))
    with torch.no_grad():
        objective.head.mix_in.weights.copy_(torch.tensor([0.1, 0.3, 0.5]))
    states, batch = given()
    free = made(mixed=MixedLayers(layers=LAYERS, penalty=0.0))
    free.load_state_dict(objective.state_dict())
    assert objective.reads == ("layers",)
    difference = objective(states, batch).total - free(states, batch).total
    torch.testing.assert_close(difference, torch.tensor(3 * 0.5 * 0.35, dtype=difference.dtype))


def test_an_output_without_anything_to_encode_is_refused() -> None:
    with pytest.raises(RecipeError, match="mixed layers"):
        made(mixed=MixedLayers(layers=LAYERS, mix="output"))


def test_a_transform_before_mixed_layers_is_refused() -> None:
    with pytest.raises(RecipeError, match="Leave it or `mixed` out"):
        made(mixed=MixedLayers(layers=LAYERS), transform=Gelu())
