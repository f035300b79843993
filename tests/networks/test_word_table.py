"""Tables of words that begin with vectors from elsewhere: which rows they are, and what is trained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cloze.errors import RecipeError
from cloze.networks import GRU, Clock
from cloze.networks.blocks.inputs.word_table import WordTable

MATRIX = np.array([[0, 0], [0, 0], [1, 2], [3, 4]], np.float32)
TABLES = {"glove": SimpleNamespace(matrix=MATRIX, known=MATRIX.any(1), size=4)}


def table(**changed: Any) -> WordTable:
    arguments = {"vocab_size": 4, "width": 2, "vectors": "glove", "tune": False, "tables": TABLES, "network": "mine", **changed}
    return WordTable(**arguments)


def test_a_table_that_is_not_trained_has_the_vectors_and_zeros() -> None:
    made = table()
    made.reset_parameters(lambda weight: nn.init.constant_(weight, 9))
    assert made.tokens.weight.tolist() == MATRIX.tolist() and not made.tokens.weight.requires_grad


def test_a_table_that_is_trained_has_the_vectors_and_draws_the_rest() -> None:
    made = table(tune=True)
    made.reset_parameters(lambda weight: nn.init.constant_(weight, 9))
    assert made.tokens.weight.tolist() == [[9, 9], [9, 9], [1, 2], [3, 4]] and made.tokens.weight.requires_grad


def test_without_tables_it_waits_for_a_checkpoint() -> None:
    made = table(tables=None)
    made.load_state_dict(table().state_dict())
    assert made.tokens.weight.tolist() == MATRIX.tolist() and not made.tokens.weight.requires_grad


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'glove'"):
        table(vectors="glovee")
    with pytest.raises(RecipeError, match="embedding_width=2"):
        table(width=3)
    with pytest.raises(RecipeError, match="write `vectors:`"):
        table(vectors=None, tune=True)
    with pytest.raises(RecipeError, match="no table 'glove'"):
        table(tables={})


def test_a_network_trains_everything_but_such_a_table() -> None:
    made = GRU(width=3, embedding_width=2, vectors="glove", vocab_size=4, clock=Clock(), tables=TABLES)
    made(want=frozenset({"summary"}), tokens=torch.tensor([[2, 3]]))["summary"].sum().backward()
    without = [name for name, parameter in made.named_parameters() if parameter.grad is None]
    assert without == ["embeddings.tokens.weight"]
    assert torch.equal(made.embeddings.tokens.weight, torch.from_numpy(MATRIX))
