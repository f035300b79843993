"""Networks that are asked otherwise than at the mask itself: query streams, shifted answers, gaps behind a text, n-grams."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.corpus.tables.lexicon import BoundLexicon
from cloze.decoding.bound_head import BoundHead
from cloze.decoding.filling import fill
from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits
from cloze.decoding.reader import Reader, head_of_kind, orders_of
from cloze.decoding.scores.scoring import score
from cloze.decoding.vectors.embedding import embed
from cloze.errors import UserError
from cloze.exercises.knowledge.match import Match
from cloze.exercises.order import Order
from cloze.interop import Reading
from cloze.networks import Clock, TwoStream
from cloze.objectives import token_prediction
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text import Annotations, Tokenizer
from tests.making import network_of

SINGLE, PAIR = "[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]"


def test_a_network_is_read_up_to_its_limit_whatever_the_limit_comes_from(checkpoint: Any) -> None:
    """docs/language.md: a network of one's own may have `max_length` and take no position_ids."""
    tokenizer = checkpoint("bert").tokenizer
    network = SimpleNamespace(takes=frozenset({"tokens"}), max_length=6, unlimited=False)
    reader = Reader(network, tokenizer, Reading(SINGLE, max_length=9))
    assert reader.max_length == 6
    assert replace(reader, network=SimpleNamespace(**{**vars(network), "unlimited": True})).max_length == 9


@pytest.fixture(scope="module")
def pieces(checkpoint: Any) -> Tokenizer:
    tokenizer: Tokenizer = checkpoint("bert").tokenizer
    return tokenizer


def loaded(
    network: Any, pieces: Tokenizer, reading: Any, *, order: str = "open", read: dict[str, str] | None = None, **more: Any
) -> Any:
    """A checkpoint of a network with random weights and a head that is tied to its table."""
    table = network.token_tables["tokens"]
    head = token_prediction(tie=True, width=network.width, vocab_size=pieces.size, table=table)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for module in (network, head):
            for name, parameter in module.named_parameters():
                parameter.normal_(mean=float("norm.weight" in name), std=0.3, generator=generator)
    return SimpleNamespace(**{
        "network": network.eval(), "heads": {"lm": head.eval()}, "reads": {"lm": read} if read else {}, "tokenizer": pieces,
        "reading": reading, "order": order, "folder": "nowhere", "input_edits": (), "languages": (),
        "annotations": Annotations(), "pictures": None, "precision": None, "recipe": None,
        "clock": network.clock if hasattr(network, "clock") else Clock(), **more,
    })


def head_of(checkpoint: Any) -> Any:
    return head_of_kind(checkpoint, "token_prediction")


def ids_of(reader: Reader, text: str) -> np.ndarray:
    return reader.single([np.asarray(reader.tokenizer.encode_template(text).ids, np.int32)]).ids


# ---- XLNet -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def xlnet(pieces: Tokenizer) -> Any:
    network = TwoStream(layers=2, width=16, heads=2, vocab_size=pieces.size, clock=Clock())
    return loaded(network, pieces, Reading("{A} [SEP] [CLS]", None, "last"), read={"": "query"})


def test_a_query_stream_fills_a_mask_from_everything_else(xlnet: Any, pieces: Tokenizer) -> None:
    reader, head = Reader.of(xlnet), head_of(xlnet)
    assert isinstance(head, BoundHead) and head.reads == ("query",)
    ids = ids_of(reader, "the cat [MASK] on the mat")
    (hole,) = np.flatnonzero(ids == pieces.role("[MASK]")).tolist()
    with torch.inference_mode():
        order = torch.zeros(1, len(ids), dtype=torch.long)
        order[0, hole] = 1
        query = xlnet.network(want=frozenset({"query"}), tokens=torch.from_numpy(ids)[None].long(), order=order)["query"]
        expected = xlnet.heads["lm"].head(query[0, hole]).softmax(-1).topk(3)
    ((candidates,),) = [one.masks for one in fill(reader, head, ["the cat [MASK] on the mat", "a [MASK]"], top=3)[:1]]
    assert [one.id for one in candidates] == expected.indices.tolist()
    assert [one.probability for one in candidates] == pytest.approx(expected.values.tolist(), abs=1e-6)


def test_what_stands_at_the_asked_place_is_never_seen(xlnet: Any) -> None:
    reader, head = Reader.of(xlnet), head_of(xlnet)
    batch = reader.batch(reader.encode(["the cat sleeps on the mat", "a dog"]))
    positions = torch.tensor([2, batch["tokens"].shape[1] + 1])
    found = []
    for token in (7, 30, 55):
        tokens = batch["tokens"].flatten().index_fill(0, positions, token).view_as(batch["tokens"])
        shown = Batch({**batch, "tokens": tokens})
        asked, at = reader.prediction_inputs(head, shown, positions)
        with torch.inference_mode():
            found.append(reader.token_scores(head, reader.states(asked, head.reads, positions=at), asked, at))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_the_score_of_a_text_is_that_of_each_token_as_the_last_of_all(xlnet: Any) -> None:
    reader, head = Reader.of(xlnet), head_of(xlnet)
    ids = reader.encode(["the cat sleeps"])[0].ids
    total = 0.0
    with torch.inference_mode():
        for place in range(len(ids) - 2):  # [SEP] and [CLS] are not asked
            order = torch.zeros(1, len(ids), dtype=torch.long)
            order[0, place] = 1
            query = xlnet.network(want=frozenset({"query"}), tokens=torch.from_numpy(ids)[None].long(), order=order)["query"]
            total += float(xlnet.heads["lm"].head(query[0, place]).log_softmax(-1)[int(ids[place])])
    first, _ = score(reader, head, ["the cat sleeps", "rain"], method="pseudo_log_likelihood")
    assert first.score == pytest.approx(total, abs=1e-4) and first.tokens == len(ids) - 2


# ---- GPT-BERT --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt_bert(pieces: Tokenizer) -> Any:
    network = network_of("transformer", layers=2, width=16, heads=2, norm="pre", segments=0, vocab_size=pieces.size,
        clock=Clock(), **{"positions.max_length": 40})
    reading = Reading("[CLS] {A}", None, "first", shift=1, orders=("open", "left_to_right"))
    return loaded(network, pieces, reading)


def hidden(checkpoint: Any, ids: Any, order: Any = "open", **fields: Any) -> torch.Tensor:
    """The scores (L, V) at every place of one row."""
    with torch.inference_mode():
        tokens = torch.as_tensor(np.asarray(ids)).long()[None]
        state = checkpoint.network(want=frozenset({"hidden"}), tokens=tokens, order=order, **fields)["hidden"]
        scores: torch.Tensor = checkpoint.heads["lm"].head(state)[0]
        return scores


def test_a_shifted_mask_is_asked_one_place_to_the_left(gpt_bert: Any, pieces: Tokenizer) -> None:
    reader = Reader.of(gpt_bert)
    ids = ids_of(reader, "the [MASK] sleeps")
    hole = int(np.flatnonzero(ids == pieces.role("[MASK]"))[0])
    (filled,) = fill(reader, head_of(gpt_bert), ["the [MASK] sleeps"], top=4)
    assert [one.id for one in filled.masks[0]] == hidden(gpt_bert, ids)[hole - 1].topk(4).indices.tolist()


def test_a_shifted_system_scores_its_masks_there_and_in_the_other_order_its_next_tokens(gpt_bert: Any) -> None:
    head, text = head_of(gpt_bert), "the cat sleeps"
    reader = Reader.of(gpt_bert)
    ids = ids_of(reader, text)
    masked = 0.0
    for place in range(1, len(ids)):
        shown = ids.copy()
        shown[place] = reader.tokenizer.role("[MASK]")
        masked += float(hidden(gpt_bert, shown)[place - 1].log_softmax(-1)[int(ids[place])])
    (found,) = score(reader, head, [text], method="pseudo_log_likelihood")
    assert found.score == pytest.approx(masked, abs=1e-4) and found.tokens == len(ids) - 1
    causal = hidden(gpt_bert, ids, "left_to_right").log_softmax(-1)
    (found,) = score(Reader.of(gpt_bert, order="left_to_right"), head, [text], method="log_probability")
    assert found.score == pytest.approx(float(causal[range(len(ids) - 1), ids[1:].tolist()].sum()), abs=1e-4)


def test_it_continues_what_begins_as_its_reading_does(gpt_bert: Any) -> None:
    assert orders_of(gpt_bert) == ("open", "left_to_right")
    reader = Reader.of(gpt_bert, order="left_to_right")
    special = torch.as_tensor(np.asarray(reader.tokenizer.special_ids)).long()
    for options in ({"sampling": Sampling(temperature=0)}, {"beams": Beams(1)}):
        (made,) = generate(reader, head_of(gpt_bert), ["the cat"], tokens=4, **options)
        ids = ids_of(reader, "the cat").tolist()
        for token in made.ids:
            scores = hidden(gpt_bert, ids, "left_to_right")[-1].index_fill(0, special, -torch.inf)
            assert int(scores.argmax()) == token
            ids.append(token)


def test_a_mask_that_nothing_precedes_cannot_be_asked(gpt_bert: Any) -> None:
    bare = SimpleNamespace(**{**vars(gpt_bert), "reading": replace(gpt_bert.reading, single="{A}")})
    with pytest.raises(UserError, match="and the first .MASK. has none"):
        fill(Reader.of(bare), head_of(bare), ["[MASK] sleeps"])
    ids = bare.tokenizer.encode("the cat").ids
    (found,) = score(Reader.of(bare), head_of(bare), ["the cat"], method="pseudo_log_likelihood")
    assert found.tokens == len(ids) - 1


# ---- UniLM -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unilm(pieces: Tokenizer) -> Any:
    network = network_of("transformer", layers=2, width=16, heads=2, segments=6, vocab_size=pieces.size, clock=Clock(),
        **{"positions.max_length": 24})
    return loaded(network, pieces, Reading(SINGLE, PAIR, "first", orders=("open", "source_to_target"), segments=(4, 5)))


def next_scores(unilm: Any, source: list[int], written: list[int]) -> torch.Tensor:
    """The scores of the next token by one pass over everything: the order of the exercise, a mask at the end."""
    ids = [*source, *written, unilm.tokenizer.role("[MASK]")]
    segments = np.array([[4] * len(source) + [5] * (len(written) + 1)], np.int32)
    rows = Rows({"tokens": np.array([ids], np.int32), "length": np.array([len(ids)], np.int32), "segments": segments})
    order = Order("source_to_target")(rows, Draw(np.zeros(1, np.uint64)))["order"]
    return hidden(unilm, ids, torch.from_numpy(order), segments=torch.from_numpy(segments).long())[-1]


def test_gaps_behind_a_text_are_filled_as_one_pass_over_everything_says(unilm: Any) -> None:
    reader, t = Reader.of(unilm, order="source_to_target"), unilm.tokenizer
    end = t.role("[SEP]")
    banned = torch.tensor([i for i in np.asarray(t.special_ids).tolist() if i != end])
    texts = ["the cat", "a dog barks all night", "rain"]
    for made, text in zip(
        generate(reader, head_of(unilm), texts, tokens=5, sampling=Sampling(temperature=0)), texts, strict=True
    ):
        source = [t.role("[CLS]"), *t.encode(text).ids.tolist(), end]
        written: list[int] = []
        for token in [*made.ids, *([end] if made.stopped == "end" else [])]:
            scores = next_scores(unilm, source, written).index_fill(0, banned, -torch.inf)
            assert int(scores.argmax()) == token
            written.append(token)
        assert made.stopped == "end" or len(made.ids) == 5


def test_beams_find_what_is_more_probable_than_the_greedy_answer(unilm: Any) -> None:
    reader, head = Reader.of(unilm, order="source_to_target"), head_of(unilm)
    texts, limits = ["the cat", "rain fell"], Limits(min_tokens=4)
    (one, _), (four, _) = (generate(reader, head, texts, tokens=4, beams=Beams(n), limits=limits) for n in (1, 4))
    greedy = generate(reader, head, texts, tokens=4, sampling=Sampling(temperature=0), limits=limits)
    assert one.ids == greedy[0].ids and four.score is not None and one.score is not None and four.score >= one.score
    end = unilm.tokenizer.role("[SEP]")
    banned = torch.tensor([i for i in np.asarray(unilm.tokenizer.special_ids).tolist() if i != end])
    source = [unilm.tokenizer.role("[CLS]"), *unilm.tokenizer.encode("the cat").ids.tolist(), end]
    total = sum(
        float(next_scores(unilm, source, list(four.ids[:n])).index_fill(0, banned, -torch.inf).log_softmax(-1)[token])
        for n, token in enumerate(four.ids)
    )
    assert four.score == pytest.approx(total / len(four.ids), abs=1e-4)


def test_a_long_text_leaves_room_for_the_answer(unilm: Any) -> None:
    reader, head = Reader.of(unilm, order="source_to_target"), head_of(unilm)
    (made,) = generate(reader, head, ["the cat " * 30], tokens=6, limits=Limits(min_tokens=6))
    assert len(made.ids) == 6 and made.stopped == "count"


# ---- ZEN -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zen(pieces: Tokenizer) -> Any:
    the, cat = pieces.encode("the cat").ids.tolist()[:2]
    lexicon = BoundLexicon(np.array([[-1, -1], [the, cat]], np.int32))
    network = network_of("zen", layers=2, width=16, heads=2, ngram_layers=1, max_length=40, vocab_size=pieces.size,
        clock=Clock(), tables={"ngrams": lexicon})
    edit = Match("ngrams", tables={"ngrams": lexicon})
    return loaded(network, pieces, Reading(SINGLE, None, "first"), input_edits=(edit,))


def test_ngrams_are_found_in_the_text_that_is_read(zen: Any, pieces: Tokenizer) -> None:
    reader = Reader.of(zen)
    batch = reader.batch(reader.encode(["a dog", "the cat sees the cat"]))
    width = batch["tokens"].shape[1]
    assert batch["items/ngram"].tolist() == [[0, 0], [1, 1]]
    columns = [i for i in range(width - 1) if batch["tokens"][1, i : i + 2].tolist() == pieces.encode("the cat").ids.tolist()[:2]]
    expected = [[width + column + k, 2 + number] for number, column in enumerate(columns) for k in (0, 1)]
    assert sorted(batch["links/ngram"].tolist()) == expected


def test_they_matter_and_do_not_depend_on_the_batch(zen: Any) -> None:
    with_them, without = Reader.of(zen), replace(Reader.of(zen), input_edits=())
    texts = ["the cat sleeps", "a dog barks all night"]
    found, plain = embed(with_them, texts), embed(without, texts)
    assert not np.allclose(found[0], plain[0]) and np.allclose(found[1], plain[1], atol=1e-6)
    assert np.allclose(found[0], embed(with_them, texts[:1])[0], atol=1e-5)


def test_an_ngram_that_a_mask_breaks_is_not_read(zen: Any, pieces: Tokenizer) -> None:
    with_them, without = Reader.of(zen), replace(Reader.of(zen), input_edits=())
    head = head_of(zen)
    texts = ["the [MASK] sleeps", "the cat [MASK]"]
    (broken, whole), (_, plain) = fill(with_them, head, texts), fill(without, head, texts)
    assert broken.masks[0][0].probability == pytest.approx(fill(without, head, texts[:1])[0].masks[0][0].probability, abs=1e-5)
    assert whole.masks[0][0].probability != pytest.approx(plain.masks[0][0].probability, abs=1e-4)
    (scored,) = score(with_them, head, ["the cat"], method="pseudo_log_likelihood")  # each mask breaks the only n-gram
    (bare,) = score(without, head, ["the cat"], method="pseudo_log_likelihood")
    assert scored.score == pytest.approx(bare.score, abs=1e-4)
