"""`tie_detached`: a table that is another network's, without a gradient to it, plus a difference of its own."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import VOCABULARY

from cloze.errors import RecipeError
from cloze.networks import Transformer
from cloze.networks.clock import Clock
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.training.tie import take_off_sums, tie_detached, with_sums

PATHS = [["generator.embeddings.tokens", "discriminator.embeddings.tokens"]]
TOKENS = torch.tensor([[5, 6, 7, 8]])


def networks(*, widths: tuple[int, int] = (8, 8)) -> dict[str, Transformer]:
    """Two small networks with weights of their own."""
    torch.manual_seed(0)
    return {
        name: Transformer(layers=1, width=width, heads=2, vocab_size=VOCABULARY, clock=Clock()).eval()
        for name, width in zip(("generator", "discriminator"), widths, strict=True)
    }


def test_the_second_table_begins_as_the_first_and_each_loss_moves_one_of_them() -> None:
    both = networks()
    tie_detached(both, PATHS)
    first, second = (both[name].embeddings.tokens for name in ("generator", "discriminator"))
    assert torch.equal(second.weight, first.weight)
    head = token_prediction(transform=None, width=8, vocab_size=VOCABULARY, table=second)
    hidden = both["discriminator"](want=frozenset({"hidden"}), tokens=TOKENS)["hidden"]
    scores = head.scores({"hidden": hidden}, {"positions/main": torch.arange(4)})
    scores.square().sum().backward()
    assert first.weight.grad is None and second._parameters["weight"].grad.abs().sum() > 0
    with torch.no_grad():
        first.weight[5] += 1.0
        second._parameters["weight"][6] -= 2.0
    assert torch.equal(second.weight[5], first.weight[5]) and torch.equal(second.weight[6], first.weight[6] - 2.0)


def test_folders_hold_the_sum_and_networks_from_folders_the_difference() -> None:
    both = networks()
    tie_detached(both, PATHS)
    with torch.no_grad():
        both["discriminator"].embeddings.tokens._parameters["weight"].normal_()
    state = {f"networks.{name}.{key}": tensor for name, network in both.items() for key, tensor in network.state_dict().items()}
    table = both["discriminator"].embeddings.tokens.weight.detach()
    folders = {name: with_sums(network.state_dict(), name, state, PATHS) for name, network in both.items()}
    assert torch.equal(folders["discriminator"]["embeddings.tokens.weight"], table)
    assert torch.equal(folders["generator"]["embeddings.tokens.weight"], both["generator"].embeddings.tokens.weight)
    again = copy.deepcopy(both)
    for name, network in again.items():
        network.load_state_dict(folders[name])
    take_off_sums(again, PATHS, ["discriminator", "generator"])
    torch.testing.assert_close(again["discriminator"].embeddings.tokens.weight, table)
    again["discriminator"].load_state_dict(folders["discriminator"])
    take_off_sums(again, PATHS, ["generator"])  # the discriminator's table is still to be told apart
    torch.testing.assert_close(again["discriminator"].embeddings.tokens._parameters["weight"].detach(), table)


def test_what_is_no_table_and_tables_of_unequal_shape_are_refused() -> None:
    with pytest.raises(RecipeError, match="generator.embeddings is not a table of vectors. Expected one, such as"):
        tie_detached(networks(), [["generator.embeddings", "discriminator.embeddings.tokens"]])
    with pytest.raises(RecipeError, match=r"the tables are \(40, 8\) and \(40, 16\)"):
        tie_detached(networks(widths=(8, 16)), PATHS)
    with pytest.raises(RecipeError, match="tie_detached: generator.embedings: no part"):
        tie_detached(networks(), [["generator.embedings", "discriminator.embeddings.tokens"]])
