"""Text to text: networks learn to write, and what they write is measured, kept and read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import build_part, build_step, load_checkpoint
from cloze.checkpoint.feeds import build_feed
from cloze.checkpoint.several import LabelledFiles
from cloze.decoding.generating.forms import ByGaps, form_of
from cloze.decoding.generating.search import Continuation
from cloze.errors import CheckpointError, RecipeError, TaskError
from cloze.exercises import TokenFacts
from cloze.interop import Card, PortableHead, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks import load_tuned, task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.text_to_text import writing_form
from cloze.tasks.measures.overlap import bleu, bleu_metric, chrf
from cloze.tasks.tuned_folder import task_in_folder
from cloze.training.checkpoints.checkpoint import Checkpoints
from tests.making import data, network_of

Folder = Callable[[str], Path]
WORDS = ("cat", "cheese", "dog", "garden")
ROWS = [(f"{a} {b}", f"{b} {a}") for a in WORDS for b in WORDS if a < b]
VALUES = ["training.batch=6", "training.epochs=60", "training.evaluate_every=0.5", "task.patience=0", "length=32",
          "exercise[1].max_length=12", "network.dropout=0", "training.rate.peak=0.01"]  # fmt: skip
SHORT = [*VALUES, "training.epochs=2", "training.batch=3"]


def quiet(line: str) -> None:
    pass


def tune(folder: Path, rows: Path, out: Path, *values: str, **how: Any) -> Any:
    return finetune(
        folder, task="text_to_text", train=[str(rows)], dev=[str(rows)], out=out, overrides=values, report=quiet,
        keep_checkpoints=True, **how,
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """swap.jsonl: two words, to be written in the other order."""
    path = tmp_path_factory.mktemp("rows") / "swap.jsonl"
    path.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in ROWS))
    return path


@pytest.fixture(scope="module")
def one_row(tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[..., Any]) -> Folder:
    """`one_row("unilm")` or "gpt2": a fresh network that answers a text in its own row, as a folder."""
    made: dict[str, Path] = {}
    reading = Reading(
        "[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first", orders=("open", "source_to_target"), segments=(4, 5)
    )
    kinds: dict[str, tuple[dict[str, Any], str, str, Reading]] = {
        "unilm": ({"segments": 6, "layers": 2}, "open", "bert", reading),
        "gpt2": ({"norm": "pre", "initial.residual": "scaled"}, "left_to_right", "gpt2", Reading("{A}", None, "last")),
    }

    def export(name: str) -> Path:
        if name not in made:
            further, order, like, how = kinds[name]
            pieces = checkpoint(like).tokenizer
            arguments = {"layers": 1, "width": 32, "heads": 2, "positions.max_length": 40, "dropout": 0.0, "initial.std": 0.1,
                **further}
            with torch.random.fork_rng():
                torch.manual_seed(0)
                network = network_of("transformer", **arguments, vocab_size=pieces.size, clock=Clock())
                head = token_prediction(tie=True, width=32, vocab_size=pieces.size, table=network.token_tables["tokens"])
            heads = {"words": PortableHead("token_prediction", {"tie": True}, head.state_dict())}
            made[name] = tmp_path_factory.mktemp("rows") / name
            export_folder(
                made[name], model=PortableModel(data("transformer", **arguments), order, network.state_dict(),
                    heads), tokenizer=pieces, reading=how,
                card=Card(name),
            )
        return made[name]

    return export


KINDS = {"t5": "writer", "bart": "writer", "unilm": "one_row", "gpt2": "one_row"}


@pytest.fixture(scope="module")
def start(writer: Folder, one_row: Folder) -> Folder:
    """An untrained checkpoint of every kind that writes."""
    return lambda name: (one_row if KINDS.get(name) == "one_row" else writer)(name)


@pytest.fixture(scope="module")
def tuned(start: Folder, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """`tuned("t5")`: what came of teaching such a network to swap words."""
    made: dict[str, Any] = {}

    def train(name: str) -> Any:
        if name not in made:
            made[name] = tune(start(name), rows, tmp_path_factory.mktemp("tuned") / name, *VALUES)
        return made[name]

    return train


def test_of_several_tasks_the_dev_metrics_that_have_a_price_are_those_of_the_result(
    writer: Folder, rows: Path, tmp_path: Path
) -> None:
    own = LabelledFiles("text_to_text", (str(rows),), (str(rows),))
    values = ["training.batch=6", "training.epochs=1", "length=32", "network.dropout=0"]
    made = finetune(writer("t5"), tasks={"one": own, "two": own}, out=tmp_path / "out", overrides=values, report=quiet)
    loaded = load_checkpoint(made.folder)
    for name in ("one", "two"):
        learner, told = load_tuned(loaded, name=name)
        assert told["dev"].keys() == learner.task.metrics.keys() > {"loss", "rougeL"}
        assert told["dev"] == pytest.approx(learner.measure(learner.encode_labelled(learner.task.read(rows))))
    assert made.task_json["spread"].keys() == {"mean", "one/loss", "two/loss"}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_network_learns_to_swap_words_and_its_folder_says_the_same(
    tuned: Callable[[str], Any], start: Folder, rows: Path, name: str
) -> None:
    made = tuned(name)
    dev = made.task_json["dev"]
    assert dev["exact_match"] == dev["rougeL"] == 1.0 and made.task_json["spread"].keys() == {"loss"}
    assert made.task_json["baseline"] == pytest.approx(
        {"always": ROWS[0][1], "exact_match": 1 / 6, "f1": 0.5, "rouge1": 0.5, "rouge2": 1 / 6, "rougeL": 0.5,
         "chrf": chrf([ROWS[0][1]] * 6, [[target] for _, target in ROWS])}
    )  # fmt: skip
    before, again = load_checkpoint(start(name)), load_checkpoint(made.folder)
    assert again.order == before.order and again.heads.keys() == before.heads.keys()
    learner, described = load_tuned(again)
    assert described["target_length"] == learner.target_length == 12
    examples = learner.task.read(rows)
    assert evaluate(learner, examples).metrics == pytest.approx(dev, abs=1e-5)
    searching, _ = load_tuned(again, learner.task.with_beam_search(beams=2, length_penalty=0.5))
    for one in (learner, searching):
        assert [output.record()["output"] for output in one.predict(examples)] == [target for _, target in ROWS]


@pytest.mark.parametrize("name", ["t5", "mass", "unilm", "gpt2"])
def test_what_is_trained_is_laid_out_as_what_is_measured(start: Folder, tmp_path: Path, name: str) -> None:
    """The learner frames dev files as text, the run reads the store: both show the network the same tokens."""
    rows = tmp_path / "rows.jsonl"
    texts = [("cat dog night mice garden river", "cheese cat dog night mice garden"), ("cat", "dog"), ("", "night")]
    rows.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in texts))
    loaded = load_checkpoint(start(name))
    recipe = recipe_onto("text_to_text", loaded, overrides=["length=14", "exercise[1].max_length=6", "training.batch=2"])
    source = build_part(recipe.sources["main"])
    store = source.build_store([rows], loaded.tokenizer, tmp_path / "store", base=None, report=quiet)
    step = build_step(recipe, vocab_size=loaded.tokenizer.size)
    feed = build_feed(recipe, recipe.entries["main"], store, step, TokenFacts.of(loaded.tokenizer), length=14, seed=1)
    made, _ = feed.examples(0, np.argsort(feed.source.plan(0, feed.exercise.max_tokens).order))
    learner = task("text_to_text").load(loaded, {"length": 14, "target_length": 6})
    for row, pair in enumerate(learner.encode_labelled(learner.task.read(rows))):
        length = int(made["length"][row])
        shown, view = made["tokens"][row, :length].copy(), "decoder." if "decoder.tokens" in made else ""
        targets = made[f"{view}targets/main"][row]
        assert length <= 14 and len(pair.target) <= 6
        if view:
            number = int(made["decoder.length"][row])
            assert shown.tolist() == pair.source.ids.tolist() and targets[:number].tolist() == pair.target.tolist()
            assert made["decoder.tokens"][row, 1:number].tolist() == pair.target[:-1].tolist()
            continue
        places = made["positions/main"][row][made["positions/main"][row] >= 0]
        asked = places + (name == "gpt2")  # it is asked one place earlier
        shown[asked] = targets[: len(places)]
        assert shown.tolist() == [*pair.source.ids, *pair.target] and asked.min() >= len(pair.source)
        assert name == "unilm" or len(places) == len(pair.target)
        if name == "unilm":
            assert made["segments"][row, :length].tolist() == [4] * len(pair.source) + [5] * len(pair.target)


def test_the_decoder_begins_as_its_architecture_does(writer: Folder) -> None:
    framed = {"t5": ("[PAD]", "{A} [EOS]"), "bart": ("[SEP]", "[CLS] {A} [SEP]"), "mass": ("[SEP]", "[CLS] {A} [SEP]")}
    for name, (begin, template) in framed.items():
        recipe = recipe_onto("text_to_text", load_checkpoint(writer(name)))
        answer = next(edit.part.arguments for edit in recipe.entries["main"].exercise if edit.part.name == "answer")
        assert (answer["start"], answer["frame"], recipe.reading.single) == (begin, template, template)


def test_a_padded_batch_of_targets_has_the_sum_of_their_losses(writer: Folder, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,target\ncat,dog\ncat dog,night\ndog,cat dog night\n")
    learner = task("text_to_text").load(load_checkpoint(writer("t5")), {})
    some = learner.encode_labelled(learner.task.read(rows))
    assert len({len(row.target) for row in some}) > 1
    form, head = form_of(learner.reader), learner.head
    with torch.inference_mode():
        alone = [value for row in some for value in form.log_probabilities(head, [row])]
        assert form.log_probabilities(head, some) == pytest.approx(alone, rel=1e-5)
    loss = -sum(alone) / sum(len(row.target) for row in some)
    assert learner.measure(some, "loss", size=2) == {"loss": pytest.approx(loss, rel=1e-5)}


def test_what_is_written_has_no_special_tokens_as_transformers_decodes_it(
    writer: Folder, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = task("text_to_text").load(load_checkpoint(writer("t5-sentinels")), {})
    tokenizer = learner.reader.tokenizer
    first, second = tokenizer.sentinels[:2].tolist()
    ids = [first, *tokenizer.encode("the cat").ids.tolist(), second, tokenizer.role("[UNK]")]
    monkeypatch.setattr(learner._form, "write", lambda head, sources, manner: [Continuation(tuple(ids), True) for _ in sources])
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(writer("t5-sentinels"))).decode(ids, skip_special_tokens=True)
    assert "<extra_id_0>" in tokenizer.decode(ids, skip_special=False)
    made = learner.predict(learner.task.read(rows, labelled=False))
    assert {one.output for one in made} == {theirs} and "extra_id" not in theirs and "cat" in theirs


def test_the_values_of_the_recipe_reach_the_folder(writer: Folder, rows: Path, tmp_path: Path) -> None:
    values = ["corpus.answer.prefix='say: '", "objectives[0].smoothing=0.2", "task.beams=2", "task.length_penalty=0.5"]
    made = tune(writer("t5"), rows, tmp_path / "out", *SHORT, *values, "training.epochs=1", "task.metric=rougeL")
    assert made.task_json["spread"].keys() == made.task_json["dev"].keys() > {"loss", "rougeL"}  # the choice needed them
    told = task_in_folder(tmp_path / "out")
    assert told.prefix == "say: " and (told.search.count, told.search.length_penalty) == (2, 0.5)
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    (row, *_) = learner.encode_labelled(told.read(rows))
    assert learner.reader.tokenizer.decode(row.source.ids) == "say cat cheese"  # ":" is no piece
    plain = recipe_onto("text_to_text", load_checkpoint(writer("t5")), overrides=["objectives[0].smoothing=0.2"])
    assert [objective.part.arguments["smoothing"] for _, objective in plain.entries["main"].objectives()] == [0.2]


def test_what_does_not_fit_is_cut_counted_and_keeps_its_end(writer: Folder, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    texts = [("cat dog rain night mice", "cat dog rain night mice"), ("cat", "dog")]
    path.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in texts))
    learner = task("text_to_text").load(load_checkpoint(writer("t5")), {"length": 6, "target_length": 5})
    first, second = learner.encode_labelled(learner.task.read(path))
    end = learner.reader.tokenizer.role("[EOS]")
    assert first.cut == {"text": first.source.cut, "target": first.lost} and first.lost > 0 and first.source.cut > 0
    assert len(first.source) == 6 and len(first.target) == 5 and first.target[-1] == end and second.target[-1] == end
    assert first.references[0].split() == texts[0][1].split()
    assert "1 of 2 texts are longer than 6 tokens" in evaluate(learner, learner.task.read(path)).remarks[1]


def test_targets_are_compared_as_the_vocabulary_spells_them(writer: Folder, tmp_path: Path) -> None:
    path = tmp_path / "foreign.csv"
    path.write_text("text,target\ncat,ж\ndog,the cat\n", encoding="utf-8")
    learner = task("text_to_text").load(load_checkpoint(writer("mass")), {})
    assert [row.references for row in learner.encode_labelled(learner.task.read(path))] == [("[UNK]",), ("the cat",)]
    named, remark = (
        line for line in evaluate(learner, learner.task.read(path)).remarks if line.startswith(("ROUGE", "1 of 2 targets are c"))
    )
    assert named.startswith("ROUGE and F1 compare lower-case words") and named.endswith("of several references the best counts.")
    assert remark == "1 of 2 targets are compared as the vocabulary spells them, not as the file does."


def test_a_run_that_was_stopped_resumes_bit_for_bit(
    one_row: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.training.run_progress import RunProgress

    rows = tmp_path / "several.jsonl"
    rows.write_text("".join(json.dumps({"text": a, "target": [b, a, b + " " + a]}) + "\n" for a, b in ROWS))
    values = [*SHORT, "training.evaluate_every=epoch", "network.dropout=0.1"]
    tune(one_row("unilm"), rows, tmp_path / "whole", *values)
    finished = RunProgress.advance

    def killed(self: RunProgress, *given: Any, **more: Any) -> Any:
        if self.step == 3:
            raise KeyboardInterrupt
        return finished(self, *given, **more)

    monkeypatch.setattr(RunProgress, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(one_row("unilm"), rows, tmp_path / "broken", *values)
    monkeypatch.setattr(RunProgress, "advance", finished)
    tune(one_row("unilm"), rows, tmp_path / "broken", *values)
    whole, resumed = (Checkpoints(tmp_path / name).load()[1] for name in ("whole", "broken"))
    assert all(torch.equal(tensor, resumed[key]) for key, tensor in whole.items())


def test_the_epoch_of_least_loss_is_kept(
    writer: Folder, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.tasks.kinds.text_to_text import Answerer

    figures = iter([3.0, 1.0, 2.0, 1.0, 7.0])
    asked: list[Any] = []

    def measure(self: Any, rows: Any, metric: str | None = None, **more: Any) -> dict[str, float]:
        asked.append(metric)
        return {"loss": next(figures), **({} if metric == "loss" else {"exact_match": 0.25})}

    monkeypatch.setattr(Answerer, "measure", measure)
    values = [*SHORT, "training.epochs=9", "training.evaluate_every=epoch", "task.patience=2"]
    made = tune(writer("t5"), rows, tmp_path / "out", *values)
    standing = made.outcomes[1].standing
    assert (standing.evaluation, standing.evaluations, standing.step) == (2, 4, 4)
    assert asked == ["loss"] * 4 and made.task_json["dev"]["loss"] == 1.0 and "exact_match" in made.task_json["dev"]


def test_finetune_evaluate_predict_follow_each_other(
    cloze: Any, tuned: Callable[[str], Any], writer: Folder, rows: Path, tmp_path: Path
) -> None:
    line = ["finetune", writer("t5"), "--task", "text_to_text", "--set", "exercise[1].max_length=12"]
    for value in ("length=32", "training.epochs=1", "training.batch=6"):
        line += ["--set", value]
    line += ["--train", rows, "--dev", rows, "--test", rows, "--device", "cpu"]
    done = cloze(*line, "--out", tmp_path / "new")
    assert done.code == 0 and "exact_match" in done.out and "test rougeL: " in done.out
    out = tuned("t5").folder
    described = json.loads((out / "cloze" / "task.json").read_text())
    assert described["columns"] == {"text": "text", "label": "target"} and described["task"] == "text_to_text"
    measured = json.loads(cloze("evaluate", out, rows, "--beams", 2, "--json").out)[str(rows)]
    assert measured["metrics"]["exact_match"] == 1.0 and measured["metrics"]["loss"] == pytest.approx(described["dev"]["loss"])
    assert f"always {described['baseline']['always']!r}" in cloze("evaluate", out, rows).out
    plain = tmp_path / "texts.csv"
    plain.write_text("text\ncat garden\n")
    assert json.loads(cloze("predict", out, plain).out) == {
        "line": 2, "text": "cat garden", "output": "garden cat", "ended": True
    }  # fmt: skip
    assert cloze("predict", out, plain, "--beams", 2, "--out", tmp_path / "p.jsonl").code == 0
    assert cloze("generate", out, "cat garden", "--greedy", "--tokens", 12).out == "garden cat\n"


@pytest.mark.parametrize("name", ["unilm", "gpt2"])
def test_a_tuned_network_without_a_decoder_generates_and_scores_answers(
    cloze: Any, tuned: Callable[[str], Any], rows: Path, name: str
) -> None:
    out, (text, target) = tuned(name).folder, ROWS[0]
    assert "source_to_target" in load_checkpoint(out).reading.orders
    assert cloze("generate", out, text, "--greedy", "--tokens", 12).out == target + "\n"
    lines = [f"{text}\t{target}", f"{text}\t{text}"]
    shown = cloze("score", out, *lines, "--order", "source_to_target").out.splitlines()
    right, wrong = (float(line.split("\t")[0]) for line in shown)
    assert right > wrong + 2 and [line.split("\t", 2)[2] for line in shown] == lines
    line = ["score", out, "--file", rows, "--order", "source_to_target", "--perplexity", "--json"]
    whole = json.loads(cloze(*line).out)
    assert np.log(whole["perplexity"]) == pytest.approx(tuned(name).task_json["dev"]["loss"], abs=1e-4)
    assert whole["texts"] == len(ROWS) and len(cloze("score", out, text).out.split("\t")) == 3
    assert whole["bytes"] == sum(len(answer.encode()) + 1 for _, answer in ROWS)  # the end is scored and counts as one


def test_how_much_of_a_target_is_hidden_is_a_value(one_row: Folder) -> None:
    loaded = load_checkpoint(one_row("unilm"))
    assert isinstance(writing_form(loaded), ByGaps)
    for values, share in (([], 0.7), (["exercise.mask.rate=0.4"], 0.4)):
        edits = recipe_onto("text_to_text", loaded, overrides=values).entries["main"].exercise
        assert [edit.part.arguments["rate"] for edit in edits if edit.part.name == "mask"] == [share]


TRAIN = ["finetune", "{t5}", "--train", "{rows}", "--dev", "{rows}", "--out", "{here}/o", "--task", "text_to_text"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([*TRAIN, "--set", "corpus.label=targt"], "no column 'targt'; it has: text, target"),
        ([*TRAIN, "--set", "exercise[1].max_length=0"], "got 0, expected a whole number of 1 or more"),
        ([*TRAIN, "--set", "objectives[0].smoothing=1.0"], "got 1.0, expected a number of 0 or more and below 1"),
        ([*TRAIN, "--set", "task.metric=accuracy"], "unknown metric 'accuracy'"),
        ([*TRAIN, "--set", "exercise.mask.rate=0.5"], "exercise has no item 'mask'"),
        ([*TRAIN[:1], "{bert}", *TRAIN[2:]], "text_to_text needs a network that writes; this one only reads (open)"),
        ([*TRAIN[:1], "{electra}", *TRAIN[2:]], "needs a"),
        (["evaluate", "{t5}", "{rows}"], "not fine-tuned"),
    ],
)
def test_wrong_input_is_told_in_a_line_or_two_and_leaves_nothing(
    cloze: Any, writer: Folder, folder: Folder, rows: Path, tmp_path: Path, line: list[str], message: str
) -> None:
    names = {"t5": writer("t5"), "gpt2": folder("gpt2"), "electra": folder("electra"), "bert": folder("bert")}
    shown = cloze(*(part.format(**names, rows=rows, here=tmp_path) for part in line))
    assert shown.code == 2 and message in shown.err and shown.out == ""
    assert len(shown.err.strip().splitlines()) <= 3 and "Traceback" not in shown.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_empty_target_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text('text,target\ncat,dog\ndog," "\n')
    with pytest.raises(TaskError, match=r"bad\.csv:3: an empty 'target'; expected a text to write in every row"):
        task("text_to_text").read(path)
    assert task("text_to_text").read(path, labelled=False).labels is None


def test_lists_in_json_lines_are_references_and_sentences(tmp_path: Path) -> None:
    path = tmp_path / "several.jsonl"
    lines = [{"text": ["cat.", "dog."], "target": ["one", "two"]}, {"text": "night", "target": "[three]"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    examples = task("text_to_text").read(path)
    assert examples.texts == ["cat. dog.", "night"] and examples.labels == [("one", "two"), ("[three]",)]
    path.write_text('{"text": "cat", "target": ["one", ""]}\n')
    with pytest.raises(TaskError, match=r"several\.jsonl:1: an empty 'target'"):
        task("text_to_text").read(path)


def test_bleu_without_its_package_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(TaskError, match=r"--bleu needs the package sacrebleu, .* pip install 'cloze-lm\[bleu\]'"):
        task("text_to_text", bleu="13a")
    with pytest.raises(TaskError, match="--bleu zhh: no such tokenization. Did you mean 'zh'"):
        task("text_to_text", bleu="zhh")


def test_bleu_is_told_with_its_signature(writer: Folder, rows: Path) -> None:
    pytest.importorskip("sacrebleu")
    learner = task("text_to_text", bleu="char").load(load_checkpoint(writer("t5")), {"target_length": 4})
    found = evaluate(learner, learner.task.read(rows), constant_answer=ROWS[0][1])
    assert found.metrics.keys() == learner.task.metrics.keys() and "bleu" in found.metrics
    assert 0 < found.baseline["bleu"] < 100 and "tok:char" in found.remarks[1]


@pytest.mark.parametrize("targets", [["A B C", "D E F"], ["今天天气很不错"]])
def test_a_bleu_that_no_text_could_raise_above_0_is_explained(targets: list[str]) -> None:
    """mjpost/sacrebleu#114: the right texts have a BLEU of 0 where no target has four words."""
    pytest.importorskip("sacrebleu")
    wanted = [[target] for target in targets]
    assert bleu(bleu_metric("13a"), targets, wanted) == 0
    (_, remark) = task("text_to_text", bleu="13a").remarks(wanted)
    assert remark.startswith("BLEU is 0 whatever is written, because no target has four words as '13a' cuts them: --bleu zh cuts")
    assert len(task("text_to_text", bleu="char").remarks([["今天天气很不错"]])) == 1


def test_a_beam_search_is_for_tasks_that_write() -> None:
    with pytest.raises(TaskError, match="are for tasks that write a text; sentence_classification chooses a label"):
        task("sentence_classification").with_beam_search(beams=2, length_penalty=None)
    with pytest.raises(TaskError, match="give --beams too"):
        task("text_to_text").with_beam_search(beams=None, length_penalty=2.0)


def test_a_body_without_a_head_cannot_write(writer: Folder) -> None:
    headless = SimpleNamespace(**{**vars(load_checkpoint(writer("t5"))), "heads": {}})
    with pytest.raises(CheckpointError, match="needs a head that predicts tokens; this checkpoint has: none"):
        task("text_to_text").load(headless, {})


def test_the_way_of_a_checkpoint_is_asked_of_a_companion() -> None:
    from cloze.exercises.companions.answer import DecoderAnswer

    with pytest.raises(RecipeError, match="name it, for example of: target"):
        DecoderAnswer(frame="reading")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["{t5}", "no tab"], "'no tab': 0 tabs, expected one. This network scores a text as the answer to another"),
        (["{t5}", "--file", "{here}/x.tsv"], "no such file"),
        (["{t5}", "--file", "{rows}", "--target", "targt"], "expected the columns text and targt, found: text, target"),
        (["{t5}", "--file", "{odd}"], "expected the columns text and target, found: question, answer.\n  Name them with --field"),
        (["{t5}", "--file", "{rows}", "--memory", "4"], "--segment and --ends are for texts that follow each other"),
        (["{t5}", "--file", "{rows}", "--ends"], "--segment and --ends are for texts that follow each other"),
        (["{t5}", "--pairs", "{rows}"], "sentence_good"),
        (["{gpt2}", "a\tb", "--order", "source_to_target"], "does not read in the order source_to_target"),
        (["{gpt2}", "a", "--memory", "4"], "--memory is for networks that remember what they read before"),
        (["{gpt2}", "a", "--clamp", "4"], "configure --memory"),
        (["{gpt2}", "a", "--pointer-share", "0.5"], "configure --pointer. Add it, such as --pointer 500"),
        (["{gpt2}", "a", "--pointer-scale", "1.0"], "configure --pointer"),
        (["{gpt2}", "a", "--memory", "4", "--pointer", "2"], "--memory is for networks that remember what they read before"),
        (["{gpt2}", "--pairs", "{rows}", "--pointer", "2"], "Omit one of them"),
        (["{gpt2}", "--pairs", "{rows}", "--perplexity"], "Omit one of them"),
    ],
)
def test_faults_of_scoring_are_told(
    cloze: Any, writer: Folder, one_row: Folder, rows: Path, tmp_path: Path, line: list[str], message: str
) -> None:
    names = {"t5": writer("t5"), "gpt2": one_row("gpt2"), "rows": rows, "here": tmp_path, "odd": tmp_path / "odd.tsv"}
    names["odd"].write_text("question\tanswer\ncat dog\tdog cat\n")
    shown = cloze("score", *(part.format(**names) for part in line))
    assert shown.code == 2 and message in shown.err and shown.out == "" and len(shown.err.strip().splitlines()) <= 3


def test_an_encoder_decoder_scores_answers_from_lines_and_tables(cloze: Any, writer: Folder, tmp_path: Path) -> None:
    lines, table = tmp_path / "pairs.txt", tmp_path / "pairs.tsv"
    lines.write_text("cat dog\tdog cat\nriver\tnight\n")
    table.write_text("text\ttarget\ncat dog\tdog cat\nriver\tnight\n")
    one, two = (cloze("score", writer("bart"), "--file", path) for path in (lines, table))
    assert one.code == 0 and one.out == two.out and one.out.splitlines()[1].endswith("\triver\tnight")
    record = json.loads(cloze("score", writer("bart"), "river\tnight", "--json").out)
    assert record["text"] == "river" and record["target"] == "night" and record["method"] == "log_probability"
    assert f"{record['score']:.4f}" == one.out.splitlines()[1].split("\t")[0]


@pytest.mark.parity
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_transformers_opens_the_folder_with_the_same_loss_and_writes_the_same(
    tuned: Callable[[str], Any], rows: Path, name: str
) -> None:
    transformers = pytest.importorskip("transformers")
    made = tuned(name)
    assert all("that the model is trained on" in remark for remark in made.task_json["remarks"])  # dev rows are training rows
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(made.folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(made.folder)
    encoded = tokenizer(
        [text for text, _ in ROWS], text_target=[target for _, target in ROWS], padding=True, return_tensors="pt"
    )
    labels = encoded["labels"].masked_fill(encoded["labels"] == tokenizer.pad_token_id, -100)
    read = {key: encoded[key] for key in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        loss = float(model(**read, labels=labels).loss)
        written = model.generate(**read, max_new_tokens=12, num_beams=3)
    assert made.task_json["dev"]["loss"] == pytest.approx(loss, abs=1e-4)
    beam, _ = load_tuned(load_checkpoint(made.folder), task("text_to_text").with_beam_search(beams=3, length_penalty=None))
    theirs = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [one.record()["output"].split() for one in beam.predict(beam.task.read(rows))] == [text.split() for text in theirs]
