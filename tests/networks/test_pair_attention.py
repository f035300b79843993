"""Unicoder's word recovery: shares, what is read, padding, and the contract of networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock, PairAttention, Transformer
from cloze.networks.network import TokenSequence
from cloze.training.passes import Pass
from cloze.training.step import StepModule

VOCABULARY, WIDTH = 11, 6
BOTH = frozenset({"vectors", "alignment"})


def build(**changed: Any) -> PairAttention:
    torch.manual_seed(0)
    return PairAttention(width=WIDTH, vocab_size=VOCABULARY, init_std=0.7, **changed).double()


def ids(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def run(network: PairAttention, x: Tensor, y: Tensor, block: Tensor | None = None, **fields: Any) -> dict[str, Tensor]:
    return network(want=BOTH, tokens=x, other=TokenSequence(y, block=block), **fields)


def test_scores_are_one_map_of_both_embeddings_and_their_product() -> None:
    network, x, y = build(), ids(2, 3, 1), ids(2, 4, 2)
    made = run(network, x, y)
    for row, i in ((0, 0), (1, 2)):
        own, others = network.tokens.weight[x[row, i]], network.tokens.weight[y[row]]
        scores = torch.stack([network.weight @ torch.cat([own, other, own * other]) for other in others])
        torch.testing.assert_close(made["alignment"][row, i], scores.softmax(0))
        torch.testing.assert_close(made["vectors"][row, i], scores.softmax(0) @ others)


def test_shares_of_every_word_sum_to_one_and_padding_has_none() -> None:
    block = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    shares = run(build(), ids(2, 3, 1), ids(2, 4, 2), block=block)["alignment"]
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, 3, dtype=torch.double))
    assert shares[1, :, 2:].eq(0).all()


def test_padding_does_not_change_real_outputs() -> None:
    network, x, y = build(), ids(2, 3, 1), ids(2, 4, 2)
    wide = torch.cat([y, ids(2, 2, 3)], dim=1)
    block = torch.tensor([[1, 1, 1, 1, 0, 0]] * 2)
    torch.testing.assert_close(run(network, x, wide, block=block)["vectors"], run(network, x, y)["vectors"])


def test_the_order_of_the_other_sentence_is_irrelevant() -> None:
    network, x, y = build(), ids(2, 3, 1), ids(2, 4, 2)
    turned = run(network, x, y[:, [2, 0, 3, 1]])["vectors"]
    torch.testing.assert_close(turned, run(network, x, y)["vectors"])


def test_a_word_changes_its_own_vector_alone() -> None:
    network, x, y = build(), ids(1, 3, 1), ids(1, 4, 2)
    other = x.clone()
    other[0, 1] = (x[0, 1] + 1) % VOCABULARY
    change = (run(network, x, y)["vectors"] - run(network, other, y)["vectors"]).abs().amax(-1)[0]
    assert change[[0, 2]].eq(0).all() and change[1] > 0


def test_without_the_product_all_words_get_the_same_vector() -> None:
    vectors = run(build(product=False), ids(2, 3, 1), ids(2, 4, 2))["vectors"]
    torch.testing.assert_close(vectors, vectors[:, :1].expand_as(vectors))


def test_a_transformer_reads_the_vectors_instead_of_its_table() -> None:
    network = build()
    main = Transformer(layers=1, width=WIDTH, heads=2, dropout=0.0, vocab_size=VOCABULARY, clock=Clock()).double()
    vectors = run(network, ids(2, 3, 1), ids(2, 4, 2))["vectors"]
    states = [
        main(want=frozenset({"hidden"}), tokens=ids(2, 3, seed), vectors=vectors)["hidden"] for seed in (1, 5)
    ]
    assert torch.equal(states[0], states[1])


@pytest.mark.parametrize("padded", [True, False])
def test_in_a_step_the_other_sentence_comes_from_another_view_with_or_without_padding(padded: bool) -> None:
    network = build()
    step = StepModule(
        networks={"recover": network}, objectives={}, clock=Clock(), entries={"main": [Pass("recover", "recover")]}
    )
    block = {"other.block": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])} if padded else {}
    x, y = ids(2, 3, 1), ids(2, 4, 2)
    made = step.states_of("main", Batch({"tokens": x, "other.tokens": y, **block}), frozenset({"recover.alignment"}))
    expected = run(network, x, y, block=block.get("other.block"))
    assert torch.equal(made["recover.alignment"], expected["alignment"])


def test_every_parameter_receives_a_gradient_and_it_agrees_with_finite_differences() -> None:
    network, x, y = build(), ids(1, 3, 1), ids(1, 4, 2)
    names = [name for name, _ in network.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in network.parameters()]

    def made(*given: Tensor) -> Tensor:
        fields = {"want": BOTH, "tokens": x, "other": TokenSequence(y)}
        out: Any = torch.func.functional_call(network, dict(zip(names, given, strict=True)), (), fields)
        return out["vectors"]

    assert torch.autograd.gradcheck(made, values)
    (run(network, x, y)["vectors"] ** 2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_packed_rows_are_refused() -> None:
    with pytest.raises(RecipeError, match="packed"):
        run(build(), ids(2, 3, 1), ids(2, 4, 2), summaries=torch.tensor([0, 3]))
