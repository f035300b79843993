"""The forms in which networks answer texts, and the scores of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.decoding.generating.forms import ByContinuing, ByDecoder, ByGaps, form_of
from cloze.decoding.generating.generation import generate, remark_on_cut
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.reader import Reader
from cloze.decoding.scores.answer_scoring import score_answers, split_pairs
from cloze.errors import UserError
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.interop import Reading
from cloze.networks import Clock
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.recipe.builders import build
from cloze.registry import lookup
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from tests.making import network_of

Make = Callable[..., Any]
PAIRS = [("the cat sleeps", "a dog"), ("rain", "the river rose"), ("the cat sleeps", "mice"), ("", "a cat")]
UNILM = Reading(
    "[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first", orders=("open", "source_to_target"), segments=(4, 5)
)


def row(form: Any, text: str, target: str) -> Any:
    ids, told = (np.asarray(form.reader.tokenizer.encode(one).ids, np.int32) for one in (text, target))
    return SimpleNamespace(source=form.source(ids), target=form.target(told)[0])


@pytest.fixture(scope="module")
def filling(checkpoint: Make) -> tuple[Reader, Any]:
    """A random UniLM."""
    pieces = checkpoint("bert").tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of("transformer", layers=2, width=16, heads=2, segments=6, dropout=0.0, vocab_size=pieces.size,
            clock=Clock(), **{"positions.max_length": 40, "initial.std": 0.3})
        table = network.token_tables["tokens"]
        head = token_prediction(transform="gelu", tie=True, width=16, vocab_size=pieces.size, table=table)
    return Reader(network.eval(), pieces, UNILM, "source_to_target"), head.eval()


@pytest.fixture(scope="module")
def continuing(checkpoint: Make) -> tuple[Reader, Any]:
    """A random GPT-2 with the layout of a pair."""
    loaded = checkpoint("gpt2")
    reading = Reading("{A}", "{A} [EOS] {B} [EOS]", "last", orders=("left_to_right", "source_to_target"))
    return Reader(loaded.network, loaded.tokenizer, reading, "source_to_target"), loaded.heads["lm"]


@pytest.fixture(scope="module")
def deciding(checkpoint: Make) -> tuple[Reader, Any]:
    """A random BART."""
    pieces = checkpoint("roberta").tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of("encoder_decoder", layers=2, width=16, heads=2, vocab_size=pieces.size, clock=Clock(),
            **{"positions.max_length": 48, "initial.std": 0.4})
        head = token_prediction(tie=True, bias=False, width=16, vocab_size=pieces.size, table=network.token_tables["tokens"])
    return Reader(network.eval(), pieces, Reading("[CLS] {A} [SEP]", None, "last", start="[SEP]")), head.eval()


def test_the_form_is_chosen_by_what_a_reader_can_do(filling: Any, continuing: Any, deciding: Any, checkpoint: Make) -> None:
    assert type(form_of(filling[0])) is ByGaps
    assert type(form_of(continuing[0])) is ByContinuing
    assert type(form_of(deciding[0])) is ByDecoder
    with pytest.raises(UserError, match="reads open and cannot write"):
        form_of(Reader.of(checkpoint("bert")))


def lesson_rows(form: Any, rows: list[Any], epoch: int = 0, **changes: Any) -> Any:
    """What a form's lesson makes of texts and targets, as many as there are rows."""
    edits = [*form.lesson(of="target", max_length=12, set="main").edits, ("order", {"kind": "source_to_target"})]
    facts = TokenFacts.of(form.reader.tokenizer)
    made = [
        PlacedEdit(build(lookup("edit", name), {**given, **changes.get(name, {})}, {"tokenizer": facts})) for name, given in edits
    ]
    exercise = Exercise(made, 40, keep=frozenset({"original", "order", "segments"}))
    texts = [form.reader.ids(pair) for pair in rows]
    arrays: dict[str, Any] = {}
    for part, name in enumerate(("", "target.")):
        length = np.array([len(text[part]) for text in texts], np.int32)
        arrays[f"{name}tokens"] = np.zeros((len(rows), max(int(length.max()), 1)), np.int32)
        arrays[f"{name}length"] = length
        for number, text in enumerate(texts):
            arrays[f"{name}tokens"][number, : length[number]] = text[part]
    return exercise(Rows(arrays), Draw(row_keys(7, "main", epoch, items=np.arange(len(rows)))))


def test_gaps_are_in_the_target_alone_and_ask_for_the_token_that_stood_there(filling: Any) -> None:
    form = form_of(filling[0])
    rows = [row(form, *PAIRS[number % 3]) for number in range(600)]
    made = lesson_rows(form, [PAIRS[number % 3] for number in range(600)])
    mask, ends, number_of, shown, right = form.reader.tokenizer.role("[MASK]"), 0, [], [], []
    for number, one in enumerate(rows):
        positions = made["positions/main"][number]
        positions = positions[positions >= 0]
        at, answers = positions - len(one.source), made["targets/main"][number][: len(positions)]
        assert at.min() >= 0 and (one.target[at] == answers).all()
        number_of.append(len(positions))
        ends += int((at == len(one.target) - 1).any())
        shown += made["tokens"][number][positions].tolist()
        right += answers.tolist()
    assert number_of == [max(1, round(0.7 * len(one.target))) for one in rows]
    found, told = np.array(shown), np.array(right)
    assert abs((found == mask).mean() - 0.8) < 0.04 and 0.09 < (found == told).mean() < 0.15
    assert abs(ends / len(rows) - np.mean([count / len(one.target) for count, one in zip(number_of, rows, strict=True)])) < 0.06
    first = rows[1]
    assert made["order"][1, : len(first.source)].tolist() == [0] * len(first.source)
    assert made["order"][1, len(first.source) : len(first.source) + 3].tolist() == [1, 2, 3]
    assert made["segments"][1, : len(first.source) + 2].tolist() == [4] * len(first.source) + [5, 5]


def test_gaps_are_a_function_of_the_address(filling: Any) -> None:
    form = form_of(filling[0])
    one, two, other = (lesson_rows(form, PAIRS * 5, epoch) for epoch in (1, 1, 2))
    assert (one["tokens"] == two["tokens"]).all() and (one["tokens"] != other["tokens"]).any()
    whole = lesson_rows(form, PAIRS, mask={"rate": 1.0})
    assert [(positions >= 0).sum() for positions in whole["positions/main"]] == [len(row(form, *pair).target) for pair in PAIRS]


def test_a_told_answer_has_a_gap_at_its_end_and_no_other(filling: Any) -> None:
    reader, head = filling
    scores = score_answers(reader, head, *zip(*PAIRS, strict=True), rows=3)
    form = form_of(reader)
    for pair, found in zip(PAIRS, scores, strict=True):
        one = row(form, *pair)
        expected = 0.0
        for place, answer in enumerate(one.target.tolist()):
            ids = [*one.source.ids.tolist(), *one.target[:place].tolist(), reader.tokenizer.role("[MASK]")]
            first = len(one.source)
            order = torch.tensor([[0] * first + list(range(1, place + 2))])
            segments = torch.tensor([[4] * first + [5] * (place + 1)])
            with torch.inference_mode():
                states = reader.network(
                    want=frozenset({"hidden"}), tokens=torch.tensor([ids]), segments=segments, order=order
                )["hidden"]
                expected += float(head.head(states[0, -1:])[0].log_softmax(-1)[answer])
        assert found.score == pytest.approx(expected, abs=1e-3) and found.tokens == len(one.target)


def test_left_to_right_an_answer_stands_behind_text_and_separator(continuing: Any) -> None:
    reader, head = continuing
    scores = score_answers(reader, head, *zip(*PAIRS, strict=True), rows=3)
    end, encode = reader.tokenizer.role("[EOS]"), reader.tokenizer.encode
    for (text, target), found in zip(PAIRS, scores, strict=True):
        source, answer = [*encode(text).ids, end], [*encode(target).ids, end]
        ids = torch.tensor([[*source, *answer]])
        with torch.inference_mode():
            hidden = reader.network(want=frozenset({"hidden"}), tokens=ids, order="left_to_right")["hidden"][0]
            logs = head.head(hidden).log_softmax(-1)
        positions = range(len(source) - 1, ids.shape[1] - 1)
        assert found.score == pytest.approx(sum(float(logs[i, ids[0, i + 1]]) for i in positions), abs=1e-3)
        assert found.tokens == len(answer)


@pytest.mark.parametrize("name", ["filling", "continuing", "deciding"])
def test_greedy_tokens_are_the_most_probable_answers(request: pytest.FixtureRequest, name: str) -> None:
    reader, head = request.getfixturevalue(name)
    (made,) = generate(reader, head, ["the cat"], tokens=1, sampling=Sampling(temperature=0))
    form, encode = form_of(reader), reader.tokenizer.encode
    source = form.source(np.asarray(encode("the cat").ids, np.int32))
    special = set(reader.tokenizer.special_ids.tolist()) if name != "deciding" else set()
    ids = [i for i in range(reader.tokenizer.size) if i not in special]
    rows = [SimpleNamespace(source=source, target=np.array([i], np.int32)) for i in ids]
    with torch.inference_mode():
        found = form.log_probabilities(head, rows)
    assert ids[int(np.argmax(found))] == (made.ids[0] if made.ids else reader.tokenizer.role("[SEP]"))


@pytest.mark.parametrize("name", ["filling", "continuing", "deciding"])
def test_scores_of_answers_do_not_depend_on_batches(request: pytest.FixtureRequest, name: str) -> None:
    reader, head = request.getfixturevalue(name)
    done: list[int] = []
    together = score_answers(reader, head, *zip(*PAIRS, strict=True), report=done.append)
    assert sum(done) == len(PAIRS)
    for (text, target), one in zip(PAIRS, together, strict=True):
        (alone,) = score_answers(reader, head, [text], [target])
        assert alone.score == pytest.approx(one.score, abs=1e-3) and (alone.tokens, alone.cut) == (one.tokens, 0)


@pytest.mark.parametrize("name", ["filling", "continuing", "deciding"])
def test_what_does_not_fit_is_refused_or_on_demand_cut_and_counted(request: pytest.FixtureRequest, name: str) -> None:
    reader, head = request.getfixturevalue(name)
    (one,) = score_answers(reader, head, ["cat " * 80], ["dog " * 80], truncate=True)
    with pytest.raises(UserError, match=r"text 2, 'cat cat .*do not fit.*\n  Shorten them, or give --truncate"):
        score_answers(reader, head, ["rain", "cat " * 80], ["cat", "dog"])
    assert one.cut > 60 and np.isfinite(one.score) and one.tokens <= reader.max_length


def test_a_text_that_is_too_long_to_be_answered_says_how_much_of_it_was_not_read(
    deciding: Any, filling: Any, continuing: Any
) -> None:
    for reader, head in (deciding, filling, continuing):
        short, long = generate(reader, head, ["the cat", "cat " * 80], tokens=2, sampling=Sampling(temperature=0.0))
        read = form_of(reader).source(np.asarray(reader.tokenizer.encode("cat " * 80).ids, np.int32), max_new=2)
        assert short.cut == 0 and long.cut == read.cut > 20
        assert remark_on_cut([short]) is None and remark_on_cut([short, long, long]) == (
            f"1 of 2 texts are longer than the network reads and lost their end, {long.cut} tokens in all"
        )


@pytest.mark.parity
def test_the_score_of_an_encoder_decoder_is_transformers_loss(deciding: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from cloze.interop import Card, PortableHead, PortableModel, export_folder

    reader, head = deciding
    arguments = {"layers": 2, "width": 16, "heads": 2, "positions": {"learned": {"max_length": 48}},
        "norm": {"post": {"epsilon": 1e-5}}}
    heads = {"lm": PortableHead("token_prediction", {"tie": True, "bias": False}, head.state_dict())}
    model = PortableModel(arguments, "open", reader.network.state_dict(), heads, "encoder_decoder")
    export_folder(
        tmp_path, model=model, tokenizer=reader.tokenizer, reading=reader.reading, card=Card("t"), architecture="bart"
    )
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text, target in PAIRS:
        encoded = pieces(text, text_target=target, return_tensors="pt")
        with torch.inference_mode():
            loss = float(theirs(input_ids=encoded["input_ids"], labels=encoded["labels"]).loss)
        (one,) = score_answers(reader, head, [text], [target])
        assert one.score == pytest.approx(-loss * one.tokens, abs=1e-3) and one.tokens == encoded["labels"].shape[1]


def test_an_empty_answer_of_a_network_without_a_template_is_its_end(deciding: Any) -> None:
    reader, head = deciding
    bare = replace(reader, reading=Reading("{A}", None, "last", start="[SEP]"))
    target, cut = form_of(bare).target(np.zeros(0, np.int32))
    assert target.tolist() == [reader.tokenizer.role("[SEP]")] and cut == 0


def test_lines_of_pairs_have_one_tab() -> None:
    assert split_pairs(["a b\tc", "\td"]) == (["a b", ""], ["c", "d"])
    for line in ("no tab", "two\ttabs\there"):
        with pytest.raises(UserError, match=r"text 2, .* tabs?, expected one\. .*\n  Write TEXT<tab>TARGET"):
            split_pairs(["a\tb", line])
