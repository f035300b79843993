"""Prompts: templates, demonstrations, and the likelihood of answers for every kind of network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.prompting import DecoderPrompting, InGaps, InOrder, prompting_of
from cloze.decoding.prompts import Template, verbalisers
from cloze.errors import ClozeError, TaskError
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.prompted import Prompt, prompted, task_for
from cloze.tasks.texts import Examples

Folder = Callable[[str], Path]
TEMPLATE = "{text} was the {answer} of the river"
VERBALISE = "animal=cat,weather=night rain"
KINDS = {
    "gpt2": InOrder, "bert": InGaps, "roberta": InGaps, "modern": InGaps, "generator": InGaps, "t5": DecoderPrompting,
    "bart": DecoderPrompting,
    "mass": DecoderPrompting,
}  # fmt: skip


@pytest.fixture(scope="module")
def start(writer: Folder, folder: Folder) -> Folder:
    """An untrained checkpoint of every kind."""
    return lambda name: (writer if name in ("t5", "bart", "mass") else folder)(name)


def examples(*texts: str, labels: list[str] | None = None) -> Examples:
    return Examples(list(texts), None, labels, "rows", tuple(range(1, len(texts) + 1)))


def learner_of(folder: Path, template: str = TEMPLATE, verbalise: str = VERBALISE, **how: Any) -> Any:
    prompt = Prompt(Template(template), verbalisers(verbalise), **how)
    return prompted(load_checkpoint(folder), prompt, task_for(prompt.template, text=None, text_b=None, label=None))


def expected(learner: Any, text: str, answer: str) -> float:
    """log P(answer | prompt), one network call after another."""
    reader, head, pieces = learner.reader, learner.prompting.head, learner.reader.tokenizer
    before, after = (f"{text} was the", "of the river")
    kind = type(learner.prompting)
    behind = " " if pieces.kind == "byte_bpe" and kind is not DecoderPrompting else ""  # a space belongs to the token behind it
    predicted = pieces.encode(behind + answer).ids.tolist()
    with torch.inference_mode():
        if kind is DecoderPrompting:
            lead = [int(i) for i in np.asarray(pieces.sentinels)[:1]]
            ids = [*pieces.encode(before).ids, *lead, *pieces.encode(f" {after}").ids]
            source = reader.single_layout([np.array(ids, np.int32)])
            target = learner.prompting.form.target(np.array([*lead, *predicted], np.int32))[0]
            pair = SimpleNamespace(source=source, target=target)
            return learner.prompting.form.log_probabilities(head, [pair])[0]
        whole = pieces.encode(f"{before} {answer} {after}" if kind is InGaps else f"{before} {answer}").ids
        framed = reader.single_layout([np.asarray(whole, np.int32)])
        opening, first = len(reader.single_layout.opening), len(pieces.encode(before).ids)
        total = 0.0
        for number, token in enumerate(predicted):
            place = opening + first + number
            ids = framed.ids.copy()
            assert ids[place] == token
            if kind is InGaps:
                ids[place : opening + first + len(predicted)] = pieces.role("[MASK]")
            batch = reader.batch([replace(framed, ids=ids)])
            flat = torch.tensor([place])
            read, at = (batch, flat - 1) if kind is InOrder else reader.prediction_inputs(head, batch, flat)
            scores = reader.token_scores(head, reader.states(read, head.reads), read, at)
            total += float(scores[0].log_softmax(-1)[token])
        return total


@pytest.mark.parametrize("name", KINDS)
def test_a_label_is_as_probable_as_the_answer_that_stands_for_it(start: Folder, name: str) -> None:
    learner = learner_of(start(name))
    assert type(learner.prompting) is KINDS[name]
    texts = ["the dog", "mice who dreamed of cheese", ""]
    asked = learner.encode(examples(*texts))
    found = learner.row_outputs(asked, size=2)
    scores = learner.prompting.scores([one for both in asked for one in both], size=2, report=int).reshape(3, 2)
    for text, row, predicted in zip(texts[:2], found, scores, strict=False):
        sums = np.array([expected(learner, text, answer) for answer in ("cat", "night rain")])
        assert predicted == pytest.approx(sums, abs=1e-3)
        assert row == pytest.approx(np.exp(sums - sums.max()) / np.exp(sums - sums.max()).sum(), abs=1e-4)
    alone = [learner.row_outputs(learner.encode(examples(text)))[0] for text in texts]
    assert found == pytest.approx(np.array(alone), abs=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "bart"])
def test_answers_are_normalised_by_their_probability_behind_a_text_about_nothing(start: Folder, name: str) -> None:
    """The context in the place of the template's beginning: `expected` then scores the same answers, given nothing else."""
    plain, learner = learner_of(start(name)), learner_of(start(name), context="rain was the")
    asked = examples("the dog", "mice who dreamed of cheese")
    answers = ("cat", "night rain")
    conditional = np.array([[expected(plain, text, answer) for answer in answers] for text in asked.texts])
    alone = learner_of(start(name), template="{text} was the {answer}")
    alone.prompt = replace(alone.prompt, context=None)
    made = alone.prompting.scores(alone.encode(examples("rain"))[0], size=4, report=int)
    wanted = np.exp(conditional - made)
    found = learner.row_outputs(learner.encode(asked))
    assert found == pytest.approx(wanted / wanted.sum(1, keepdims=True), abs=1e-4)
    assert np.abs(found - plain.row_outputs(plain.encode(asked))).max() > 1e-3
    (choice, _) = learner.predict(asked)
    assert choice.record()["probabilities"]["animal"] == pytest.approx(found[0, 0], abs=1e-6)


def test_answers_of_one_length_in_gaps_share_a_probability_of_one(folder: Folder) -> None:
    learner = learner_of(folder("bert"))
    pieces, prompting = learner.reader.tokenizer, learner.prompting
    one, *_ = prompting.candidates([learner.prompt.template.fill(["the dog"], "night rain")], ["night rain"])
    made = []
    for predicted in ((first, second) for first in (5, 9, 40) for second in range(pieces.size)):
        ids = one.source.ids.copy()
        ids[one.asked[:2]] = predicted  # the first is in the row when the second is asked
        made.append(replace(one, source=replace(one.source, ids=ids), asked=one.asked[:2], target=np.array(predicted)))
    sums = np.exp(prompting.scores(made, size=256, report=int)).reshape(3, pieces.size).sum(1)
    hidden = one.source.ids.copy()
    hidden[one.asked[:2]] = pieces.role("[MASK]")
    with torch.inference_mode():
        batch = learner.reader.batch([replace(one.source, ids=hidden)])
        states = learner.reader.states(batch, prompting.head.reads)
        scores = learner.reader.token_scores(prompting.head, states, batch, torch.tensor([int(one.asked[0])]))
    assert sums == pytest.approx(scores.softmax(-1)[0, [5, 9, 40]].numpy(), rel=1e-4)


def test_demonstrations_stand_before_every_text_and_are_drawn_by_the_seed() -> None:
    shown = examples("a b", "c", "d e", labels=["animal", "weather", "animal"])
    template, answers = Template("{text} is {answer}."), verbalisers("animal=cat,weather=rain")
    one, two = (Prompt(template, answers, 2, shown, seed) for seed in (1, 2))
    lines = {"a b is cat.\n", "c is rain.\n", "d e is cat.\n"}
    before = [one.before(number) for number in range(60)]
    assert before == [one.before(number) for number in range(60)] != [two.before(number) for number in range(60)]
    drawn = [tuple(part + "\n" for part in text.split("\n")[:-1]) for text in before]
    assert all(len(set(parts)) == 2 and set(parts) <= lines for parts in drawn) and len(set(drawn)) == 6
    filled = one.template.fill(["x y"], "cat", before=before[0])
    assert filled.text == before[0] + "x y is cat." and filled.text[slice(*filled.answer)] == "cat"
    assert [filled.text[slice(*span)] for span in filled.texts] == ["x y"]
    assert Template("{text} so").fill(["x"], "yes").text == "x so yes"
    pair = Template("{text_b} after {text}: {answer}").fill(["one", "two"], "no")
    assert pair.text == "two after one: no" and [pair.text[slice(*span)] for span in pair.texts] == ["one", "two"]


def test_a_row_that_is_asked_about_is_never_shown_with_its_answer() -> None:
    shown = examples("a b", "c", "d e", labels=["animal", "weather", "animal"])
    prompt = Prompt(Template("{text} is {answer}."), verbalisers("animal=cat,weather=rain"), 2, shown, 1)
    asked = [prompt.before(number, ("c",)) for number in range(40)]
    assert {frozenset(text.splitlines()) for text in asked} == {frozenset({"a b is cat.", "d e is cat."})}
    assert {len(prompt.before(number, ("x",)).splitlines()) for number in range(40)} == {2}
    assert any("c is rain." in prompt.before(number, ("x",)) for number in range(40))
    every = replace(prompt, shots=3)
    assert len(every.before(0, ("c",)).splitlines()) == 2, "no other row is left"


@pytest.mark.parametrize("name", ["gpt2", "bert", "bart"])
def test_a_long_text_loses_its_end_and_the_demonstrations_stay(start: Folder, name: str) -> None:
    shown = examples("cat", labels=["animal"])
    learner = learner_of(start(name), shots=1, demonstrations=shown)
    long = "the dog saw the mice in the garden all night " * 4
    (first, second), *_ = learner.encode(examples(long))
    assert first.cut > 0 and len(second.source) <= 40
    text = learner.reader.tokenizer.decode(second.source.ids)
    assert text.count("was the") == 2 and "the dog saw" in text.lower()
    (predicted,) = learner.predict(examples(long))
    assert predicted.record()["cut"] == first.cut and "1 of 1 texts" in evaluate(learner, _labelled(long)).remarks[0]
    crowded = learner_of(start(name), shots=6, demonstrations=examples(*["cat mice"] * 6, labels=["animal"] * 6))
    with pytest.raises(TaskError, match="reads at most 40.\n  Use fewer --shots"):
        crowded.encode(examples("dog"))


def _labelled(text: str) -> Examples:
    return examples(text, labels=["animal"])


def test_predict_and_evaluate_take_a_template(cloze: Any, folder: Folder, tables: Path, tmp_path: Path) -> None:
    line = ["--template", "{text}: {answer}", "--verbalise", "animal=cat,weather=of"]
    (made,) = cloze("predict", folder("gpt2"), "the dog saw the mice", *line).out.splitlines()
    record = json.loads(made)
    assert record["label"] in ("animal", "weather") and sum(record["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
    soft = json.loads(cloze("predict", folder("gpt2"), "the dog saw the mice", *line, "--scores").out)
    assert soft["text"] == "the dog saw the mice" and soft["label"] == pytest.approx(record["probabilities"], abs=1e-6)
    few = [*line, "--shots", 2, "--demonstrations", tables / "train.tsv"]
    one, two, other = (
        cloze("predict", folder("gpt2"), "the dog", "mice", *few, "--seed", seed).out for seed in (1, 1, 2)
    )
    assert one == two != other and len(one.splitlines()) == 2
    shown = cloze("evaluate", folder("bert"), tables / "dev.tsv", *few, "--json", "--bootstrap", 100)
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    (predicted,) = found.values()
    assert predicted["examples"] == 16 and predicted["metrics"].keys() == {"accuracy", "macro_f1", "matthews", "f1"}
    assert predicted["baseline"]["accuracy"] == 0.5
    scored = cloze("evaluate", folder("gpt2"), tables / "dev.tsv", *line, "--normalise", "Answer:", "--json")
    assert scored.code == 0 and scored.out != cloze("evaluate", folder("gpt2"), tables / "dev.tsv", *line, "--json").out
    names = cloze("predict", folder("bert"), "the dog", "--template", "{text}", "--demonstrations", tables / "train.tsv").out
    assert json.loads(names)["probabilities"].keys() == {"animal", "weather"}  # labels stand for themselves


ASK = ["predict", "{gpt2}", "the dog"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([*ASK, "--template", "no place"], "no {text}; expected for example '{text} It was {answer}.'"),
        ([*ASK, "--template", "{txt}"], "{txt} is no place; a template has {text}, {text_b} and {answer}. Did you mean"),
        ([*ASK, "--template", "{text} {text}"], "has {text} twice"),
        ([*ASK, "--template", "{text}"], "--verbalise positive=great,negative=terrible"),
        ([*ASK, "--template", "{text}", "--verbalise", "cat"], "expected LABEL=ANSWER"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=cat"], "each once and with an answer of its own"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=dog", "--shots", "2"], "--demonstrations FILE"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=dog", "--beams", "2"], "--beams is for a fine-tuned folder"),
        ([*ASK, "--shots", "2"], "configure a prompt. Add one: --template"),
        ([*ASK, "--normalise", "Answer:"], "configure a prompt. Add one: --template"),
        ([*ASK, "--template", "{text}", "--shots", "99", "--demonstrations", "{rows}"], "expected at least 99"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=dog", "--shots", "1", "--demonstrations", "{rows}"],
         "the label 'animal' does not occur among the labels that have an answer"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=dog", "--demonstrations", "{rows}"],
         "Say how many, such as --shots 4"),
        ([*ASK, "--template", "{text}", "--verbalise", "a=cat,b=dog", "--seed", "3"], "--seed 3: nothing is drawn at random."),
        (["predict", "{electra}", "the dog", "--template", "{text}", "--verbalise", "a=cat,b=dog"], "predicts"),
    ],
)  # fmt: skip
def test_faults_of_prompts_are_told(cloze: Any, folder: Folder, tables: Path, line: list[str], message: str) -> None:
    names = {"{gpt2}": folder("gpt2"), "{electra}": folder("electra"), "{rows}": tables / "train.tsv"}
    shown = cloze(*(names.get(part, part) for part in line))
    assert shown.code == 2 and message in shown.err and shown.out == "" and len(shown.err.strip().splitlines()) <= 3


def test_what_cannot_be_asked_is_refused_in_words(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    loaded.tokenizer = SimpleNamespace(roles={})
    with pytest.raises(ClozeError, match=r"has no \[MASK\] for an answer's place"):
        prompting_of(loaded)
    with pytest.raises(ClozeError, match="needs a head that predicts tokens"):
        prompting_of(SimpleNamespace(**{**vars(checkpoint("bert")), "heads": {}}))
