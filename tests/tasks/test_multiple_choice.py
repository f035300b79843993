"""One of several texts: the softmax among the rows of a record, ragged records, micro-batches, and transformers' folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.batch import Batch
from cloze.batching.data import Data
from cloze.batching.feed import Cursor
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import Records
from cloze.errors import TaskError
from cloze.exercises.companions.spread import Spread
from cloze.networks import Clock
from cloze.objectives import choose
from cloze.objectives.labels.choice import first_best, log_softmax_within
from cloze.recipe.parts import class_of
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks import task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=5), min_size=1, max_size=5))
def test_the_softmax_among_the_rows_of_a_record_is_that_of_each_alone(records: list[list[float]]) -> None:
    owner = torch.tensor([number for number, own in enumerate(records) for _ in own])
    scores = torch.tensor([score for own in records for score in own], dtype=torch.double)
    alone = torch.cat([torch.log_softmax(torch.tensor(own, dtype=torch.double), 0) for own in records])
    torch.testing.assert_close(log_softmax_within(scores, owner), alone)
    best = [own.index(max(own)) + sum(map(len, records[:number])) for number, own in enumerate(records)]
    assert first_best(scores, owner).tolist() == best


def test_one_choice_costs_nothing_and_equal_choices_the_logarithm_of_their_number() -> None:
    objective = choose(width=4, clock=Clock()).double()
    torch.nn.init.zeros_(objective.head.output.weight)
    owner = torch.tensor([0, 1, 1, 2, 2, 2, 2])
    batch = Batch({"targets/label": torch.tensor([1, 0, 1, 0, 0, 1, 0]), "owner": owner})
    loss = objective({"summary": torch.randn(7, 4, dtype=torch.double)}, batch)
    assert float(objective.count(batch)) == 3
    assert loss.total.item() == pytest.approx(0 + math.log(2) + math.log(4))
    assert loss.metrics["correct"].item() == 1  # of equals the first: right in the record with one
    torch.manual_seed(0)
    objective = choose(pool=True, width=4, clock=Clock()).double()
    state = torch.randn(7, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: objective({"summary": x}, batch).total, (state,))
    none = Batch({"targets/label": torch.zeros(0, dtype=torch.long), "owner": torch.zeros(0, dtype=torch.long)})
    nothing = objective({"summary": state[:0]}, none)
    nothing.total.backward()
    assert nothing.total.item() == 0 and float(objective.count(none)) == 0
    assert all(p.grad is not None and p.grad.eq(0).all() for p in objective.parameters())


def test_spread_makes_a_row_of_each_choice_and_cuts_it_to_its_room() -> None:
    rows = Rows({
        "tokens": np.array([[1, 2, 3, 4, 5, 6, 0], [11, 12, 13, 0, 0, 0, 0]], np.int32), "length": np.array([6, 3], np.int32),
        "parts": np.array([[[0, 2], [2, 5], [5, 6]], [[0, 1], [1, 3], [3, 3]]]), "choices": np.array([2, 1]),
        "column/label": np.array([1, 0]),
    })  # fmt: skip
    out = Spread().for_length(4)(rows, Draw(np.zeros(2, np.uint64)))
    shown = [out["tokens"][row, : out["length"][row]].tolist() for row in range(3)]
    assert shown == [[1, 2, 3, 4], [1, 2, 6], [11, 12, 13]]
    assert out["owner"].tolist() == [0, 0, 1] and out["column/label"].tolist() == [0, 1, 1]
    assert out["parts"].tolist() == [[[0, 2], [2, 4]], [[0, 2], [2, 3]], [[0, 1], [1, 3]]]
    pairs = rows.having(parts=np.array([[[0, 2], [2, 6]], [[0, 1], [1, 3]]]))
    out = Spread(over="orders")(pairs, Draw(np.zeros(2, np.uint64)))
    shown = [out["tokens"][row, : out["length"][row]].tolist() for row in range(4)]
    assert shown == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 1, 2], [11, 12, 13], [12, 13, 11]]


def write(path: Path, rows: list[tuple[str, list[str], int]]) -> Path:
    lines = [json.dumps({"text": text, "choices": choices, "label": label}) for text, choices, label in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The right choice is the one about rain; records offer two to four."""
    chance = np.random.default_rng(0)
    rows = []
    for _ in range(48):
        choices = [f"the {chance.choice(['cat', 'dog', 'mice'])} saw the mat" for _ in range(int(chance.integers(2, 5)))]
        right = int(chance.integers(len(choices)))
        choices[right] = "the rain on the river"
        rows.append(("all night in the garden", choices, right))
    return write(tmp_path_factory.mktemp("offers") / "train.jsonl", rows)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('{"text": "a", "choices": "b", "label": 0}', r":2: 'choices' is 'b'; expected a JSON list of texts"),
        ('{"text": "a", "choices": [], "label": 0}', r":2: 'choices' is '\[\]'; expected a JSON list of texts"),
        ('{"text": "a", "choices": ["b", " "], "label": 0}', r":2: 'choices' offers an empty text \(number 1"),
        ('{"text": "a", "choices": ["b", "c"], "label": 2}', r":2: 'label' is '2'; .* from 0 to 1\. The first text is 0: "),
        ('{"text": "a", "choices": ["b", "c"], "label": "c"}', r":2: 'label' is 'c'; expected the number"),
        ('{"text": "a", "choices": ["b", "c"], "label": "' + "1" * 5000 + '"}', r":2: 'label' is '1+'; expected the number"),
        ('{"text": "a", "choices": "' + "[" * 100_000 + '", "label": 0}', r":2: 'choices' is '\[+'; expected a JSON list"),
    ],
)
def test_a_record_that_cannot_be_used_is_told_with_its_line(
    folder: Callable[[str], Path], tmp_path: Path, row: str, told: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "choices": ["b"], "label": 0}\n' + row + "\n")
    with pytest.raises(TaskError, match=told):
        Records(answer="choice", text_b="choices").build_store(
            [path], load_checkpoint(folder("bert")).tokenizer, tmp_path / "s", base=None, report=print
        )
    with pytest.raises(TaskError, match=told):
        task("multiple_choice").read(path)


def micro_batches(folder: Path, offers: Path, tmp_path: Path, **how: Any) -> list[Any]:
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.feeds import build_feed
    from cloze.exercises import TokenFacts

    loaded = load_checkpoint(folder)
    recipe = recipe_onto("multiple_choice", loaded, overrides=["corpus.length=24"])
    entry = recipe.entries["main"]
    store = tmp_path / "store"
    source = Records(answer="choice", text_b="choices", length=24)
    made = source.build_store([offers], loaded.tokenizer, store, base=None, report=lambda line: None)
    step = build_step(recipe, vocab_size=loaded.tokenizer.size)
    feed = build_feed(recipe, entry, made, step, TokenFacts.of(loaded.tokenizer), length=24, seed=1)
    data = Data({"main": feed}, batch=16, **how)
    found = []
    cursor = Cursor()
    for _ in range(4):  # over the end of an epoch of 48
        micros, cursor = data.next("main", cursor)
        found.append(micros)
    return found


def test_the_choices_of_a_record_stay_together_however_a_step_is_dealt(
    folder: Callable[[str], Path], offers: Path, tmp_path: Path
) -> None:
    whole = micro_batches(folder("bert"), offers, tmp_path, micro_batch=None)
    parts = micro_batches(folder("bert"), offers, tmp_path / "p", micro_batch=3)
    ranks = [micro_batches(folder("bert"), offers, tmp_path / f"r{rank}", rank=rank, ranks=2) for rank in range(2)]
    for step in range(4):
        (one,) = whole[step]
        width = len(one.batch["owner"])
        assert one.examples == 16 and sorted(set(one.batch["owner"].tolist())) == list(range(16)) and 32 <= width <= 64
        both = [micro for rank in ranks for micro in rank[step]]
        for dealt in (parts[step], both):
            targets = torch.cat([micro.batch["targets/label"] for micro in dealt])
            assert torch.equal(targets, one.batch["targets/label"])
            assert sum(micro.examples for micro in dealt) == 16
            firsts = np.cumsum([0, *(len(micro.batch["owner"]) for micro in dealt)])[:-1]
            assert [micro.first_row for micro in dealt] == firsts.tolist()
            for micro in dealt:  # exactly one is right of each record
                right = torch.zeros(micro.examples).index_add(0, micro.batch["owner"], micro.batch["targets/label"].float())
                assert right.eq(1).all()


VALUES = ["training.batch=8", "training.rate.peak=1e-2", "corpus.length=24", "task.patience=0"]


@pytest.mark.parametrize("system", ["bert", "electra"])
def test_a_network_learns_to_choose_and_its_folder_says_the_same(
    folder: Callable[[str], Path], offers: Path, tmp_path: Path, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    values = [*VALUES, "training.epochs=4", "objectives[0].dropout=0", "network.dropout=0"]
    made = finetune(
        folder(system), task="multiple_choice", train=[str(offers)], dev=[str(offers)], out=out, overrides=values,
        report=lambda line: None,
    )
    standing = made.outcomes[1].standing
    assert standing is not None and standing.metrics["accuracy"] > 0.9
    learner, told = load_tuned(load_checkpoint(out))
    measured = evaluate(learner, learner.task.read(offers), constant_answer=told["constant_answer"])
    assert measured.metrics == standing.metrics and measured.baseline == told["baseline"]
    assert main(["predict", str(out), str(offers)]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(math.isclose(sum(one["probabilities"]), 1, abs_tol=1e-5) for one in shown)
    assert shown[0]["choice"] == shown[0]["choices"][shown[0]["label"]]
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMultipleChoice.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    one = shown[0]
    given = tokenizer([one["text"]] * len(one["choices"]), one["choices"], return_tensors="pt", padding=True)
    with torch.no_grad():
        found = model(**{name: value[None] for name, value in given.items()}).logits[0].softmax(0)
    assert one["probabilities"] == pytest.approx(found.tolist(), abs=1e-5)
    model.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    theirs, _ = load_tuned(load_checkpoint(tmp_path / "theirs"))
    assert theirs.predict(theirs.task.read(offers), size=8, report=lambda done: None)[0].probabilities == pytest.approx(
        one["probabilities"], abs=1e-5
    )


def test_accumulation_gives_the_same_losses_with_dropout(
    folder: Callable[[str], Path], offers: Path, tmp_path: Path
) -> None:
    values = [*VALUES, "training.batch=24", "training.epochs=1", "training.precision=fp32", "network.dropout=0.1"]
    losses = []
    for name, more in (("whole", []), ("parts", ["training.micro_batch=9"])):
        finetune(
            folder("bert"), task="multiple_choice", train=[str(offers)], dev=[str(offers)], out=tmp_path / name,
            overrides=[*values, *more], report=lambda line: None,
        )
        lines = (tmp_path / name / "cloze" / "log.jsonl").read_text().splitlines()
        losses.append([event["loss"] for event in map(json.loads, lines) if event["event"] == "train"])
    assert len(losses[0]) == 2 and losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_how_often_rows_are_right_is_no_reference_loss_of_choices(
    folder: Callable[[str], Path], offers: Path, tmp_path: Path
) -> None:
    assert not any(class_of("objective", name).likelihood for name in ("choose", "judge", "listwise"))
    said = list[str]()
    finetune(
        folder("bert"), task="multiple_choice", train=[str(offers)], dev=[str(offers)], out=tmp_path / "out", report=said.append,
        overrides=[*VALUES, "training.epochs=1"],
    )
    assert said and not any("reference losses" in line for line in said)


def test_a_network_that_reads_left_to_right_reads_two_texts_with_a_delimiter(folder: Callable[[str], Path]) -> None:
    recipe = recipe_onto("multiple_choice", load_checkpoint(folder("gpt2")))
    assert recipe.reading.pair == "{A} [EOS] {B}"
    assert [edit.part.name for edit in recipe.entries["main"].exercise] == ["spread", "frame", "summarise", "label"]
    single = recipe_onto("sentence_classification", load_checkpoint(folder("gpt2")))
    assert single.reading.pair is None
