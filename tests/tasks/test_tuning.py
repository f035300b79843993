"""Fine-tuning as a run: a recipe onto a checkpoint, labelled text as its corpus, the best checkpoint by dev metrics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.budget.fit_task import TaskFacts, fit_task
from cloze.budget.row_counts import RowCounts, count_rows
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.several import LabelledFiles
from cloze.cli.main import main
from cloze.cli.train.finetune_output import print_result
from cloze.errors import CheckpointError, ClozeError, TaskError
from cloze.networks.clock import Clock
from cloze.objectives.classify import classify
from cloze.objectives.labels.head_from_checkpoint import HeadFacts, TextClassification
from cloze.recipe.load import load_recipe, read_builtin, task_recipe_names
from cloze.recipe.recipe import Recipe, as_plain_data
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned, read_task_entries
from cloze.training.checkpoints.checkpoint import Checkpoints

QUICK = ["training.batch=8", "training.epochs=3", "training.rate.peak=2e-3", "corpus.length=24", "task.patience=0"]
SAID = ["the", "cat", "dog", "saw", "rain"]
LEARN = [*QUICK, "training.epochs=6", "training.rate.peak=5e-3", "objectives[0].dropout=0", "network.dropout=0"]


def quiet(line: str) -> None:
    pass


def tune(folder: Path, tables: Path, out: Path, *values: str, **how: Any) -> Any:
    return finetune(
        folder, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out, overrides=values, report=quiet,
        **{"keep_checkpoints": True, **how},
    )


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = (out / "cloze" / "log.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == kind]


@pytest.mark.parametrize("system", ["bert", "roberta", "electra", "gpt2", "modern", "modern-decoder"])
def test_every_system_learns_an_easy_task_and_its_folder_says_the_same(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, system: str
) -> None:
    longer = ["training.epochs=10"] if system == "electra" else []  # its embeddings are narrow
    made = tune(folder(system), tables, tmp_path / "out", *LEARN, *longer)
    standing = made.outcomes[1].standing
    assert standing.metrics["accuracy"] >= 0.9
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    measured = evaluate(learner, learner.task.read(tables / "dev.tsv"), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(standing.metrics)
    assert learner.labels == ("animal", "weather")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "animal", "1": "weather"}
    assert config.get("classifier_pooling") == ("mean" if system == "modern" else None)


def test_a_text_is_classified_by_the_mean_where_no_summary_was_trained_and_transformers_has_a_class_for_it() -> None:
    plain = HeadFacts("open", 2, plain=("gelu", 1e-5))
    assert TextClassification().resolve(plain)[1]["reading"] == "mean"
    assert TextClassification().resolve(plain._replace(sums_up=True))[1]["reading"] == "summary"
    assert TextClassification(pool="summary").resolve(plain)[1]["reading"] == "summary"
    last = TextClassification().resolve(plain._replace(order="left_to_right"))[1]
    assert (last["reading"], last["output_bias"]) == ("summary", False)
    assert last["transform"] == {"gelu": {"norm_epsilon": 1e-5, "biases": False}}
    bert = HeadFacts("open", 2)
    assert TextClassification().resolve(bert)[0] == "relation_prediction"
    mean = {"set": "label", "dropout": 0.1, "reading": "mean", "transform": "tanh"}
    assert TextClassification(pool="mean").resolve(bert) == ("classify", mean | {"class_weights": None})


def test_the_mean_that_is_classified_leaves_padding_out() -> None:
    objective = classify(set="label", reading="mean", width=4, clock=Clock())
    states = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    batch = {"block": torch.tensor([[1, 1, 0], [1, 1, 1]]), "positions/label": torch.tensor([1, 0])}
    expected = torch.stack([states[1].mean(0), states[0, :2].mean(0)])
    torch.testing.assert_close(objective.rows({"hidden": states}, batch), expected)


def test_a_task_recipe_is_a_recipe_and_a_checkpoint_completes_it(folder: Callable[[str], Path]) -> None:
    assert {"sentence_classification", "pair_classification", "token_labelling"} <= set(task_recipe_names())
    plain = load_recipe("sentence_classification")
    assert not plain.is_complete and plain.task is not None
    onto = recipe_onto("sentence_classification", load_checkpoint(folder("bert")), overrides=["network.dropout=0.3"])
    assert onto.is_complete and onto.exported.part is not None
    assert onto.exported.part.name == "transformer" and onto.exported.part.arguments["dropout"] == 0.3
    entry = onto.entries["main"]
    assert entry.exercise[0].part.arguments["template"] == onto.reading.single == "[CLS] {A} [SEP]"
    assert [objective.part.name for _, objective in entry.objectives()] == ["relation_prediction"]
    assert onto.training.rate.arguments["peak"] == pytest.approx(5e-5 * 768 / onto.exported.part.arguments["width"], rel=0.05)


def test_a_task_is_fitted_to_its_rows_and_to_how_the_checkpoint_was_trained(folder: Callable[[str], Path]) -> None:
    loaded, told = load_checkpoint(folder("bert")), []
    made = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(500, 2)}, report=told.append)
    assert (made.training.batch, made.training.epochs, made.task.patience) == (16, 13, 4)
    assert told[0].startswith("sentence_classification fitted to 500 rows and this checkpoint")
    assert "training.batch" in told[0] and "--set training.epochs=13" in told[0]
    again = [word for line in told[0].splitlines()[-1:] for word in line.split() if "=" in word]
    assert recipe_onto("sentence_classification", loaded, overrides=again).hash == made.hash
    few_updates = ["training.epochs=2", "training.batch=8"]
    mine = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(500, 2)}, overrides=few_updates)
    assert (mine.training.batch, mine.training.epochs) == (8, 2)
    slow = ["training.rate.peak=1e-5"]
    slower = recipe_onto("token_labelling", loaded, row_counts={"main": RowCounts(500, 2)}, overrides=slow)
    assert slower.training.layerwise_rates.arguments["times"] == 20  # of the user's own peak
    few = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(5, 2)})
    assert few.training.batch == 4
    many = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(20_000, 2)})
    assert (many.training.batch, many.training.epochs) == (32, 4)
    intents = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(1500, 150)}, report=told.append)
    assert intents.training.epochs == 26 and "1,222 updates for 150 classes" in told[-1]  # 8 for each class, 47 in an epoch
    rare = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(600, 600)})
    assert rare.training.epochs == 30


def test_a_recipe_that_freezes_layers_in_some_stage_is_trained_as_published_in_all(folder: Callable[[str], Path]) -> None:
    told: list[str] = []
    counts = {"main": RowCounts(100, 2)}
    made = recipe_onto("chain_thaw", load_checkpoint(folder("bert")), row_counts=counts, report=told.append)
    rates = [(one.recipe.training.batch, one.recipe.training.rate.arguments["peak"]) for one in made.stages]
    assert "training." not in "".join(told)
    assert rates == [(32, 1e-3)] + [(32, 1e-4)] * 4  # the head, the embeddings, two layers, everything


@pytest.mark.parametrize("name", ["patentbert", "sentence_classification"])
def test_a_recipe_as_published_keeps_every_value_of_its_file(folder: Callable[[str], Path], name: str) -> None:
    loaded, told = load_checkpoint(folder("bert")), list[str]()
    counts, values = {"main": RowCounts(40, 2)}, ["corpus.length=24"]
    made = recipe_onto(name, loaded, row_counts=counts, overrides=values, fit=False, report=told.append)
    written = load_recipe(name, overrides=values)
    assert made.training == written.training and made.training.new_heads == "drawn" and made.task == written.task
    assert made.exported.change == written.exported.change and told == []
    assert recipe_onto(name, loaded, row_counts=counts, overrides=values, report=told.append).hash != made.hash


def test_a_recipe_of_ones_own_is_fitted_only_if_asked(folder: Callable[[str], Path], tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(read_builtin("sentence_classification").replace("length: 128", "length: 24"))
    loaded, told, counts = load_checkpoint(folder("bert")), list[str](), {"main": RowCounts(500, 2)}
    assert recipe_onto(own, loaded, row_counts=counts, report=told.append).training.batch == 32 and told == []
    assert recipe_onto(own, loaded, row_counts=counts, fit=True, report=told.append).training.batch == 16
    assert told[0].splitlines()[0].endswith("(published → fitted; --as-published keeps the recipe, --set overrides):")


def test_a_checkpoint_that_reads_less_than_a_recipe_as_published_is_refused_with_the_way_out(
    folder: Callable[[str], Path]
) -> None:
    with pytest.raises(ClozeError, match="length: 128 tokens, but network 'main' has 40 positions"):
        recipe_onto("sentence_classification", load_checkpoint(folder("bert")), fit=False)


def test_the_rows_and_the_classes_of_labelled_files_are_counted(tables: Path) -> None:
    files = {"main": LabelledFiles("", (str(tables / "train.tsv"), str(tables / "dev.tsv")), ())}
    rows = sum(len((tables / name).read_text().splitlines()) - 1 for name in ("train.tsv", "dev.tsv"))
    assert count_rows(load_recipe("sentence_classification"), files) == {"main": RowCounts(rows, 2)}


def test_show_prints_the_recipe_that_the_rows_of_the_files_are_trained_by(
    folder: Callable[[str], Path], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["finetune", str(folder("bert")), "--show"]
    assert main(command) == 0 and "\n  batch: 32\n" in capsys.readouterr().out
    assert main([*command, "--train", str(tables / "train.tsv")]) == 0
    shown = capsys.readouterr().out
    rows = len((tables / "train.tsv").read_text().splitlines()) - 1
    assert f"\n  batch: {rows // 8}\n" in shown and "\n  epochs: 20" in shown and rows // 8 < 16


def test_words_are_labelled_by_the_head_that_transformers_has_for_the_network(folder: Callable[[str], Path]) -> None:
    found = {}
    for system in ("bert", "modern"):
        recipe = recipe_onto("token_labelling", load_checkpoint(folder(system)))
        (objective,) = [spec.part for _, spec in recipe.entries["main"].objectives()]
        assert objective.name == "sequence_labelling"
        found[system] = as_plain_data(objective.arguments)["transform"]
    assert found == {"bert": None, "modern": {"gelu": {"norm_epsilon": 1e-5, "biases": False, "times": 1}}}


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path
) -> None:
    outs = [tmp_path / name for name in "abc"]
    for out, seed in zip(outs, (1, 1, 2), strict=True):
        tune(folder("bert"), tables, out, *QUICK, seeds=(seed,))
    one, two, other = (Checkpoints(out).load()[1] for out in outs)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_the_best_epoch_is_kept_published_and_patience_ends_the_run(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.tasks.kinds.classification import Classifier

    figures = iter([0.5, 0.5, 0.5, 0.8, 0.8, 0.7, 0.9])  # a constant answer has 0.5: patience does not count there
    rest = {"macro_f1": 0.0, "matthews": 0.0}
    monkeypatch.setattr(Classifier, "measure", lambda self, *given, **more: {**rest, "accuracy": next(figures)})
    out = tmp_path / "out"
    values = [*QUICK, "training.epochs=7", "task.patience=2", "training.new_heads=drawn"]
    outcome = tune(folder("bert"), tables, out, *values).outcomes[1]
    assert (outcome.finished, outcome.standing.evaluation, outcome.standing.evaluations) == (True, 4, 6)
    assert [event["metrics"]["accuracy"] for event in events(out, "dev")] == [0.5, 0.5, 0.5, 0.8, 0.8, 0.7]
    assert outcome.standing.step == 32 and outcome.step == 48
    saved = Checkpoints(out)
    best, last = saved.load(32)[1], saved.load(48)[1]
    loaded = load_checkpoint(out)
    published = {f"networks.main.{name}": tensor for name, tensor in loaded.network.state_dict().items()}
    shared = [name for name in published if name in best]
    assert len(shared) > 5 and all(torch.equal(published[name], best[name]) for name in shared)
    assert any(not torch.equal(published[name], last[name]) for name in shared)
    again = tune(folder("bert"), tables, out, *values).outcomes[1]
    assert (again.step, again.standing) == (48, outcome.standing)


def test_a_run_that_patience_ends_between_two_checkpoints_saves_its_last_step(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.tasks.kinds.classification import Classifier

    figures = iter([0.5, 0.8, 0.7])
    rest = {"macro_f1": 0.0, "matthews": 0.0}
    monkeypatch.setattr(Classifier, "measure", lambda self, *given, **more: {**rest, "accuracy": next(figures)})
    out = tmp_path / "out"
    values = ["training.epochs=6", "task.patience=1", "task.keep=last", "training.checkpoint_every=1000"]
    outcome = tune(folder("bert"), tables, out, *QUICK, *values, "training.new_heads=drawn").outcomes[1]
    assert (outcome.step, outcome.standing.step) == (24, 16)
    weights, published = Checkpoints(out).load(24)[1], load_checkpoint(out).network.state_dict()
    assert all(torch.equal(tensor, weights[f"networks.main.{name}"]) for name, tensor in published.items())


def test_what_a_folder_says_of_dev_is_measured_on_the_last_checkpoint_where_that_is_kept_and_on_all_files(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.tasks.kinds.classification import Classifier

    figures = iter([0.8, 0.5])
    rest = {"macro_f1": 0.0, "matthews": 0.0}
    monkeypatch.setattr(Classifier, "measure", lambda self, *given, **more: {**rest, "accuracy": next(figures)})
    dev, more = tables / "dev.tsv", tmp_path / "more.tsv"  # as many of both, and three of one
    more.write_text("text\tlabel\n" + "a cat\tanimal\n" * 3)
    tuned = finetune(
        folder("bert"), train=[str(tables / "train.tsv")], dev=[str(dev), str(more)], out=tmp_path / "out", report=quiet,
        overrides=[*QUICK, "training.epochs=2", "task.keep=last", "training.new_heads=drawn"],
    )
    told = tuned.task_json
    assert (told["evaluation"], told["dev"]["accuracy"], told["trials"][0]["metrics"]["accuracy"]) == (2, 0.5, 0.5)
    count = len(dev.read_text().splitlines()) - 1
    usual = count / 2 + (3 if told["constant_answer"] == "animal" else 0)
    assert told["examples"]["dev"] == count + 3 and told["baseline"]["accuracy"] == pytest.approx(usual / (count + 3))


def test_dev_rows_are_read_once_per_evaluation_and_never_again_for_the_result(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.tasks.kinds.classification import Classifier

    counts: list[int] = []
    row_outputs = Classifier.row_outputs

    def counting(self: Classifier, rows: Any, *more: Any) -> Any:
        counts.append(len(rows))
        return row_outputs(self, rows, *more)

    monkeypatch.setattr(Classifier, "row_outputs", counting)
    out = tmp_path / "out"
    values = [*QUICK, "training.epochs=2", "training.rate.peak=1e-5"]  # stays above a constant answer, so nothing needs losses
    told = tune(folder("bert"), tables, out, *values, baselines=False).task_json
    # Before and after the head is fitted, where the network reads them once (test_frozen_start.py), and after two epochs.
    assert counts == [16, 16, 16, 16]
    assert len(events(out, "held_out")) == 1  # another pass, at the end
    learner, _ = load_tuned(load_checkpoint(out))
    evaluation = evaluate(learner, learner.task.read(tables / "dev.tsv"))
    assert told["dev_report"] == evaluation.details() and told["dev"] == pytest.approx(evaluation.metrics)


def test_a_run_that_was_stopped_resumes_bit_for_bit(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.training.run_progress import RunProgress

    tune(folder("bert"), tables, tmp_path / "whole", *QUICK)
    finished = RunProgress.advance

    def killed(self: RunProgress, *given: Any, **more: Any) -> Any:
        if self.step == 12:
            raise KeyboardInterrupt
        return finished(self, *given, **more)

    monkeypatch.setattr(RunProgress, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(folder("bert"), tables, tmp_path / "broken", *QUICK)
    monkeypatch.setattr(RunProgress, "advance", finished)
    outcome = tune(folder("bert"), tables, tmp_path / "broken", *QUICK).outcomes[1]
    whole, resumed = (Checkpoints(tmp_path / name) for name in ("whole", "broken"))
    assert all(torch.equal(tensor, resumed.load()[1][name]) for name, tensor in whole.load()[1].items())
    assert [e["metrics"] for e in events(tmp_path / "whole", "dev")] == [e["metrics"] for e in events(tmp_path / "broken", "dev")]
    assert outcome.standing is not None and resumed.best is None


def test_pairs_and_word_labels_are_tasks_too(folder: Callable[[str], Path], tables: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in (tables / "train.tsv").read_text().splitlines()[1:]]
    pairs = tmp_path / "pairs.csv"  # the class of the second text
    pairs.write_text("one,two,label\n" + "".join(f"{a},{b},{c}\n" for (a, _), (b, c) in zip(rows[5:], rows, strict=False)))
    values = [*LEARN, "corpus.text=one", "corpus.text_b=two"]
    made = finetune(
        folder("bert"), task="pair_classification", train=[str(pairs)], dev=[str(pairs)], out=tmp_path / "p", overrides=values,
        report=quiet,
    )
    assert made.outcomes[1].standing.metrics["accuracy"] >= 0.9
    tagged = tmp_path / "train.conll"
    tagged.write_text("the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\nsaw\tVERB\n\n" * 8, encoding="utf-8")
    values = ["training.batch=4", "training.epochs=12", "training.rate.peak=1e-2", "corpus.length=24"]
    made = finetune(
        folder("bert"), task="token_labelling", train=[str(tagged)], dev=[str(tagged)], out=tmp_path / "t", overrides=values,
        report=quiet,
    )
    assert made.outcomes[1].standing.metrics["accuracy"] >= 0.9
    learner, _ = load_tuned(load_checkpoint(tmp_path / "t"))
    measured = evaluate(learner, learner.task.read(tagged))
    assert measured.metrics == pytest.approx(made.outcomes[1].standing.metrics)
    shutil.copytree(tmp_path / "t", tmp_path / "theirs", ignore=shutil.ignore_patterns("cloze"))  # as transformers has it
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {"0": "DET", "1": "NOUN", "2": "VERB"}
    foreign, _ = load_tuned(load_checkpoint(tmp_path / "theirs"))
    assert evaluate(foreign, foreign.task.read(tagged)).metrics == pytest.approx(measured.metrics)


def test_what_is_measured_is_framed_as_what_is_trained(folder: Callable[[str], Path], tables: Path, tmp_path: Path) -> None:
    """The learner reads dev files as text, the held-out loss reads the store: both show the network the same ids."""
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.feeds import build_feed
    from cloze.corpus import Store
    from cloze.decoding.reader import Reader
    from cloze.exercises import TokenFacts

    text = tmp_path / "t.tsv"
    text.write_text("text\tlabel\nthe cat sat on the mat and the dog\tx\n\ty\nrain\ty\n", encoding="utf-8")
    for system in ("bert", "gpt2"):
        loaded = load_checkpoint(folder(system))
        recipe = recipe_onto("sentence_classification", loaded, overrides=["corpus.length=8"])
        out = tmp_path / system
        finetune(folder(system), train=[str(text)], dev=[str(text)], out=out,
                 overrides=["corpus.length=8", "training.batch=2", "training.epochs=1"], report=quiet)  # fmt: skip
        store = Store.open(out / "cloze" / "corpus" / "main" / "store")
        step = build_step(recipe, vocab_size=loaded.tokenizer.size)
        facts = TokenFacts.of(loaded.tokenizer)
        feed = build_feed(recipe, recipe.entries["main"], store, step, facts, length=8, seed=1)
        import numpy as np

        items = np.argsort(feed.source.plan(0, feed.exercise.max_tokens).order)
        part = feed.micro_batches([(0, items)], [3])[0].arrays
        reader = Reader.of(loaded)
        framed = reader.encode(["the cat sat on the mat and the dog", "", "rain"], max_length=8)
        batch = reader.batch(framed)
        assert part["tokens"].tolist() == batch["tokens"].tolist()
        empty = len(framed[1]) == 0  # read as a padding token by the learner, since attention to nothing is not a number
        assert batch["block"][1, 0] == 1 and part["block"][1, 0] == int(not empty)
        assert part["block"][[0, 2]].tolist() == batch["block"][[0, 2]].tolist()
        if system == "gpt2":
            assert part["summaries"].tolist() == batch["summaries"].tolist()


TEACHER = """
name: taught
corpus: {records: {length: 24}}
networks:
  teacher: {from: teacher, train: none}
  student: {from: start}
exercise: [{frame: reading}, {label: {set: label}}]
passes:
  - {network: teacher, grad: false, objectives: [text_classification: {head: classification, weight: 0}]}
  - {network: student, objectives: [text_classification: {head: taught}]}
training: {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 16, epochs: 2, held_out: 0.0, evaluate_every: epoch}
task: {type: sentence_classification}
export: student
"""


def test_a_recipe_of_ones_own_may_have_a_teacher(folder: Callable[[str], Path], tables: Path, tmp_path: Path) -> None:
    tune(folder("bert"), tables, tmp_path / "teacher", *QUICK)
    (tmp_path / "taught.yaml").write_text(TEACHER)
    how = {"recipe": tmp_path / "taught.yaml", "binds": [f"teacher={tmp_path / 'teacher'}"]}
    made = tune(folder("bert"), tables, tmp_path / "student", **how)
    assert made.outcomes[1].standing is not None
    kept = json.loads((tmp_path / "student" / "cloze" / "networks" / "teacher.json").read_text())  # by reference
    assert kept["folder"] == str(tmp_path / "teacher")
    assert load_tuned(load_checkpoint(tmp_path / "student"))[1]["head"] == "taught"


def test_a_finished_run_is_extended_and_a_changed_recipe_is_refused(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path
) -> None:
    values = [*QUICK, "training.new_heads=drawn"]
    short = [*values, "training.epochs=1"]
    assert tune(folder("bert"), tables, tmp_path / "out", *short).outcomes[1].step == 8
    longer = tune(folder("bert"), tables, tmp_path / "out", *values, extend=True, keep_checkpoints=False)
    assert longer.outcomes[1].step == 24 and longer.outcomes[1].standing.evaluations == 3
    assert not (tmp_path / "out" / "cloze" / "checkpoints").exists()
    again = tune(folder("bert"), tables, tmp_path / "out", *values)  # nothing is trained
    assert again.task_json == longer.task_json and again.outcomes[1].step == 24
    kept = "has finished with --seeds 1 and keeps no checkpoints, which {} needs.\n  Train again, .* add --keep-checkpoints"
    with pytest.raises(CheckpointError, match=kept.format("--extend")):
        tune(folder("bert"), tables, tmp_path / "out", *values, extend=True)
    with pytest.raises(CheckpointError, match=kept.format("--seeds 1,2")):
        tune(folder("bert"), tables, tmp_path / "out", *values, seeds=[1, 2])
    with pytest.raises(CheckpointError, match="holds a run of a different recipe"):
        tune(folder("bert"), tables, tmp_path / "out", *values, "training.batch=16")


def test_any_verb_puts_a_task_recipe_onto_the_checkpoint_that_is_bound(
    folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.cli.main import main

    values = ["--set", "length=24", "--bind", f"start={folder('gpt2')}"]
    assert main(["check", "sentence_classification", *values]) == 0
    shown = capsys.readouterr().out
    assert "order left_to_right" in shown and "gives summary" in shown
    for name in task_recipe_names():
        assert main(["check", name]) == 0 and main(["show", name]) == 0
        assert "from: start" in capsys.readouterr().out


def test_rows_read_in_parts_give_the_same_losses_and_the_report_shows_the_metrics(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path
) -> None:
    from cloze.reports.page import write_report

    values = [*QUICK, "training.epochs=1", "training.precision=fp32", "training.new_heads=drawn"]
    tune(folder("bert"), tables, tmp_path / "whole", *values)
    tune(folder("bert"), tables, tmp_path / "parts", *values, "training.micro_batch=2")
    whole, parts = ([event["loss"] for event in events(tmp_path / name, "train")] for name in ("whole", "parts"))
    assert len(whole) == 8 and parts == pytest.approx(whole, abs=1e-6)
    page = write_report(tmp_path / "whole").read_text()
    assert "accuracy on the dev examples" in page and "dev macro_f1" in page


def test_a_missing_dev_file_is_found_before_anything_is_written(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match=r"none\.tsv: no such file"):
        finetune(
            folder("bert"), train=[str(tables / "train.tsv")], dev=[str(tables / "none.tsv")], out=tmp_path / "out", report=quiet
        )
    assert not (tmp_path / "out").exists()


def test_a_sequence_of_labels_is_learned_where_single_words_do_not_tell_them(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """The same words are inside or outside by what stands before them; the answers are sequences of the scheme."""
    from cloze.schemes import breaks

    tagged = tmp_path / "train.conll"
    tagged.write_text("the\tO\ncat\tB-X\ncat\tI-X\n\na\tO\ndog\tB-Y\ndog\tI-Y\nsaw\tO\n\n" * 8, encoding="utf-8")
    values = [
        "training.batch=4", "training.epochs=6", "training.rate.peak=2e-3", "training.layerwise_rates.times=20",
        "corpus.length=24", "training.new_heads=drawn",
    ]
    made = finetune(
        folder("bert"), task="token_labelling_crf", train=[str(tagged)], dev=[str(tagged)], out=tmp_path / "t", overrides=values,
        report=quiet,
    )
    assert made.outcomes[1].standing.metrics["span_f1"] >= 0.9
    learner, told = load_tuned(load_checkpoint(tmp_path / "t"))
    assert told["task"] == "token_labelling" and learner.head.moves.abs().max() > 0.01
    assert evaluate(learner, learner.task.read(tagged)).metrics == pytest.approx(made.outcomes[1].standing.metrics)
    with torch.no_grad():
        learner.head.moves.zero_()
        learner.head.head.output.weight.normal_(std=3.0)  # answers at random, but none that breaks the scheme
    (tmp_path / "long.conll").write_text("".join(f"{word}\n" for word in SAID * 30), encoding="utf-8")
    (said,) = learner.predict(learner.task.read(tmp_path / "long.conll", labelled=False), size=4, report=lambda done: None)
    assert len(said.labels) == 150 and not breaks(said.labels) and max(said.probabilities) <= 1.0


def test_rows_are_made_for_an_epoch_at_most_before_they_are_trained(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 rows in steps of 8: labelled text has the same answers in every epoch, and one epoch makes no rows of others."""
    from cloze.batching import data

    finished, ahead = data.make_steps, list[int]()

    def counted(feed: Any, cursor: Any, batch: int, spans: Any, steps: int) -> Any:
        ahead.append(steps)
        return finished(feed, cursor, batch, spans, steps)

    monkeypatch.setattr(data, "make_steps", counted)
    tune(folder("bert"), tables, tmp_path / "out", *QUICK, "training.epochs=1")
    assert set(ahead) == {8} and len(ahead) <= 4


def test_a_recipe_for_another_task_than_the_named_one_is_refused(folder: Callable[[str], Path], tmp_path: Path) -> None:
    files = {"train": ["a.tsv"], "dev": ["b.tsv"], "out": tmp_path / "out"}
    for recipe in ("sentence_classification", "frozen_features"):
        expected = f"--task regression: the recipe {recipe} is for the task sentence_classification."
        with pytest.raises(TaskError, match=expected) as caught:
            finetune(folder("bert"), task="regression", recipe=recipe, **files)
        assert "Leave out --task, or leave out --recipe to train for regression." in str(caught.value)
    for task in ("sentence_classification", None):
        with pytest.raises(TaskError, match="a.tsv"):  # it goes on to the files
            finetune(folder("bert"), task=task, recipe="frozen_features", **files)


def test_a_task_about_words_says_what_a_network_that_reads_from_left_to_right_cannot_know(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def told(name: str, recipe: str) -> list[str]:
        notes: list[str] = []
        with pytest.raises(TaskError, match="a.conllu"):
            finetune(folder(name), recipe=recipe, train=["a.conllu"], dev=["b.conllu"], out=tmp_path / "out", report=notes.append)
        return notes

    (note,) = told("gpt2", "k-adapter-linguistic")
    assert note.startswith("note: this network reads from left to right") and "dependency_parsing" in note
    assert told("bert", "k-adapter-linguistic") == told("gpt2", "sentence_classification") == []


def test_a_task_that_a_folder_does_not_have_is_answered_with_the_one_that_it_has(tuned: Callable[..., Path]) -> None:
    with pytest.raises(TaskError, match="no task 'foo'. It was fine-tuned for one task, sentence_classification. Omit --task"):
        read_task_entries(tuned(), "foo")


def test_a_recipe_for_pre_training_is_refused_with_its_command(folder: Callable[[str], Path], tmp_path: Path) -> None:
    bert = folder("bert")
    bound = f"cloze pretrain simcse --bind start={bert} --corpus TEXT"
    for recipe, command in (("simcse", bound), ("tsdae", "cloze pretrain tsdae --bind start=")):
        with pytest.raises(TaskError, match=f"{recipe}: this recipe is for pre-training, on text without labels.") as caught:
            finetune(bert, recipe=recipe, train=["a.tsv"], dev=["b.tsv"], out=tmp_path / "out")
        assert command in str(caught.value)


def test_metrics_with_long_names_stay_in_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"micro_f1": 0.5, "mean_average_precision": 1.0}
    described = {
        "trials": [{"seed": 1, "evaluation": 2, "evaluations": 3}], "evaluate_every": "epoch", "seed": 1, "dev": values,
        "cut": {}, "examples": {},
        "spread": {name: {"mean": value, "deviation": 0.0} for name, value in values.items()},
        "baseline": {"always": "[]", "micro_f1": 0.0, "mean_average_precision": 0.25},
    }  # fmt: skip
    print_result(described, Path("out"), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "                        dev       always '[]'",
        "micro_f1                0.5000    0.0000",
        "mean_average_precision  1.0000    0.2500",
        "out: seed 1, epoch 2 of 3",
    ]
    described["trials"] += [{"seed": 2}]
    described["mixture"] = {"dev": {"micro_f1": 0.75}}
    print_result(described, Path("out"), as_json=False)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "                        dev, 2 seeds     always '[]'  mixture",
        "micro_f1                0.5000 ± 0.0000  0.0000       0.7500",
        "mean_average_precision  1.0000 ± 0.0000  0.2500",
    ]


def test_a_network_narrower_than_the_published_one_is_unfrozen_at_once_and_at_one_rate() -> None:
    gradual = load_recipe("ulmfit_classification")

    def found(recipe: Recipe, width: int, **given: Any) -> dict[str, Any]:
        return {change.path: change.fitted for change in fit_task(recipe, TaskFacts(None, width), **given)}

    every, by = "network.train.gradual.every", "training.layerwise_rates.divide.by"
    assert found(gradual, 128) == {every: 0.001, by: 1.0}
    assert found(gradual, 128, fixed_paths=[by]) == {every: 0.001}
    assert found(gradual, 400) == {} and found(load_recipe("siatl_classification"), 128) == {}
