"""The continuous cache by hand, in pieces, and through scoring."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cloze.decoding.reader import Reader
from cloze.decoding.scores.pointer_cache import Pointer, PointerCache
from cloze.decoding.scores.scoring import method_of, score
from cloze.decoding.scores.stream_scoring import Recall, score_stream
from cloze.errors import UserError
from cloze.networks import LSTM, Clock
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.reading import Reading

STATES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
TOKENS = torch.tensor([7, 8, 7, 9])
OWN = torch.tensor([0.5, 0.25, 0.125, 0.5]).log()


def test_probabilities_are_those_counted_by_hand_and_the_networks_until_the_window_is_full() -> None:
    found = PointerCache(Pointer(window=2, scale=2.0, share=0.2)).mix(OWN, STATES, TOKENS).exp()
    seven = math.exp(2.0) / (math.exp(2.0) + 1)  # token 7 was predicted from (1, 0), token 8 from (0, 1); now it is (1, 0)
    expected = [0.5, 0.25, 0.8 * 0.125 + 0.2 * seven, 0.8 * 0.5]
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
        cache = PointerCache(Pointer(window=20, share=0.3))
        cache.mix(torch.zeros(20), states[:20], before)
        total += float(cache.mix(own[token : token + 1], states[20:], torch.tensor([token])).exp())
    assert total == pytest.approx(1.0)


def test_scores_of_texts_remember_the_texts_before(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("gpt2")
    loaded.network.eval()
    method, head = method_of(loaded)
    reader, text = Reader.of(loaded), "the cat sat on the mat"
    plain = score(reader, head, [text, text], method=method)
    size = plain[0].tokens
    mixed = score(reader, head, [text, text], method=method, pointer=Pointer(window=size, share=0.3))
    nothing = score(reader, head, [text, text], method=method, pointer=Pointer(window=size, share=0.0))
    assert [one.score for one in nothing] == pytest.approx([one.score for one in plain])
    assert mixed[0].score == pytest.approx(plain[0].score) and mixed[1].score > mixed[0].score
    assert [one.tokens for one in mixed] == [one.tokens for one in plain]
    with pytest.raises(UserError, match=r"--pointer 500: nothing is mixed before .* texts have \d+\.\n  Give a smaller number"):
        score(reader, head, [text, text], method=method, pointer=Pointer())


def test_a_text_longer_than_the_network_fills_the_cache_with_each_of_its_tokens_once(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("gpt2", **{"positions.max_length": 12})
    method, head = method_of(loaded)
    reader, text = Reader.of(loaded), "the cat sat on the mat and the dog barks in the garden all night"
    (plain,) = score(reader, head, [text], method=method)
    (mixed,) = score(reader, head, [text], method=method, pointer=Pointer(window=5, share=0.0))
    assert plain.tokens > 12 and (mixed.score, mixed.tokens) == (pytest.approx(plain.score), plain.tokens)


def by_pointer_py(reader: Reader, head: Any, ids: list[int], window: int, scale: float, share: float) -> list[float]:
    """log p of every token but the first, as by a loop over the vocabulary; the state is carried through all of it."""
    with torch.inference_mode():
        hidden = reader.network(want=frozenset({"hidden"}), tokens=torch.tensor([ids[:-1]]))["hidden"][0]
        probability = head.head(hidden).softmax(-1)
    found = []
    for place, token in enumerate(ids[1:]):
        p = probability[place]
        if place >= window:
            attention = torch.softmax(scale * (hidden[place - window : place] @ hidden[place]), 0)
            copied = torch.zeros_like(p).index_add(0, torch.tensor(ids[place - window + 1 : place + 1]), attention)
            p = share * copied + (1 - share) * p
        found.append(math.log(float(p[token])))
    return found


def test_an_lstm_carries_its_state_through_texts_and_a_pointer_mixes_as_the_authors_do(checkpoint: Callable[..., Any]) -> None:
    pieces = checkpoint("gpt2").tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = LSTM(layers=2, width=12, inner=16, reuse=1, bound=0.5, vocab_size=pieces.size, clock=Clock()).eval()
        head = token_prediction(tie=True, width=12, vocab_size=pieces.size, table=network.token_tables["tokens"]).eval()
    reader = Reader(network, pieces, Reading(single="[EOS] {A}", pair=None, summary="last"), "left_to_right")
    texts, end = ["the cat sleeps", "a dog barks; the cat wakes", "rain"], pieces.role("[EOS]")
    ids = [token for text in texts for token in (end, *pieces.encode(text).ids.tolist())]
    for window, ends in ((6, False), (6, True), (100, True)):
        row = [*ids, end] if ends else ids
        if window == 100:  # never full: only what is carried
            pointer, each = None, by_pointer_py(reader, head, row, 100, 1.0, 0.0)
        else:
            pointer, each = Pointer(window, 0.7, 0.25), by_pointer_py(reader, head, row, window, 0.7, 0.25)
        bounds = [0, *(n + (1 if ends else 0) for n, token in enumerate(row[1:]) if token == end), len(row)]
        expected = [
            sum(value for value, token in zip(each[a:b], row[a + 1 : b + 1], strict=False) if ends or token != end)
            for a, b in zip(bounds, bounds[1:], strict=False)
        ]
        for segment in (3, 128):
            found = score_stream(
                reader, head, texts, method="log_probability", recall=Recall(segment=segment), pointer=pointer, ends=ends
            )
            assert [one.score for one in found] == pytest.approx(expected[:3], abs=1e-4)
            assert [one.tokens for one in found] == [len(pieces.encode(text).ids) + ends for text in texts]
    forgetting = score_stream(reader, head, texts, method="log_probability", recall=Recall(0, segment=3))
    fresh = [by_pointer_py(reader, head, row, 100, 1.0, 0.0) for row in (ids[n : n + 4] for n in range(0, len(ids) - 1, 3))]
    total = sum(value for value, token in zip((v for row in fresh for v in row), ids[1:], strict=True) if token != end)
    assert sum(one.score for one in forgetting) == pytest.approx(total, abs=1e-4)
    assert network.reuse == 1


def test_a_network_that_reads_both_ways_has_no_pointer(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    method, head = method_of(loaded)
    with pytest.raises(UserError, match="left to right"):
        score(Reader.of(loaded), head, ["a"], method=method, pointer=Pointer())
    with pytest.raises(UserError, match="window"):
        Pointer(window=0)
