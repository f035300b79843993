"""context2vec: the published size, no sight of the word itself, mirrored sentences, the first loss, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock, TwoSidedLSTM
from cloze.objectives.static.negative_sampling import NegativeSampling

CONTEXT = frozenset({"context"})


def network(**changed: Any) -> TwoSidedLSTM:
    torch.manual_seed(0)
    arguments = {"width": 6, "embedding_width": 5, "inner": 7, "vocab_size": 30, "clock": Clock(), **changed}
    return TwoSidedLSTM(**arguments)


def tokens(rows: int = 3, length: int = 8) -> Tensor:
    return torch.randint(0, 30, (rows, length), generator=torch.Generator().manual_seed(1))


def context(made: TwoSidedLSTM, given: Tensor, block: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return made(want=CONTEXT, tokens=given, block=block)["context"]


def test_it_has_the_published_size() -> None:
    with torch.device("meta"):
        made = TwoSidedLSTM(width=600, embedding_width=300, inner=600, vocab_size=1000, clock=Clock())
    words = 1000 * 600  # the objective's table of targets
    assert sum(p.numel() for p in made.parameters()) + words == 7_686_600


@pytest.mark.parametrize("place", range(8))
def test_a_swapped_word_moves_every_context_but_its_own(place: int) -> None:
    made, given = network().double(), tokens()
    other = given.clone()
    other[:, place] = (other[:, place] + 1) % 30
    moved = (context(made, other) - context(made, given)).abs().amax((0, 2))
    assert moved[place] == 0
    assert (moved[torch.arange(8) != place] > 0).all()


def test_a_mirrored_sentence_has_mirrored_contexts_when_both_sides_are_tied() -> None:
    made = network()
    made.right_embeddings.load_state_dict(made.embeddings.state_dict())
    made.right.load_state_dict(made.left.state_dict())
    mirrored = network()
    mirrored.load_state_dict(made.state_dict())
    with torch.no_grad():
        mirrored.mix.weight.copy_(torch.cat(made.mix.weight.chunk(2, 1)[::-1], 1))
    torch.testing.assert_close(context(mirrored, tokens().flip(1)), context(made, tokens()).flip(1))


def test_the_first_loss_is_eleven_times_ln_2_for_every_word() -> None:
    made, given = network(), tokens()
    sampling = NegativeSampling(
        negatives=10, redraw=True, width=6, vocab_size=30, clock=Clock(), counts=np.arange(30, 0, -1), spellings=None
    )
    positions = torch.arange(given.numel())
    batch = Batch({"tokens": given, "targets/main": given.flatten(), "positions/main": positions})
    loss = sampling({"hidden": made(want=CONTEXT, tokens=given)["context"]}, batch).total
    assert float(loss.detach()) == pytest.approx(24 * 11 * math.log(2), rel=1e-6)


def test_padding_changes_no_context() -> None:
    made, given = network(), tokens()
    lengths = torch.tensor([8, 5, 3])
    block = (torch.arange(8) < lengths[:, None]).long()
    padded = context(made, given, block)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(padded[row, :length], context(made, given[row : row + 1, :length])[0])


def test_tables_are_drawn_by_the_number_of_their_rows() -> None:
    made = network(vocab_size=400, embedding_width=200)
    for table in (made.embeddings, made.right_embeddings):
        assert float(table.tokens.weight.detach().std()) == pytest.approx(1 / 20, rel=0.02)
    assert not torch.equal(made.embeddings.tokens.weight, made.right_embeddings.tokens.weight)


def test_several_texts_in_a_row_and_other_orders_are_refused() -> None:
    with pytest.raises(RecipeError, match="packing: false"):
        context(network(), tokens(), torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2]] * 3))
    with pytest.raises(RecipeError, match="order: open"):
        network()(want=CONTEXT, tokens=tokens(), order="left_to_right")
