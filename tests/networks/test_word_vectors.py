"""One table of vectors: its states by hand, its two gradients, its n-grams, unseen words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.hashed import ngram_rows
from cloze.networks import WordVectors

SPELLINGS = ["[PAD]", "[UNK]", "where", "here", "of", "time"]
TOKENS = torch.tensor([[2, 3, 4, 5], [4, 4, 2, 0]])
BLOCK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def network(**changed: Any) -> WordVectors:
    torch.manual_seed(0)
    arguments: dict[str, Any] = {"width": 3, "vocab_size": len(SPELLINGS), "spellings": SPELLINGS, "buckets": 50, **changed}
    return WordVectors(**arguments).double()


def states(made: WordVectors, *want: str, tokens: Tensor = TOKENS, **fields: Tensor) -> dict[str, Tensor]:
    return made(want=frozenset(want), tokens=tokens, **fields)


def test_a_word_is_its_row() -> None:
    made = network()
    assert torch.equal(states(made, "hidden")["hidden"], made.embeddings.weight[TOKENS])
    assert made.embeddings.weight.shape == (6, 3) and made.token_tables["tokens"] is made.embeddings
    assert torch.equal(made.vectors(), made.embeddings.weight)


def test_every_row_is_drawn_within_its_bounds_buckets_too() -> None:
    """fastText's code leaves nine tenths of them undrawn with one thread."""
    table = network(subwords=(3, 6), spread=1.0).embeddings.weight
    assert table.shape == (56, 3) and (table != 0).all() and table.abs().max() <= 1 / 3 and table.abs().max() > 1 / 6
    assert network().embeddings.weight.abs().max() <= 1 / 6


def test_the_context_is_the_mean_by_centre_and_nothing_where_there_is_none() -> None:
    made = network()
    centers, contexts = torch.tensor([1, 1, 3, 5]), torch.tensor([0, 2, 2, 4])
    context = states(made, "context", centers=centers, contexts=contexts)["context"].flatten(0, 1)
    rows = made.embeddings.weight[TOKENS].flatten(0, 1)
    torch.testing.assert_close(context[1], (rows[0] + rows[2]) / 2)
    torch.testing.assert_close(context[3], rows[2])
    torch.testing.assert_close(context[5], rows[4])
    assert not context[[0, 2, 4, 6, 7]].any()


def test_without_pairs_the_context_is_all_other_words_of_the_example() -> None:
    made = network()
    context = states(made, "context", block=BLOCK)["context"]
    row = made.embeddings.weight
    torch.testing.assert_close(context[0, 0], (row[3] + row[4] + row[5]) / 3)
    torch.testing.assert_close(context[1, 2], row[4])
    torch.testing.assert_close(context[1, 0], (row[4] + row[2]) / 2)


@pytest.mark.parametrize("block", [[[1, 1, 1, 0]], [[1, 1, 2, 0]]])
def test_the_summary_is_the_mean_of_an_examples_words(block: list[list[int]]) -> None:
    made = network()
    tokens = torch.tensor([[2, 1, 4, 0]])  # [UNK] is no word
    summary = states(made, "summary", tokens=tokens, block=torch.tensor(block))["summary"]
    row = made.embeddings.weight
    expected = [(row[2] + row[4]) / 2] if len(set(block[0])) == 2 else [row[2], row[4]]
    torch.testing.assert_close(summary, torch.stack(expected))
    empty = states(made, "summary", tokens=tokens[:, :0], block=torch.tensor(block)[:, :0])["summary"]
    assert empty.shape == (1, 3) and not empty.any()


@pytest.mark.parametrize("grams", [{}, {"subwords": (3, 6)}])
def test_rows_without_a_word_have_no_states_and_an_empty_summary(grams: dict[str, Any]) -> None:
    made = states(network(**grams), "hidden", "context", "summary", tokens=TOKENS[:, :0])
    assert made["hidden"].shape == made["context"].shape == (2, 0, 3) and not made["summary"].any()
    pairs = {"centers": TOKENS[0, :0], "contexts": TOKENS[0, :0]}
    assert states(network(**grams), "context", tokens=TOKENS[:, :0], **pairs)["context"].shape == (2, 0, 3)


def test_full_gives_every_context_word_the_whole_gradient() -> None:
    centers, contexts = torch.tensor([1, 1]), torch.tensor([0, 2])
    gradients = {}
    for how in ("divided", "full"):
        made = network(gradient=how)
        states(made, "context", centers=centers, contexts=contexts)["context"][0, 1].sum().backward()
        gradients[how] = made.embeddings.weight.grad
    assert gradients["divided"] is not None and gradients["full"] is not None
    torch.testing.assert_close(gradients["divided"][[2, 4]], torch.full((2, 3), 0.5, dtype=torch.double))
    torch.testing.assert_close(gradients["full"], 2 * gradients["divided"])


@pytest.mark.parametrize(("how", "each"), [("divided", 1 / 15), ("full", 1.0)])
def test_every_n_gram_gets_its_share_of_the_gradient(how: Any, each: float) -> None:
    made = network(subwords=(3, 6), gradient=how)
    states(made, "hidden", tokens=torch.tensor([[2]]))["hidden"].sum().backward()
    rows = [2, *ngram_rows("where", (3, 6), 50, 6)]
    expected = torch.zeros(56).index_add(0, torch.tensor(rows), torch.full((15,), each))
    assert made.embeddings.weight.grad is not None
    torch.testing.assert_close(made.embeddings.weight.grad[:, 0], expected.double())


def test_a_word_with_n_grams_is_the_mean_of_all_its_rows() -> None:
    made = network(subwords=(3, 6))
    hidden = states(made, "hidden")["hidden"]
    rows = [3, *ngram_rows("here", (3, 6), 50, 6)]
    torch.testing.assert_close(hidden[0, 1], made.embeddings.weight[rows].mean(0))
    torch.testing.assert_close(made.vectors()[TOKENS], hidden)
    assert made.token_tables == {}


def test_an_unseen_word_is_the_mean_of_its_n_grams_alone() -> None:
    made = network(subwords=(3, 6))
    rows = ngram_rows("whereof", (3, 6), 50, 6)
    unseen, seen, empty = made.vector_of("whereof"), made.vector_of("of"), network(subwords=(5, 6)).vector_of("a")
    assert unseen is not None and seen is not None and empty is not None
    torch.testing.assert_close(unseen, made.embeddings.weight[rows].mean(0).detach())
    torch.testing.assert_close(seen, made.vectors()[4])
    assert not empty.any()
    assert network().vector_of("whereof") is None


def test_an_unseen_word_does_not_depend_on_words_that_share_no_n_gram_with_it() -> None:
    made = network(subwords=(3, 6), buckets=100_003)  # no two n-grams here fall into one bucket
    before = made.vector_of("timely")
    states(made, "hidden", tokens=torch.tensor([[2, 3, 4]]))["hidden"].sum().backward()
    with torch.no_grad():
        made.embeddings.weight -= made.embeddings.weight.grad
    after = made.vector_of("timely")
    assert before is not None and after is not None and torch.equal(before, after)


def test_pairs_and_examples_do_not_depend_on_what_lies_next_to_them() -> None:
    made = network(subwords=(3, 6))
    alone = states(made, "hidden", "context", "summary", tokens=TOKENS[1:, :3])
    together = states(made, "hidden", "context", "summary", block=BLOCK)
    torch.testing.assert_close(together["hidden"][1, :3], alone["hidden"][0])
    torch.testing.assert_close(together["context"][1, :3], alone["context"][0])
    torch.testing.assert_close(together["summary"][1], alone["summary"][0])


def test_a_cell_scores_by_both_sides_and_biases() -> None:
    made = network(both_sides=True, biases=True)
    assert made.contexts is not None and made.bias is not None and made.context_bias is not None
    cell = torch.tensor([[2, 4], [3, 3]])
    association = states(made, "association", tokens=cell, cell=cell)["association"]
    w, c = made.embeddings.weight, made.contexts.weight
    expected = [w[2] @ c[4] + made.bias[2] + made.context_bias[4], w[3] @ c[3] + made.bias[3] + made.context_bias[3]]
    torch.testing.assert_close(association, torch.stack(expected))
    torch.testing.assert_close(made.vectors(), (w + c).detach())
    with pytest.raises(RecipeError, match="needs cells"):
        states(made, "association")


def test_a_checkpoint_holds_the_tables_and_nothing_that_spellings_say() -> None:
    assert set(network(subwords=(3, 6)).state_dict()) == {"embeddings.weight"}
    assert set(network(both_sides=True, biases=True).state_dict()) == {
        "embeddings.weight", "contexts.weight", "bias", "context_bias",
    }


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"subwords": (4, 3)}, "shortest and the longest"),
        ({"subwords": (3, 6), "buckets": 0}, "at least one row"),
        ({"subwords": (3, 6), "both_sides": True}, "no subwords"),
        ({"biases": True}, "both_sides: true"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        network(**wrong)


def test_n_grams_without_spellings_say_what_is_missing() -> None:
    with pytest.raises(RecipeError, match="spellings"):
        states(network(subwords=(3, 6), spellings=None), "hidden")
