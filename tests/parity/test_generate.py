"""Every option of `generate` on GPT-2, T5 and BART: with the same random numbers transformers writes the same tokens.

transformers draws by `torch.multinomial`, which the tests replace by a draw from given numbers; what it draws from, and in which
order, stays transformers'. Its group beam search has left the library, so beams in groups are compared with a search over lists
that reads transformers' network. Beams that are not drawn, penalties, banned words and first tokens are in `test_beam_search.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.bound_head import BoundHead
from cloze.decoding.generating.drafting import Draft, RandomNumbers, assisted
from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits, beam_search, sample
from cloze.decoding.generating.writing import Answering, Asking, Continuing
from cloze.decoding.reader import Reader
from cloze.interop import Card, export_folder
from cloze.reading import Reading

from .conftest import load

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

NEW, END, PAD, START = 9, 9, 0, 1
SAMPLINGS: dict[str, dict[str, Any]] = {
    "plain": {}, "top-k and temperature": {"top_k": 5, "temperature": 0.7}, "top-p": {"top_p": 0.6}, "min-p": {"min_p": 0.2},
    "typical-p": {"typical_p": 0.5}, "one": {"top_k": 1},
    "all": {"top_k": 20, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.9, "temperature": 1.3},
}  # fmt: skip
LIMITS: dict[str, dict[str, Any]] = {
    "none": {}, "several": {"min_tokens": 4, "no_repeat": 2, "repetition_penalty": 1.4, "banned": ((12,), (13, 14))},
}  # fmt: skip


@dataclass
class Pair:
    """One network in both libraries: `writer` makes ours, which continues `first` (R, L); `fields` are theirs."""

    writer: Callable[[], Any]
    model: Any
    first: Tensor
    fields: dict[str, Tensor]
    reader: Reader
    head: Any

    def theirs(self, **settings: Any) -> list[tuple[int, ...]]:
        """The new tokens of each text by `transformers.generate`."""
        config = transformers.GenerationConfig(
            max_new_tokens=NEW, eos_token_id=END, pad_token_id=PAD, decoder_start_token_id=START, **settings
        )
        out = self.model.generate(**self.fields, generation_config=config).tolist()
        return [clipped(row[self.first.shape[1] :]) for row in out]

    def logs(self, row: int, ids: tuple[int, ...]) -> list[float]:
        """The log-probabilities of the token that follows `ids` in a row, by transformers."""
        tokens = torch.cat([self.first[row], torch.tensor(ids, dtype=torch.long)])[None]
        fields = {name: value[row : row + 1] for name, value in self.fields.items()}
        fields |= {"decoder_input_ids": tokens} if self.model.config.is_encoder_decoder else {"input_ids": tokens}
        if not self.model.config.is_encoder_decoder:
            fields["attention_mask"] = torch.ones_like(tokens)
        with torch.no_grad():
            found: list[float] = self.model(**fields).logits[0, -1].log_softmax(-1).tolist()
        return found


def clipped(ids: list[int]) -> tuple[int, ...]:
    return tuple(ids[: ids.index(END)] if END in ids else ids)


@pytest.fixture(scope="module", params=["gpt2", "t5", "bart"])
def pair(request: Any, systems: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    if name == "gpt2":
        made = systems.system("gpt2", **{"positions.max_length": 40})
        export_folder(folder, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        first = torch.randint(10, 200, (2, 5), generator=torch.Generator().manual_seed(3))
        reader = Reader(made.network, made.tokenizer, made.reading, "left_to_right")
        head = made.objectives["lm"]
        fields = {"input_ids": first, "attention_mask": torch.ones_like(first)}
        return Pair(lambda: Continuing(reader, head), model, first, fields, reader, head)
    seq2seq = load("cloze_parity_seq2seq", Path(__file__).with_name("test_seq2seq.py"))
    made = seq2seq.system(systems, name, decoder_layers=2)  # transformers' cache wants as many as the encoder has
    seq2seq.write(folder, made, systems, name)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    rows = {key: value[:2] for key, value in seq2seq.batch(made.tokenizer.size).items() if key in ("tokens", "block")}
    reader, source = Reader(made.network, made.tokenizer, Reading(single="{A}", pair=None, summary="last")), Batch(rows)
    return Pair(
        lambda: Answering(reader, made.objective, source), model, torch.full((2, 1), START),
        {"input_ids": rows["tokens"], "attention_mask": rows["block"]}, reader, made.objective,
    )


class Dice:
    """What stands in for `torch.multinomial`: step after step it draws from the numbers (R, steps, N) that it has."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.step = numbers, 0

    def __call__(self, probabilities: Tensor, num_samples: int) -> Tensor:
        order = probabilities.argsort(dim=-1, descending=True, stable=True)
        drawn = []
        for row, shares in enumerate(probabilities.gather(1, order).double()):
            left, places = shares.tolist(), []
            for number in self.numbers[row, self.step, :num_samples].tolist():
                point, reached, place = number * sum(left), 0.0, 0
                for place, share in enumerate(left):  # noqa: B007
                    reached += share
                    if reached > point:
                        break
                left[place] = 0.0
                places.append(int(order[row, place]))
            drawn.append(places)
        self.step += 1
        return torch.tensor(drawn)


def dice(rows: int, count: int) -> Tensor:
    return torch.rand(rows, NEW, count, generator=torch.Generator().manual_seed(7), dtype=torch.double)


def in_their_words(limits: dict[str, Any]) -> dict[str, Any]:
    return {
        "min_new_tokens": limits.get("min_tokens"), "no_repeat_ngram_size": limits.get("no_repeat"),
        "repetition_penalty": limits.get("repetition_penalty"),
        "bad_words_ids": [list(one) for one in limits.get("banned", ())] or None,
    }  # fmt: skip


@pytest.mark.parametrize(("sampling", "limits"), [*((name, "none") for name in SAMPLINGS), ("plain", "several")])
def test_with_the_same_random_numbers_the_same_text_is_drawn(
    pair: Pair, sampling: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = dice(2, 1)
    with torch.inference_mode():
        ours = sample(
            pair.writer(), pair.first, new=NEW, end=END, sampling=Sampling(**SAMPLINGS[sampling]), uniform=numbers[:, :, 0],
            limits=Limits(**LIMITS[limits]),
        )
    monkeypatch.setattr(torch, "multinomial", Dice(numbers))
    theirs = pair.theirs(do_sample=True, **{"top_k": 0, **SAMPLINGS[sampling]}, **in_their_words(LIMITS[limits]))
    assert [one.ids for one in ours] == theirs and max(map(len, theirs)) > 3


@pytest.mark.parametrize(("sampling", "limits"), [*((name, "none") for name in SAMPLINGS), ("plain", "several")])
def test_with_the_same_random_numbers_the_same_beams_are_drawn(
    pair: Pair, sampling: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beams = Beams(3, 1.5, best=2, sampled=True)
    numbers = dice(2, beams.candidates)
    with torch.inference_mode():
        ours = beam_search(
            pair.writer(), pair.first, new=NEW, end=END, beams=beams, limits=Limits(**LIMITS[limits]),
            sampling=Sampling(**SAMPLINGS[sampling]), uniform=numbers,
        )
    monkeypatch.setattr(torch, "multinomial", Dice(numbers))
    theirs = pair.theirs(
        do_sample=True, num_beams=3, num_return_sequences=2, length_penalty=1.5, **{"top_k": 0, **SAMPLINGS[sampling]},
        **in_their_words(LIMITS[limits]),
    )
    assert [one.ids for best in ours for one in (best, *best.others)] == theirs


def by_groups(pair: Pair, row: int, *, count: int, groups: int, diversity: float) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search in groups over lists, for the penalty 1 and early "never"; see tests/decoding/test_diverse_beams.py."""
    each = count // groups
    running: list[Any] = [[(0.0, ())] for _ in range(groups)]
    ended: list[Any] = [[] for _ in range(groups)]
    for step in range(1, NEW + 1):
        taken: Counter[int] = Counter()
        for number in range(groups):
            every = [
                (total + value - diversity * taken[token], (*ids, token))
                for total, ids in running[number] for token, value in enumerate(pair.logs(row, ids))
            ]
            every.sort(reverse=True)
            ended[number] += [one for one in every[:each] if one[1][-1] == END or step == NEW]
            running[number] = [one for one in every[: 2 * each] if one[1][-1] != END and step < NEW][:each]
            taken.update(ids[-1] for _, ids in running[number])
    best = [sorted(((total / len(ids), ids) for total, ids in group), reverse=True)[:each] for group in ended]
    return [(worth, clipped(list(ids))) for worth, ids in sorted((one for group in best for one in group), reverse=True)]


def test_beams_in_groups_are_those_of_a_search_over_lists(pair: Pair) -> None:
    beams = Beams(4, 1.0, early="never", best=4, groups=2, diversity=1.5)
    with torch.inference_mode():
        ours = beam_search(pair.writer(), pair.first, new=NEW, end=END, beams=beams, limits=Limits())
        plain = beam_search(pair.writer(), pair.first, new=NEW, end=END, beams=replace(beams, groups=1), limits=Limits())
    for row, best in enumerate(ours):
        expected = by_groups(pair, row, count=4, groups=2, diversity=1.5)
        assert [one.ids for one in (best, *best.others)] == [ids for _, ids in expected]
        assert [one.score for one in (best, *best.others)] == pytest.approx([worth for worth, _ in expected], abs=1e-3)
    assert [one.ids for best in ours for one in (best, *best.others)] != [
        one.ids for best in plain for one in (best, *best.others)
    ]


def test_with_a_draft_greedy_texts_are_those_of_transformers(pair: Pair) -> None:
    network, head = deepcopy((pair.reader.network, pair.head))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.05)
    reader = replace(pair.reader, network=network)
    draft = Draft(reader, head, 3)
    theirs = pair.theirs(do_sample=False)
    for row in range(len(pair.first)):
        writer, drafter = pair.writer(), pair.writer()
        drafter.reader = reader
        drafter.head = head
        with torch.inference_mode():
            for one in (writer, drafter):
                one.select(torch.tensor([row]))
            made = assisted(
                writer, drafter, pair.first[row : row + 1], draft=draft, new=NEW, end=END, sampling=Sampling(temperature=0),
                numbers=RandomNumbers(*torch.zeros(3, NEW)), limits=Limits(),
            )
        assert made.ids == theirs[row]
    assert 0 < draft.accepted <= draft.proposed


# ---- XLNet -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def xlnet(systems: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, Any, Any]:
    memory = load("cloze_parity_memory", Path(__file__).with_name("test_memory.py"))
    network, head, pieces, model = memory.xlnet(systems, True)
    folder = tmp_path_factory.mktemp("xlnet")
    export_folder(folder, model=model, tokenizer=pieces, reading=memory.READING, card=Card("test"))
    other = memory.opened(folder, "XLNetLMHeadModel")
    return Reader(network, pieces, memory.READING), BoundHead(head, {"": "query"}), other


def next_scores(model: Any, tokens: Tensor) -> Tensor:
    """Scores (R, V) of the next token as transformers' `generate` asks for them, without its approximate memory."""
    with torch.no_grad():
        found: Tensor = model(**model.prepare_inputs_for_generation(tokens, use_mems=False)).logits[:, -1]
    return found


def test_xlnet_scores_the_next_token_as_transformers_does(xlnet: tuple[Reader, Any, Any]) -> None:
    reader, head, model = xlnet
    tokens = torch.randint(5, reader.tokenizer.size, (3, 11), generator=torch.Generator().manual_seed(0))
    writer = Asking(reader, head)
    for length in (1, 4, 11):
        with torch.inference_mode():
            ours = writer.scores(tokens[:, :length])
        torch.testing.assert_close(ours, next_scores(model, tokens[:, :length]), atol=1e-4, rtol=0)


def test_xlnet_writes_what_transformers_would(xlnet: tuple[Reader, Any, Any]) -> None:
    reader, head, model = xlnet
    (made,) = generate(reader, head, ["The cat sleeps"], tokens=6, sampling=Sampling(temperature=0))
    special = reader.tokenizer.special_ids.tolist()
    ids = torch.tensor(reader.tokenizer.encode("The cat sleeps").ids.tolist())[None]
    for token in made.ids:
        scores = next_scores(model, ids)
        scores[:, [one for one in special if one != reader.tokenizer.roles.get("[EOS]")]] = -torch.inf
        assert int(scores.argmax()) == token
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
    assert len(made.ids) == 6 or made.stopped == "end"
    (alone,) = generate(reader, head, ["The cat sleeps"], tokens=6, beams=Beams(1))
    assert alone.ids == made.ids and alone.score is not None
