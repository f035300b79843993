"""`mean_of_items`: a token as the mean of others, a token table that does not learn, and the folder without the change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from cloze.changes import MeanOfItems
from cloze.errors import CheckpointError
from cloze.networks.clock import Clock
from tests.making import network_of
from tests.simulated_gpu import SimulatedGpu


def network() -> Any:
    torch.manual_seed(0)
    made = network_of("transformer", layers=1, width=8, heads=2, vocab_size=20, clock=Clock(), dropout=0.0)
    return made.eval()


TOKENS = torch.tensor([[2, 4, 5, 6], [2, 7, 4, 3]])


def test_a_linked_token_has_the_mean_of_its_items_and_the_others_their_own_rows() -> None:
    changed = network()
    MeanOfItems().apply(changed)
    table = changed.embeddings.tokens.weight.detach()
    items = {"candidate": torch.tensor([[10, 11, 12], [13, 0, 0]])}
    links = {"candidate": torch.tensor([[1, 0], [1, 1], [1, 2], [6, 3]])}
    vectors = table[TOKENS].clone()
    vectors[0, 1], vectors[1, 2] = table[10:13].mean(0), table[13]
    want = frozenset({"hidden"})
    read = changed(want=want, tokens=TOKENS, items=items, links=links)["hidden"]
    torch.testing.assert_close(read, network()(want=want, tokens=TOKENS, vectors=vectors)["hidden"])
    assert torch.equal(changed(want=want, tokens=TOKENS)["hidden"], network()(want=want, tokens=TOKENS)["hidden"])


def test_a_gpu_waits_for_nothing() -> None:
    items, links = torch.tensor([[10, 11, 12], [13, 0, 0]]), torch.tensor([[1, 0], [1, 1], [1, 2], [6, 3]])
    with SimulatedGpu() as gpu:
        changed = network().to("cuda")
        MeanOfItems().apply(changed)
        tokens, moved_items, moved_links = (tensor.to("cuda") for tensor in (TOKENS, items, links))
        gpu.waits.clear()
        changed(want=frozenset({"hidden"}), tokens=tokens, items={"candidate": moved_items}, links={"candidate": moved_links})
        assert not gpu.waits


def test_the_token_table_is_frozen_and_the_rest_learns() -> None:
    changed = network()
    MeanOfItems().apply(changed)
    frozen = [name for name, parameter in changed.named_parameters() if not parameter.requires_grad]
    assert frozen == ["embeddings.tokens.weight"]


def test_without_the_change_the_network_is_as_it_was() -> None:
    changed = network()
    before = copy.copy(changed.takes)
    MeanOfItems().apply(changed)
    assert {"items/candidate", "links/candidate"} <= changed.takes
    MeanOfItems().plain(changed)
    assert changed.takes == before and changed.state_dict().keys() == network().state_dict().keys() and not len(changed.outside)


def test_applied_twice_it_is_applied_once_and_another_set_is_another_change() -> None:
    changed = network()
    for name in ("candidate", "candidate", "other"):
        MeanOfItems(name).apply(changed)
    assert [hook.set for hook in changed.outside] == ["candidate", "other"]
    MeanOfItems("other").plain(changed)
    assert [hook.set for hook in changed.outside] == ["candidate"]


def test_a_network_that_reads_no_vectors_is_refused() -> None:
    lstm = network_of("lstm", layers=1, width=8, vocab_size=20, clock=Clock())
    with pytest.raises(CheckpointError, match=r"mean_of_items: \w+ cannot read vectors in place of tokens. Use an encoder"):
        MeanOfItems().apply(lstm)
