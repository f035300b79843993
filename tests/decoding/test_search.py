"""Beam search, limits and the writers behind them; parity with transformers is in tests/parity."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits, beam_search, sample
from cloze.decoding.reader import Reader, prediction_head
from cloze.errors import CheckpointError, UserError
from cloze.networks import Clock
from cloze.networks.network import TokenSequence
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.reading import Reading
from tests.making import network_of

Make = Callable[..., Any]
END = 0


class Chain:
    """A writer whose scores depend on the last token alone."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def scores(self, tokens: Tensor) -> Tensor:
        return self.table[tokens[:, -1]]

    def select(self, rows: Tensor) -> None:
        """Nothing is remembered."""

    reorder = select


def best_of_all(table: Tensor, start: int, new: int, penalty: float) -> tuple[float, tuple[int, ...]]:
    """The best ended sequence of up to `new` tokens by trying every one."""
    logs, found = table.log_softmax(-1), []
    for length in range(1, new + 1):
        for ids in product(range(1, len(table)), repeat=length):
            for whole in ({ids[:-1] + (END,), ids} if length == new else {ids[:-1] + (END,)}):
                total = sum(float(logs[a, b]) for a, b in zip((start, *whole), whole, strict=False))
                found.append((total / len(whole) ** penalty, tuple(i for i in whole if i != END)))
    return max(found)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_with_enough_beams_the_best_of_all_sequences_is_found(seed: int, penalty: float) -> None:
    table = 2 * torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
    score, ids = best_of_all(table, 2, 4, penalty)
    (made,) = beam_search(
        Chain(table), torch.tensor([[2]]), new=4, end=END, beams=Beams(64, penalty, early="never"), limits=Limits()
    )
    assert made.ids == ids
    assert made.score == pytest.approx(score, abs=1e-5)


def test_no_ngram_comes_twice_and_the_end_not_too_soon() -> None:
    table = torch.tensor([[0.0, 0, 0, 0], [5.0, 0, 9, 0], [5.0, 9, 0, 0], [5.0, 0, 0, 0]])
    for beams in (1, 3):
        (made,) = beam_search(
            Chain(table), torch.tensor([[1]]), new=8, end=END, beams=Beams(beams), limits=Limits(min_tokens=5, no_repeat=2)
        )
        whole = (1, *made.ids)
        pairs = list(zip(whole, whole[1:], strict=False))
        assert len(set(pairs)) == len(pairs) and len(made.ids) >= 5


def test_a_limit_of_one_bans_every_token_that_was_used() -> None:
    scores = Limits(no_repeat=1).apply(torch.zeros(2, 4), torch.tensor([[1, 2], [3, 3]]), start=0, end=END)
    assert torch.isinf(scores).tolist() == [[False, True, True, False], [False, False, False, True]]


def test_a_row_that_has_ended_stays_as_it_is() -> None:
    table = torch.tensor([[0.0, 9, 0], [9.0, 0, 0], [0.0, 0, 9]])
    made = sample(
        Chain(table), torch.tensor([[1], [2]]), new=3, end=END, sampling=Sampling(temperature=0),
        uniform=torch.zeros(2, 3), limits=Limits(),
    )  # fmt: skip
    assert [(one.ids, one.ended) for one in made] == [((), True), ((2, 2, 2), False)]


@pytest.fixture(scope="module")
def answering(checkpoint: Make) -> Any:
    """A random encoder-decoder over RoBERTa's vocabulary, and its head."""
    pieces = checkpoint("roberta").tokenizer
    torch.manual_seed(0)
    clock = Clock()
    network = network_of("encoder_decoder", layers=2, width=16, heads=2, vocab_size=pieces.size, clock=clock,
        **{"positions.max_length": 48, "initial.std": 0.4})
    head = token_prediction(tie=True, bias=False, width=16, vocab_size=pieces.size, table=network.token_tables["tokens"])
    reading = Reading(single="[CLS] {A} [SEP]", pair=None, summary="last", start="[SEP]")
    return Reader(network.eval(), pieces, reading), head.eval()


TEXTS = ["The cat sleeps on the mat.", "A dog", "", "Rain fell on the garden all night."]


@pytest.mark.parametrize("more", [{}, {"beams": Beams(3)}, {"limits": Limits(4, 2)}])
def test_an_answer_does_not_depend_on_its_batch(answering: Any, more: dict[str, Any]) -> None:
    reader, head = answering
    together = generate(reader, head, TEXTS, tokens=8, seed=2, **more)
    alone = generate(reader, head, TEXTS, tokens=8, seed=2, rows=1, **more)
    assert [(one.ids, one.text, one.stopped) for one in together] == [(one.ids, one.text, one.stopped) for one in alone]
    assert [one.prompt for one in together] == TEXTS


def test_greedy_answers_are_the_argmax_of_full_passes(answering: Any) -> None:
    reader, head = answering
    (made,) = generate(reader, head, ["The cat"], tokens=6, sampling=Sampling(temperature=0))
    source = torch.from_numpy(reader.encode(["The cat"])[0].ids).long()[None]
    ids = [reader.tokenizer.role("[SEP]")]
    for token in made.ids:
        with torch.inference_mode():
            state = reader.network(
                want=frozenset({"decoder_hidden"}), tokens=source, decoder=TokenSequence(torch.tensor([ids]))
            )["decoder_hidden"]  # fmt: skip
            assert int(head.head(state[:, -1]).argmax()) == token
        ids.append(token)


def test_beams_never_find_less_than_greedy(answering: Any) -> None:
    reader, head = answering
    one = generate(reader, head, TEXTS, tokens=6, beams=Beams(1, 0.0))
    many = generate(reader, head, TEXTS, tokens=6, beams=Beams(8, 0.0))
    for greedy, searched in zip(one, many, strict=True):
        assert greedy.score is not None and searched.score is not None
        assert searched.score >= greedy.score - 1e-5


def test_a_decoder_without_a_start_is_an_error(answering: Any) -> None:
    reader, head = answering
    reading = Reading(single="{A}", pair=None, summary="last", start="[EOD]")
    with pytest.raises(CheckpointError, match=r"starts with \[EOD\]"):
        generate(Reader(reader.network, reader.tokenizer, reading), head, ["x"])


def test_prompts_of_several_lengths_are_continued_by_beams(checkpoint: Make) -> None:
    loaded = checkpoint("gpt2", **{"positions.max_length": 24})
    reader, head = Reader.of(loaded), prediction_head(loaded, verb="generate")
    prompts = ["The cat", "Rain fell", "", "A dog barks; the cat wakes and runs"]
    together = generate(reader, head, prompts, tokens=30, beams=Beams(2), limits=Limits(no_repeat=3))
    alone = [generate(reader, head, [prompt], tokens=30, beams=Beams(2), limits=Limits(no_repeat=3))[0] for prompt in prompts]
    assert [one.ids for one in together] == [one.ids for one in alone]
    special = set(reader.tokenizer.special_ids.tolist())
    assert all(special.isdisjoint(one.ids) for one in together)
    assert {one.stopped for one in together} <= {"end", "max_length"}


def test_settings_that_make_no_sense_are_refused() -> None:
    for count in (0, 1_001):
        with pytest.raises(UserError, match=f"beams {count}: expected 1 to 1,000"):
            Beams(count)
    with pytest.raises(UserError, match="min-tokens -1"):
        Limits(min_tokens=-1)


def test_an_exported_sequence_model_answers_on_the_command_line(
    answering: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.cli.main import main
    from cloze.interop import Card, PortableHead, PortableModel, export_folder

    reader, head = answering
    arguments = {"layers": 2, "width": 16, "heads": 2, "positions": {"learned": {"max_length": 48}},
        "norm": {"post": {"epsilon": 1e-5}}}
    heads = {"lm": PortableHead("token_prediction", {"tie": True, "bias": False}, head.state_dict())}
    model = PortableModel(arguments, "open", reader.network.state_dict(), heads, "encoder_decoder")
    assert export_folder(
        tmp_path, model=model, tokenizer=reader.tokenizer, reading=reader.reading, card=Card("test"), architecture="bart"
    ) == []  # fmt: skip
    options = ["--tokens", "6", "--beams", "3", "--length-penalty", "2", "--no-repeat", "2", "--min-tokens", "1"]
    assert main(["generate", str(tmp_path), "The cat", *options]) == 0
    (expected,) = generate(reader, head, ["The cat"], tokens=6, beams=Beams(3, 2.0), limits=Limits(1, 2))
    assert capsys.readouterr().out == expected.text + "\n"


def test_verbs_that_predict_tokens_of_the_text_itself_refuse_an_encoder_decoder(answering: Any) -> None:
    from cloze.decoding.scores.scoring import method_of

    reader, head = answering
    loaded: Any = SimpleNamespace(
        network=reader.network, heads={"lm": head}, reads={}, order="open", folder=Path("run"), precision=None
    )
    for refused in (lambda: prediction_head(loaded, verb="fill"), lambda: method_of(loaded)):
        with pytest.raises(UserError, match="cloze generate run TEXT"):
            refused()
    assert prediction_head(loaded, verb="generate") is head
