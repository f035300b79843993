"""Vectors of texts with a norm are those of ORQA's code, and no module of sentence-transformers is written for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import Embedding


def test_a_vector_with_a_norm_is_tanh_then_the_map_then_the_norm() -> None:
    """`module_fn` of ict_model.py: BERT's pooled output, dense, Keras's LayerNormalization (epsilon 0.001)."""
    torch.manual_seed(0)
    embedding = Embedding(
        reading="summary", project=40, norm_epsilon=1e-3, dropout=0.5, normalise=False, width=4, clock=Clock()
    ).double().eval()
    for parameter in embedding.parameters():
        torch.nn.init.normal_(parameter)
    states = torch.randn(2, 4, dtype=torch.double)
    weights = {name: tensor.detach().numpy() for name, tensor in embedding.head.state_dict().items()}
    pooled = np.tanh(states.numpy() @ weights["dense.weight"].T + weights["dense.bias"])
    x = pooled @ weights["project.weight"].T + weights["project.bias"]
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3) * weights["norm.weight"] + weights["norm.bias"]
    found = embedding.scores({"summary": states}, Batch({"tokens": torch.zeros(2, 1, dtype=torch.long)}))
    np.testing.assert_allclose(found.detach().numpy(), x)
    embedding.train()
    assert (embedding.scores({"summary": states}, Batch({"tokens": torch.zeros(2, 1, dtype=torch.long)})) == 0).any()


@pytest.mark.parametrize("given", [{"norm_epsilon": 1e-3}, {"project": 3, "dropout": 0.1}, {
    "project": 3, "norm_epsilon": 1e-3, "activation": "tanh"
}])  # fmt: skip
def test_a_norm_belongs_to_a_map_without_an_activation_and_dropout_to_a_norm(given: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="embedding"):
        Embedding(width=4, **given)  # type: ignore[arg-type]
