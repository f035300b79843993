"""The continuous cache by hand, in pieces, and through scoring."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cloze.decoding.pointer_cache import Pointer, PointerCache
from cloze.decoding.reader import Reader
from cloze.decoding.scoring import method_of, score
from cloze.errors import UserError

STATES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
TOKENS = torch.tensor([7, 8, 7, 9])
OWN = torch.tensor([0.5, 0.25, 0.125, 0.5]).log()


def test_probabilities_are_those_counted_by_hand() -> None:
    found = PointerCache(Pointer(window=10, scale=2.0, share=0.2)).mix(OWN, STATES, TOKENS).exp()
    seven = math.exp(2.0) / (math.exp(2.0) + 1)  # token 7 was predicted from (1, 0), token 8 from (0, 1); now it is (1, 0)
    expected = [0.5, 0.8 * 0.25, 0.8 * 0.125 + 0.2 * seven, 0.8 * 0.5]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.double))


def test_only_the_window_is_remembered() -> None:
    found = PointerCache(Pointer(window=1, share=0.2)).mix(OWN, STATES, TOKENS).exp()
    torch.testing.assert_close(found, torch.tensor([0.5, 0.2, 0.1, 0.4], dtype=torch.double))
    near = PointerCache(Pointer(window=1, share=0.2)).mix(OWN[:2], STATES[:2], torch.tensor([7, 7])).exp()
    torch.testing.assert_close(near, torch.tensor([0.5, 0.8 * 0.25 + 0.2], dtype=torch.double))


@pytest.mark.parametrize("window", [1, 3, 100])
def test_pieces_give_what_the_whole_gives(window: int) -> None:
    generator = torch.Generator().manual_seed(0)
    states, tokens = torch.randn(600, 4, generator=generator), torch.randint(0, 5, (600,), generator=generator)
    own = torch.rand(600, generator=generator).log()
    whole = PointerCache(Pointer(window=window)).mix(own, states, tokens)
    cache = PointerCache(Pointer(window=window))
    parts = [cache.mix(own[a:b], states[a:b], tokens[a:b]) for a, b in ((0, 1), (1, 1), (1, 400), (400, 600))]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_probabilities_over_the_vocabulary_sum_to_one() -> None:
    generator = torch.Generator().manual_seed(0)
    before, states = torch.randint(0, 5, (20,), generator=generator), torch.randn(21, 4, generator=generator)
    own, total = torch.randn(5, generator=generator).log_softmax(0), 0.0
    for token in range(5):
        cache = PointerCache(Pointer(share=0.3))
        cache.mix(torch.zeros(20), states[:20], before)
        total += float(cache.mix(own[token : token + 1], states[20:], torch.tensor([token])).exp())
    assert total == pytest.approx(1.0)


def test_scores_of_texts_remember_the_texts_before(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("gpt2")
    loaded.network.eval()
    method, head = method_of(loaded)
    reader, text = Reader.of(loaded), "the cat sat on the mat"
    plain = score(reader, head, [text, text], method=method)
    mixed = score(reader, head, [text, text], method=method, pointer=Pointer(share=0.3))
    nothing = score(reader, head, [text, text], method=method, pointer=Pointer(share=0.0))
    assert [one.score for one in nothing] == pytest.approx([one.score for one in plain])
    assert mixed[1].score > mixed[0].score and mixed[1].tokens == plain[1].tokens


def test_a_network_that_reads_both_ways_has_no_pointer(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    method, head = method_of(loaded)
    with pytest.raises(UserError, match="left to right"):
        score(Reader.of(loaded), head, ["a"], method=method, pointer=Pointer())
    with pytest.raises(UserError, match="window"):
        Pointer(window=0)
