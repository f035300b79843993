"""The network over a window of words: the paper's formula by hand, its sizes, its borders, what it can learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock, Window
from cloze.objectives import token_prediction
from tests.making import network_of

CHAIN = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
FLOOR = 2.131198  # the perplexity of the chain: exp of its entropy rate


def window(**changed: Any) -> Window:
    torch.manual_seed(0)
    arguments: dict[str, Any] = {"before": 2, "embedding_width": 2, "width": 3, "vocab_size": 10, "clock": Clock(), **changed}
    return network_of("window", **arguments)


def parameters(network: Window, vocabulary: int) -> int:
    head = token_prediction(tie=False, bias=True, width=network.width, vocab_size=vocabulary)
    return sum(p.numel() for part in (network, head) for p in part.parameters())


@pytest.mark.parametrize(
    ("vocabulary", "sizes", "direct", "plain"),
    [
        (10, {"before": 2, "embedding_width": 2, "width": 3}, 115, 75),
        (16383, {"before": 4, "embedding_width": 30, "width": 50}, 3_299_033, 1_333_073),
    ],
)
def test_it_has_the_parameters_of_the_papers_formula(vocabulary: int, sizes: dict[str, int], direct: int, plain: int) -> None:
    assert parameters(window(vocab_size=vocabulary, **sizes, direct=True), vocabulary) == direct
    assert parameters(window(vocab_size=vocabulary, **sizes), vocabulary) == plain


def test_the_formula_by_hand() -> None:
    """x = (1, 0, 1, 1): the nearest word's embedding first."""
    network = window(embedding_width=2, width=2, vocab_size=3).double()
    head = token_prediction(tie=False, bias=True, width=2, vocab_size=3).double()
    assert network.inner is not None and head.head.output is not None and head.head.bias is not None
    with torch.no_grad():
        network.embeddings.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
        network.inner.weight.copy_(torch.tensor([[0.1, 0.2, 0.3, 0.4], [-0.1, 0.0, 0.1, 0.2]]))
        network.inner.bias.copy_(torch.tensor([0.0, 0.1]))
        head.head.output.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
        head.head.bias.copy_(torch.tensor([0.0, 0.1, -0.1]))
    hidden = network(want=frozenset({"hidden"}), tokens=torch.tensor([[0, 1]]))["hidden"]
    torch.testing.assert_close(hidden[0, 1], torch.tensor([0.664037, 0.291313]).double(), atol=1e-6, rtol=0)
    batch = Batch({"targets/main": torch.tensor([1]), "positions/main": torch.tensor([1])})
    scores = head.scores({"hidden": hidden}, batch)
    torch.testing.assert_close(
        scores.softmax(1)[0], torch.tensor([0.410261, 0.312333, 0.277406]).double(), atol=1e-6, rtol=0
    )
    assert head({"hidden": hidden}, batch).total.item() == pytest.approx(1.163685, abs=1e-6)


def test_the_words_before_an_example_are_its_first_word() -> None:
    network = window(before=3)
    start = network(want=frozenset({"hidden"}), tokens=torch.tensor([[4, 4, 4, 7]]))["hidden"][0, 3]
    short = network(want=frozenset({"hidden"}), tokens=torch.tensor([[4, 7]]))["hidden"][0, 1]
    packed = network(
        want=frozenset({"hidden", "summary"}), tokens=torch.tensor([[9, 8, 4, 7]]), position_ids=torch.tensor([[0, 1, 0, 1]]),
        block=torch.tensor([[1, 1, 2, 2]]), summaries=torch.tensor([0, 2]),
    )
    torch.testing.assert_close(start, short)
    torch.testing.assert_close(packed["hidden"][0, 3], short)
    torch.testing.assert_close(packed["summary"][1], packed["hidden"][0, 2])


def test_reading_on_from_a_cache_is_reading_it_whole() -> None:
    network, tokens = window(before=3, direct=True), torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    whole = network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
    cache = network.cache()
    parts = []
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        position_ids = torch.arange(start, stop).expand(2, -1)
        given = {"tokens": tokens[:, start:stop], "position_ids": position_ids, "cache": cache}
        parts.append(network(want=frozenset({"hidden"}), **given)["hidden"])
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert cache.length == 5


@pytest.mark.parametrize("sizes", [{"width": 16}, {"width": 0, "direct": True}])
def test_it_learns_a_chain_to_its_entropy_and_no_further(sizes: dict[str, Any]) -> None:
    """With one word before it, which is all that a chain has to tell; also as the log-bilinear model."""
    network = window(before=1, embedding_width=4, vocab_size=3, **sizes)
    head = token_prediction(tie=False, bias=True, width=network.width, vocab_size=3)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=0.02)
    train, test = chain(1, 4000), chain(2, 20000)
    for _ in range(150):
        optimizer.zero_grad()
        perplexity(network, head, train).log().backward()
        optimizer.step()
    with torch.no_grad():
        found = float(perplexity(network, head, test))
    assert FLOOR * 0.98 < found < 2.18


def chain(seed: int, length: int) -> Tensor:
    generator = np.random.default_rng(seed)
    drawn, state = generator.random(length), 0
    states = []
    for number in drawn:
        state = int(np.searchsorted(CHAIN[state].cumsum(), number))
        states.append(min(state, 2))
    return torch.tensor([states])


def perplexity(network: Window, head: Any, tokens: Tensor) -> Tensor:
    positions = torch.arange(tokens.shape[1] - 1)
    batch = Batch({"targets/main": tokens[0, 1:], "positions/main": positions})
    states = network(want=frozenset({"hidden"}), tokens=tokens)
    return torch.exp(head(states, batch).total / len(positions))


@pytest.mark.parametrize("wrong", [{"before": 0}, {"width": 0}, {"embedding_width": 0}])
def test_sizes_that_make_no_network_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RecipeError, match="window: before"):
        window(**wrong)
