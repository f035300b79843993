"""Rows for another vocabulary."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from cloze.changes import matched_rows, transfer_rows
from cloze.changes.change import Shape, Transition
from cloze.changes.vocabulary import Vocabulary
from cloze.networks import Clock
from tests.making import network_of

OLD = SimpleNamespace(size=6, spellings=("<pad>", "<unk>", "the", "cat", "[X]", ""), roles={"[PAD]": 0, "[UNK]": 1})
NEW = SimpleNamespace(
    size=7, spellings=("[PAD]", "[UNK]", "[BOS]", "cat", "mouse", "the", "<unk>"), roles={"[PAD]": 0, "[UNK]": 1, "[BOS]": 2}
)


def test_words_are_matched_by_spelling_and_roles_by_name() -> None:
    """`<unk>` is an ordinary word of the new vocabulary: it is not the old one's role of that spelling."""
    assert matched_rows(OLD, NEW).tolist() == [0, 1, -1, 3, -1, 2, -1]


def test_known_rows_are_kept_bit_for_bit_and_new_ones_are_the_mean() -> None:
    table = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    made = transfer_rows(OLD, NEW, table)
    assert made.shape == (7, 4)
    assert torch.equal(made[[0, 1, 3, 5]], table[[0, 1, 3, 2]])
    assert torch.allclose(made[[2, 4, 6]], table.mean(0).expand(3, 4), atol=1e-7)
    made += 1
    assert not torch.equal(made[3], table[3] + 0) and torch.equal(table[3], table[3].clone())


def test_random_rows_are_a_function_of_the_seed_and_differ() -> None:
    table = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    one, two, other = (transfer_rows(OLD, NEW, table, "random", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one[2], other[2]) and not torch.equal(one[2], one[4])
    assert torch.equal(one[5], table[2])


def test_an_offset_is_carried_over_too() -> None:
    offset = torch.arange(6.0)
    assert transfer_rows(OLD, NEW, offset).tolist() == [0.0, 1.0, 2.5, 3.0, 2.5, 2.0, 2.5]


def test_rows_that_are_no_words_stay_where_there_are_as_many_of_them() -> None:
    """Positions and the feed-forward of a network may have as many rows as both vocabularies have words."""
    old, new = (
        SimpleNamespace(size=12, spellings=tuple(f"{word}{n}" for n in range(12)), roles={}, hash=word) for word in "ab"
    )
    network = network_of(
        "transformer", layers=1, width=8, heads=2, max_length=12, vocab_size=12, clock=Clock(), **{"feed_forward.inner": 12}
    )
    state = network.state_dict()
    transition = Transition(Shape("main", "transformer", {}), network, network, {}, old, new)
    changed = Vocabulary().weights(state, transition)
    assert [name for name in state if not torch.equal(changed[name], state[name])] == ["embeddings.tokens.weight"]
