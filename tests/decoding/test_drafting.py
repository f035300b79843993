"""A draft changes no token at temperature 0 and no probability otherwise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.decoding.generating import drafting
from cloze.decoding.generating.drafting import Draft, RandomNumbers, assisted
from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits, sample
from cloze.decoding.reader import Reader, prediction_head
from cloze.errors import UserError
from cloze.networks import LSTM, Clock, TransformerXL
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.reading import Reading
from tests.making import network_of

Make = Callable[..., Any]
PROMPTS = ["The cat", "Rain fell on the garden all night", "A dog"]
END = 0


class Chain:
    """A checker whose scores depend on the last two tokens, and which knows what it has read."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.read = table, 0

    def scores(self, tokens: Tensor) -> Tensor:
        return self.following(tokens, 1)[:, 0]

    def following(self, tokens: Tensor, count: int) -> Tensor:
        assert self.read <= tokens.shape[1] - count, "a token is read twice"
        self.read = tokens.shape[1]
        return self.table[tokens[:, -count - 1 : -1], tokens[:, -count:]]

    def forget(self, length: int) -> None:
        self.read = min(self.read, length)

    def select(self, rows: Tensor) -> None:
        """Nothing is remembered."""

    reorder = select


def tables() -> tuple[Tensor, Tensor]:
    """Scores of the third token after two of four: of what writes, and of a draft that is somewhat like it."""
    draw = torch.Generator().manual_seed(0)
    own = 1.5 * torch.randn(4, 4, 4, generator=draw)
    return own, own + torch.randn(4, 4, 4, generator=draw)


def exact(table: Tensor, sampling: Sampling, limits: Limits, start: tuple[int, int], new: int) -> dict[tuple[int, ...], float]:
    """The probability of every text of up to `new` tokens, by multiplying those of its tokens."""
    found: dict[tuple[int, ...], float] = {}
    open_texts: dict[tuple[int, ...], float] = {(): 1.0}
    for number in range(new):
        going: dict[tuple[int, ...], float] = {}
        for text, share in open_texts.items():
            row = torch.tensor([[*start, *text]])
            scores = limits.apply(table[row[:, -2], row[:, -1]], row, start=2, end=END)
            for each, token in zip(*(part[0].tolist() for part in sampling.kept(scores)), strict=True):
                ended = token == END or number + 1 == new
                if each > 0:
                    (found if ended else going)[text if token == END else (*text, token)] = share * each
        open_texts = going
    return found


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.7, top_k=3), Sampling(top_p=0.8), Sampling(typical_p=0.6)],
    ids=["plain", "top-k", "top-p", "typical-p"],
)
def test_a_token_has_its_own_probability_whatever_was_proposed(sampling: Sampling) -> None:
    """Sums over all proposals and over even steps of the random numbers, which are the integrals up to one step."""
    draw, steps = torch.Generator().manual_seed(0), 200
    own, other = (1.5 * torch.randn(1, 5, generator=draw) for _ in range(2))
    expected, shares = (drafting._shares(sampling, scores) for scores in (own, other))
    grid = (torch.arange(steps, dtype=torch.double) + 0.5) / steps
    found = torch.zeros(5, dtype=torch.double)
    for asked in shares.nonzero()[:, 0].tolist():
        kept = [drafting._judged(own, asked, shares, sampling, number, grid[0]) == asked for number in grid]
        found[asked] += shares[asked] * sum(kept) / steps
        if not all(kept):
            drawn = [drafting._judged(own, asked, shares, sampling, grid[-1], number) for number in grid]
            assert shares[asked] > expected[asked] and asked not in drawn
            found += shares[asked] * (1 - sum(kept) / steps) * torch.bincount(torch.tensor(drawn), minlength=5) / steps
    assert (found - expected).abs().max() < 2 / steps < (shares - expected).abs().max() / 10


def chi_squared(texts: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    return sum((texts.count(text) - len(texts) * share) ** 2 / (len(texts) * share) for text, share in expected.items())


def test_drawn_texts_have_the_distribution_of_the_network_that_writes_and_not_that_of_the_draft() -> None:
    own, other = tables()
    limits, sampling, rows = Limits(min_tokens=1), Sampling(0.8, top_k=3), 500
    expected = exact(own, sampling, limits, (1, 2), 3)
    draft = Draft(SimpleNamespace(tokenizer=SimpleNamespace(size=4), max_length=None), None, 2)  # type: ignore[arg-type]
    numbers = torch.rand(rows, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    texts = [
        assisted(
            Chain(own), Chain(other), torch.tensor([[1, 2]]), draft=draft, new=3, end=END, sampling=sampling,
            numbers=RandomNumbers(*row), limits=limits,
        ).ids
        for row in numbers
    ]
    freedom = len(expected) - 1
    assert freedom >= 8 and set(texts) <= expected.keys()
    assert chi_squared(texts, expected) < freedom + 4 * (2 * freedom) ** 0.5
    assert 0.3 * draft.proposed < draft.accepted < 0.95 * draft.proposed
    plain = sample(
        Chain(other), torch.tensor([[1, 2]]).expand(rows, -1), new=3, end=END, sampling=sampling, uniform=numbers[:, 0],
        limits=limits,
    )
    theirs = [one.ids for one in plain]
    assert chi_squared(theirs, expected) > 10 * freedom


def shaken(module: Any, seed: int, scale: float) -> Any:
    with torch.no_grad():
        draw = torch.Generator().manual_seed(seed)
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=draw))
    return module.eval()


@pytest.fixture(scope="module")
def gpt2(checkpoint: Make) -> tuple[Any, Any]:
    loaded = checkpoint("gpt2", **{"positions.max_length": 32})
    return Reader.of(loaded), prediction_head(loaded, verb="generate")


def transformer_xl(pieces: Any) -> tuple[Reader, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TransformerXL(layers=2, width=12, heads=2, vocab_size=pieces.size, clock=Clock(), init_std=0.4).eval()
        head = token_prediction(tie=True, width=12, vocab_size=pieces.size, table=network.token_tables["tokens"]).eval()
    return Reader(network, pieces, Reading(single="{A}", pair=None, summary="last"), "left_to_right"), head


def answering(pieces: Any, **changes: Any) -> tuple[Reader, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of(
            "encoder_decoder", layers=2, width=16, heads=2, vocab_size=pieces.size, clock=Clock(),
            **{"positions.max_length": 48, "initial.std": 0.4, **changes},
        ).eval()
        table = network.token_tables["tokens"]
        head = token_prediction(tie=True, bias=False, width=16, vocab_size=pieces.size, table=table).eval()
    return Reader(network, pieces, Reading("[CLS] {A} [SEP]", None, "last", start="[SEP]"), "open"), head


def like(pair: tuple[Reader, Any], scale: float) -> Draft:
    """A draft whose weights differ somewhat, so that some of its tokens are right."""
    network, head = deepcopy((pair[0].network, pair[1]))
    return Draft(replace(pair[0], network=shaken(network, 1, scale)), head.eval(), 3)


@pytest.mark.parametrize("kind", ["gpt2", "transformer_xl", "encoder_decoder"])
@pytest.mark.parametrize("limits", [None, Limits(min_tokens=4, no_repeat=2, repetition_penalty=1.2)])
def test_at_temperature_0_the_texts_are_those_without_a_draft(gpt2: Any, checkpoint: Make, kind: str, limits: Any) -> None:
    pieces = gpt2[0].tokenizer
    makers = {
        "gpt2": lambda: gpt2, "transformer_xl": lambda: transformer_xl(pieces),
        "encoder_decoder": lambda: answering(checkpoint("roberta").tokenizer),
    }
    reader, head = makers[kind]()
    given: dict[str, Any] = {"tokens": 10, "sampling": Sampling(temperature=0), "limits": limits}
    draft = like((reader, head), 0.03)
    plain, made = generate(reader, head, PROMPTS, **given), generate(reader, head, PROMPTS, draft=draft, **given)
    assert made == plain and any(len(one.ids) > 4 for one in made)
    assert 0 < draft.accepted < draft.proposed


def test_networks_of_different_kinds_draft_for_each_other(gpt2: Any) -> None:
    other = transformer_xl(gpt2[0].tokenizer)
    given: dict[str, Any] = {"tokens": 7, "sampling": Sampling(temperature=0)}
    for (reader, head), (own, own_head) in ((gpt2, other), (other, gpt2)):
        assert generate(reader, head, PROMPTS, draft=Draft(own, own_head, 4), **given) == generate(reader, head, PROMPTS, **given)


def test_a_draft_that_is_the_network_itself_is_always_right_and_a_full_one_proposes_nothing(gpt2: Any, checkpoint: Make) -> None:
    reader, head = gpt2
    sure, told = Draft(reader, head, 4), list[int]()
    (made,) = generate(reader, head, ["The cat"], tokens=11, draft=sure, on_tokens=told.extend, seed=4)
    assert sure.accepted == sure.proposed > 0 and tuple(told)[: len(made.ids)] == made.ids
    loaded = checkpoint("gpt2", **{"positions.max_length": 8})
    short = Draft(Reader.of(loaded), prediction_head(loaded, verb="generate"), 4)
    greedy = Sampling(temperature=0)
    assert generate(reader, head, PROMPTS, tokens=9, draft=short, sampling=greedy) == generate(
        reader, head, PROMPTS, tokens=9, sampling=greedy
    )
    starts = [len(reader.tokenizer.encode(prompt).ids) for prompt in PROMPTS]
    each = [min(4, 8 - made, max(0, 9 - start - made)) for start in starts for made in range(9)]  # it reads 8, all are wrong
    assert short.accepted == 0 and short.proposed == sum(each) > 0


def test_what_cannot_have_a_draft_or_be_one_is_refused(gpt2: Any, checkpoint: Make) -> None:
    reader, head = gpt2
    pieces = reader.tokenizer
    lstm = LSTM(layers=1, width=12, inner=16, bound=0.5, vocab_size=pieces.size, clock=Clock()).eval()
    lstm_head = token_prediction(tie=True, width=12, vocab_size=pieces.size, table=lstm.token_tables["tokens"])
    recurrent = Reader(lstm, pieces, reader.reading, "left_to_right")
    roberta = answering(checkpoint("roberta").tokenizer)
    decoder = Draft(replace(roberta[0], tokenizer=pieces, reading=Reading("{A} [EOS]", None, "last")), roberta[1])
    for own, own_head, draft, told in (
        (reader, head, Draft(recurrent, lstm_head), r"the draft \(LSTM\) reads token after token"),
        (recurrent, lstm_head, Draft(reader, head), r"the network that writes \(LSTM\)"),
        (reader, head, decoder, "continues texts, its draft answers by a decoder"),
        (reader, head, Draft(*roberta), "its vocabulary of 320 tokens is not that"),
    ):
        with pytest.raises(UserError, match=told):
            generate(own, own_head, ["a"], draft=draft)
    with pytest.raises(UserError, match="a beam search writes several"):
        generate(reader, head, ["a"], draft=Draft(reader, head), beams=Beams(2))
    with pytest.raises(UserError, match="--draft-tokens 0"):
        Draft(reader, head, 0)
