"""Memory at use: texts read as one stream, with more of it remembered than in training."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp
from typing import Any

import pytest
import torch

from cloze.decoding.reader import Reader
from cloze.decoding.scores.scoring import Score, score
from cloze.decoding.scores.stream_scoring import Recall, score_stream
from cloze.errors import UserError
from cloze.networks import Clock
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.reading import Reading
from tests.making import network_of

Make = Callable[..., Any]
READING = Reading(single="{A}", pair=None, summary="last")
SEGMENT = 8


def texts(count: int, seed: int) -> list[str]:
    """A letter, ten times x, the same letter."""
    chance = random.Random(seed)
    return [f"{name}{'x' * 10}{name}" for name in chance.choices("abcd", k=count)]


def perplexity(scores: list[Score]) -> float:
    return exp(-sum(one.score for one in scores) / sum(one.tokens for one in scores))


@pytest.fixture(scope="module")
def trained(checkpoint: Make) -> tuple[Reader, Any]:
    """A Transformer-XL that remembered 8 tokens in training: at two positions of eight it could not see the first letter."""
    pieces = checkpoint("gpt2").tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = network_of("transformer_xl", layers=1, width=32, heads=2, dropout=0.0, vocab_size=pieces.size, clock=Clock(),
            **{"memory.size": SEGMENT})
        head = token_prediction(tie=True, width=32, vocab_size=pieces.size, table=network.token_tables["tokens"])
    parameters = list({id(p): p for module in (network, head) for p in module.parameters()}.values())
    optimizer = torch.optim.Adam(parameters, lr=5e-3)
    end = pieces.role("[EOS]")
    rows = [[token for text in texts(100, seed) for token in (end, *pieces.encode(text).ids)] for seed in range(16)]
    lanes = torch.tensor(rows)[:, :1200]
    carry = None
    for start in range(0, 1200 - SEGMENT - 1, SEGMENT):
        read, right = lanes[:, start : start + SEGMENT], lanes[:, start + 1 : start + SEGMENT + 1]
        states = network(want=frozenset({"hidden", "carry"}), tokens=read, carry=carry)
        carry = states["carry"]
        loss = torch.nn.functional.cross_entropy(head.head(states["hidden"]).flatten(0, 1), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Reader(network.eval(), pieces, READING, "left_to_right"), head.eval()


def stream(trained: tuple[Reader, Any], given: list[str], *recall: Any, **more: Any) -> list[Score]:
    reader, head = trained
    return score_stream(reader, head, given, method="log_probability", recall=Recall(*recall, **more))


def test_perplexity_falls_with_a_memory_longer_than_in_training(trained: tuple[Reader, Any]) -> None:
    none, trained_with, longer, longest = (
        perplexity(stream(trained, texts(60, 99), memory, segment=SEGMENT)) for memory in (0, SEGMENT, 12, 16)
    )
    assert none > 2 * trained_with and trained_with > 1.01 * longer
    assert longest == pytest.approx(longer, rel=1e-3)


def test_with_all_remembered_segments_are_one_long_pass(trained: tuple[Reader, Any]) -> None:
    reader, head = trained
    given, end = texts(5, 3), reader.tokenizer.role("[EOS]")
    ids = torch.tensor([[token for text in given for token in (end, *reader.tokenizer.encode(text).ids)]])
    with torch.inference_mode():
        hidden = reader.network(want=frozenset({"hidden"}), tokens=ids)["hidden"][0, :-1]
        whole = head.head(hidden).log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    each = whole.masked_fill(ids[0, 1:] == end, 0.0).split([12, 13, 13, 13, 13])
    for size in (3, 8, 200):
        found = stream(trained, given, 100, segment=size)
        assert [one.score for one in found] == pytest.approx([float(some.sum()) for some in each], abs=1e-3)
        assert [one.tokens for one in found] == [12] * 5


def test_the_clamp_makes_far_keys_equally_far(trained: tuple[Reader, Any]) -> None:
    given = texts(8, 5)
    free, clamped, wide = (stream(trained, given, 64, clamp, segment=8) for clamp in (None, 6, 100))
    assert free == wide and free != clamped
    near = stream(trained, given, 12, None, True, 8)
    assert near != stream(trained, given, 12, segment=8)


def test_the_network_is_afterwards_what_it_was(trained: tuple[Reader, Any]) -> None:
    network = trained[0].network
    before = (network.memory, network.reuse, network.clamp, network.same_length, network.carries)
    stream(trained, texts(2, 1), 0)
    stream(trained, texts(2, 1), 30, 10, True)
    assert (network.memory, network.reuse, network.clamp, network.same_length, network.carries) == before


def test_a_stream_of_no_texts_has_no_scores(trained: tuple[Reader, Any]) -> None:
    assert stream(trained, [], 4) == []


def test_progress_counts_every_text_once(trained: tuple[Reader, Any]) -> None:
    done: list[int] = []
    reader, head = trained
    score_stream(reader, head, texts(9, 1), method="log_probability", recall=Recall(4, segment=5), report=done.append)
    assert sum(done) == 9


@pytest.fixture(scope="module")
def two_stream(checkpoint: Make) -> tuple[Reader, Any]:
    pieces = checkpoint("bert").tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of("two_stream", layers=2, width=16, heads=2, dropout=0.0, init_std=0.3, vocab_size=pieces.size,
            clock=Clock(), **{"memory.size": 4, "memory.reuse": 2})
        head = token_prediction(tie=True, width=16, vocab_size=pieces.size, table=network.token_tables["tokens"])
    head.reads = ("query",)
    return Reader(network.eval(), pieces, Reading(single="{A} [SEP]", pair=None, summary="last")), head.eval()


SENTENCES = ["the cat sleeps", "", "a dog barks", "rain"]


def test_a_query_remembers_the_texts_before_and_nothing_else(two_stream: tuple[Reader, Any]) -> None:
    reader, head = two_stream
    kind: Any = {"method": "pseudo_log_likelihood"}
    alone = score(reader, head, SENTENCES, **kind)
    without = score_stream(reader, head, SENTENCES, recall=Recall(0), **kind)
    assert [one.score for one in without] == pytest.approx([one.score for one in alone], abs=1e-4)
    assert [one.tokens for one in without] == [one.tokens for one in alone]
    found = score_stream(reader, head, SENTENCES, recall=Recall(50), rows=2, **kind)
    assert found[0].score == pytest.approx(alone[0].score, abs=1e-4)
    assert abs(found[2].score - alone[2].score) > 1e-3
    ids = torch.from_numpy(reader.ids([SENTENCES[0]])[0]).long()[None]
    reader.network.memory, reader.network.reuse, before = 50, 0, (reader.network.memory, reader.network.reuse)
    carry = reader.network(want=frozenset({"carry"}), tokens=ids)["carry"]
    reader.network.memory, reader.network.reuse = before
    row = reader.single_layout(reader.ids([SENTENCES[2]]))
    total = 0.0
    for place in range(len(row) - 1):
        tokens = torch.from_numpy(row.ids).long()[None].clone()
        last = torch.zeros_like(tokens)
        last[0, place], tokens[0, place] = 1, reader.tokenizer.role("[MASK]")
        with torch.inference_mode():
            query = reader.network(want=frozenset({"query"}), tokens=tokens, order=last, carry=carry)["query"][0, place]
            total += float(head.head(query[None])[0].log_softmax(-1)[row.ids[place]])
    assert found[2].score == pytest.approx(total, abs=1e-4)


def test_networks_without_such_a_memory_and_sizes_that_mean_nothing_are_refused(
    checkpoint: Make, two_stream: tuple[Reader, Any]
) -> None:
    loaded = checkpoint("gpt2")
    with pytest.raises(UserError, match=r"--memory is for networks that remember .* \(Transformer\) does not; leave"):
        score_stream(Reader.of(loaded), loaded.heads["lm"], ["a"], method="log_probability", recall=Recall(4))
    reader, head = two_stream
    with pytest.raises(UserError, match=r"--same-length: this network \(TwoStream\) has no such setting"):
        score_stream(reader, head, ["a"], method="pseudo_log_likelihood", recall=Recall(4, same_length=True))
    for given in ((-1,), (4, 0), (4, None, False, 0)):
        with pytest.raises(UserError, match="expected numbers of tokens"):
            Recall(*given)
    with pytest.raises(UserError, match="give --memory a number above 0"):
        Recall(0, same_length=True)
