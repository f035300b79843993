"""Several tasks at once and one after another: mixtures of labelled text, each with a dev set and a metric of its own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.feeds import odds_of
from cloze.checkpoint.several import LabelledFiles, parse_tasks, recipe_of_tasks
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.errors import CheckpointError, RecipeError, TaskError
from cloze.recipe.load import load_recipe
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.measure_result import text_files_of
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.run_progress import RunProgress

VALUES = ["training.batch=8", "training.epochs=2", "training.rate.peak=5e-3", "length=24", "task.patience=0"]


LEARN = [*VALUES, "training.epochs=6", "training.rate.peak=1e-2", "network.dropout=0", "training.new_heads=drawn"]


def quiet(line: str) -> None:
    pass


def _fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("task_fixtures", Path(__file__).parent.parent / "tasks" / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_theirs = _fixtures()
folder, tables = _theirs.folder, _theirs.tables


@pytest.fixture(scope="module")
def tasks(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LabelledFiles]:
    """Topics of texts, and parts of speech of words; half as many of the second."""
    tagged = tmp_path_factory.mktemp("tagged") / "train.conll"
    tagged.write_text("the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\nsaw\tVERB\n\n" * 12, encoding="utf-8")
    return {
        "topic": LabelledFiles("sentence_classification", (str(tables / "train.tsv"),), (str(tables / "dev.tsv"),)),
        "words": LabelledFiles("token_labelling", (str(tagged),), (str(tagged),)),
    }


@pytest.fixture(scope="module")
def tuned(folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder that has learned both."""
    out = tmp_path_factory.mktemp("several") / "out"
    return finetune(folder("bert"), tasks=tasks, out=out, overrides=LEARN, report=quiet)


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = (out / "cloze" / "log.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == kind]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return Checkpoints(out).load()[1]


def test_several_tasks_are_learned_at_once_and_their_mean_decides(tuned: Any) -> None:
    metrics = tuned.outcomes[1].standing.metrics
    assert metrics["topic/accuracy"] >= 0.9
    assert metrics["words/accuracy"] >= tuned.task_json["tasks"]["words"]["baseline"]["accuracy"] + 0.3
    assert metrics["mean"] == pytest.approx((metrics["topic/accuracy"] + metrics["words/span_f1"]) / 2)
    means = [event["metrics"]["mean"] for event in events(tuned.folder, "dev")]
    assert max(means) == metrics["mean"] and len(means) == 6
    assert {event["entry"] for event in events(tuned.folder, "held_out")} == {"topic", "words"}


def test_each_task_of_a_folder_answers_as_it_was_measured(tuned: Any, tasks: dict[str, LabelledFiles]) -> None:
    loaded = load_checkpoint(tuned.folder)
    for name, one in tasks.items():
        learner, told = load_tuned(loaded, name=name)
        found = evaluate(learner, learner.task.read(one.dev[0]), constant_answer=told["constant_answer"])
        own = {f"{name}/{metric}": value for metric, value in found.metrics.items()}
        assert own.items() <= {k: pytest.approx(v) for k, v in tuned.outcomes[1].standing.metrics.items()}.items()
        assert told["dev"].keys() == found.metrics.keys() and told["dev"] == pytest.approx(found.metrics)
        assert told["trials"][0]["metrics"] == told["dev"] and told["spread"].keys() == told["dev"].keys()
        assert told["baseline"] == found.baseline and told["examples"]["dev"] == found.examples


def test_evaluate_and_predict_name_one_of_several_tasks(
    tuned: Any, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = str(tables / "dev.tsv")
    assert main(["evaluate", str(tuned.folder), dev, "--task", "topic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[dev]["metrics"]["accuracy"]
    assert found == tuned.outcomes[1].standing.metrics["topic/accuracy"]
    assert main(["predict", str(tuned.folder), dev, "--task", "topic"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["label"] in ("animal", "weather")
    assert main(["evaluate", str(tuned.folder), dev]) == 2
    assert "was fine-tuned for several tasks. Choose one with --task: topic, words." in capsys.readouterr().err
    assert main(["evaluate", str(tuned.folder), dev, "--task", "topics"]) == 2
    assert "there is no task 'topics'. Did you mean 'topic'?" in capsys.readouterr().err


def test_one_of_several_tasks_is_exported_as_a_folder_of_its_own(tuned: Any, tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "topic"
    assert main(["export", str(tuned.folder), str(out), "--to", "huggingface", "--task", "topic"]) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "animal", "1": "weather"}
    learner, told = load_tuned(load_checkpoint(out))
    assert "| accuracy | " in (out / "README.md").read_text()
    both = tmp_path / "both"
    assert main(["export", str(tuned.folder), str(both), "--to", "huggingface"]) == 0
    assert "| topic/accuracy | " in (both / "README.md").read_text()
    found = evaluate(learner, learner.task.read(tables / "dev.tsv"), constant_answer=told["constant_answer"])
    assert found.metrics["accuracy"] == tuned.outcomes[1].standing.metrics["topic/accuracy"]
    assert main(["export", str(tuned.folder), str(tmp_path / "other"), "--to", "huggingface", "--task", "other"]) == 2


def test_labelled_text_is_built_once_and_a_run_takes_the_store(
    tuned: Any, tasks: dict[str, LabelledFiles], folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.checkpoint.inputs import store_digest

    out, topic = tmp_path / "store", tasks["topic"]
    command = ["corpus", "build", topic.train[0], "--task", "sentence_classification", "--out", str(out)]
    assert main(command) == 2
    assert "Give it: --tokenizer FOLDER" in capsys.readouterr().err
    assert main([*command, "--tokenizer", str(folder("bert"))]) == 0
    assert text_files_of([str(out), "b.tsv"]) == [topic.train[0], "b.tsv"]
    assert f"{out}: 64 rows" in capsys.readouterr().out
    assert store_digest(Store.open(out)) == store_digest(Store.open(tuned.folder / "cloze" / "corpus" / "topic" / "store"))
    made = finetune(folder("bert"), train=[str(out)], dev=topic.dev, out=tmp_path / "out", report=quiet,
                    overrides=[*VALUES, "training.epochs=1"])  # fmt: skip
    assert made.outcomes[1].step == 8


def test_a_round_of_the_deck_is_an_epoch_of_every_task(tuned: Any) -> None:
    recipe = load_recipe(tuned.folder)
    stores = {name: Store.open(tuned.folder / "cloze" / "corpus" / name / "store") for name in recipe.sources}
    assert odds_of(recipe, stores) == {"topic": 8.0, "words": 3.0}  # 64 and 24 rows in batches of 8
    assert tuned.outcomes[1].step == 6 * 11


MIXTURE = """
name: mixture
sources: {main: {records: {length: 24}}}
network: {from: start}
mixture:
  main:
    source: main
    odds: by_size
    exercise: [{frame: reading}, {label: {set: label}}]
    objectives: [text_classification: {set: label, dropout: 0.1, head: classification}]
    task: {type: sentence_classification, metric: accuracy}
training: {optimizer: {adamw: {weight_decay: 0.01}}, rate: {linear: {peak: 1e-2, warmup: 0.1}}, batch: 8, epochs: 2,
           clip: 1.0, held_out: 0.0, evaluate_every: epoch}
task: {patience: 0}
"""


def test_a_mixture_of_one_task_is_the_plain_run_bit_for_bit(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tmp_path: Path
) -> None:
    (tmp_path / "mixture.yaml").write_text(MIXTURE)
    topic = tasks["topic"]
    values = [
        "training.batch=8", "training.epochs=2", "training.rate.peak=1e-2", "length=24", "task.patience=0",
        "training.new_heads=drawn",
    ]
    plain = finetune(folder("bert"), train=topic.train, dev=topic.dev, out=tmp_path / "plain", overrides=values, report=quiet,
                     keep_checkpoints=True)  # fmt: skip
    mixed = finetune(folder("bert"), recipe=tmp_path / "mixture.yaml", train=topic.train, dev=topic.dev, out=tmp_path / "mixed",
                     report=quiet, keep_checkpoints=True)  # fmt: skip
    one, other = weights(tmp_path / "plain"), weights(tmp_path / "mixed")
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert mixed.outcomes[1].standing.metrics["mean"] == plain.outcomes[1].standing.metrics["accuracy"]


def test_a_mixture_that_was_killed_five_times_ends_bit_identical(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [*VALUES, "training.epochs=1", "training.batch=16", "training.evaluate_every=0.4", "training.checkpoint_every=2"]

    def run(out: Path) -> Any:
        return finetune(folder("bert"), tasks=tasks, out=out, overrides=values, report=quiet, keep_checkpoints=True)

    class Killed(BaseException):
        pass

    run(tmp_path / "whole")
    real = RunProgress.advance
    for last in (1, 2, 3, 4, 5):
        def deadly(self: RunProgress, *given: Any, last: int = last, **more: Any) -> Any:
            if self.step == last:
                raise Killed
            return real(self, *given, **more)

        monkeypatch.setattr(RunProgress, "advance", deadly)
        with pytest.raises(Killed):
            run(tmp_path / "broken")
    monkeypatch.setattr(RunProgress, "advance", real)
    assert run(tmp_path / "broken").outcomes[1].step == 6
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(one[name], other[name]) for name in one)
    first, second = ([e["metrics"] for e in events(tmp_path / name, "dev")] for name in ("whole", "broken"))
    assert first == second


def test_the_second_of_two_stages_begins_with_the_network_of_the_first_and_a_new_head(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tmp_path: Path
) -> None:
    topic = tasks["topic"]
    made = finetune(
        folder("bert"), first=topic, train=topic.train, dev=topic.dev, out=tmp_path / "out", report=quiet, overrides=VALUES,
        keep_checkpoints=True,
    )
    before = load_checkpoint(tmp_path / "out" / "cloze" / "stages" / "first")
    start = Checkpoints(tmp_path / "out").load(0)[1]
    for name, tensor in before.network.state_dict().items():
        assert torch.equal(tensor, start[f"networks.main.{name}"]), name
    theirs = before.heads["first"].state_dict()["head.output.weight"]
    mine = start["objectives.main.head.output.weight"]
    assert mine.shape == theirs.shape and not torch.equal(mine, theirs)
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    measured = evaluate(learner, learner.task.read(topic.dev[0]), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(made.outcomes[1].standing.metrics)


def test_a_folder_resumed_with_another_dev_set_is_refused(
    tuned: Any, folder: Callable[[str], Path], tasks: dict[str, LabelledFiles]
) -> None:
    others = {**tasks, "topic": tasks["topic"]._replace(dev=tasks["topic"].train)}
    with pytest.raises(CheckpointError, match=r"started with different text: then .*dev\.tsv.*, now .*train\.tsv"):
        finetune(folder("bert"), tasks=others, out=tuned.folder, overrides=LEARN, report=quiet)


def test_four_kinds_of_tasks_are_learned_by_mt_dnn(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tables: Path, tmp_path: Path
) -> None:
    sentences = [line.split("\t") for line in (tables / "train.tsv").read_text().splitlines()[1:33]]
    rows = [(a, b, int(x == y)) for (a, x), (b, y) in zip(sentences, sentences[1:] + sentences[:3], strict=False)]
    table = tmp_path / "pairs.tsv"
    table.write_text("text\ttext_b\tlabel\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows) + "the cat\t\t1\n")
    three = {
        "sentence": tasks["topic"], "pair": LabelledFiles("pair_classification", (str(table),), (str(table),)),
        "similarity": LabelledFiles("regression", (str(table),), (str(table),)),
    }  # fmt: skip
    ranks = tmp_path / "ranks.jsonl"
    judged = [{"query": "cat", "passage": passage, "label": grade} for passage, grade in (("the cat", 1), ("rain", 0))] * 4
    ranks.write_text("".join(json.dumps(row) + "\n" for row in judged))
    four = {**three, "ranking": LabelledFiles("reranking", (str(ranks),), (str(ranks),))}
    values = [*VALUES, "training.epochs=1"]
    made = finetune(folder("bert"), recipe="mt-dnn", tasks=four, out=tmp_path / "out", overrides=values, report=quiet)
    standing, loaded = made.outcomes[1].standing.metrics, load_checkpoint(tmp_path / "out")
    for name, one in four.items():
        learner, told = load_tuned(loaded, name=name)
        found = evaluate(learner, learner.task.read(one.dev[0]), constant_answer=told["constant_answer"])
        own = {f"{name}/{key}": value for key, value in found.metrics.items()}
        assert {key: standing[key] for key in own} == pytest.approx(own, abs=1e-6)
    binds = [f"teacher_{number}={tmp_path / 'out'}" for number in (1, 2, 3)]
    taught, small = tmp_path / "taught", [*values, "length=8"]
    finetune(folder("bert"), recipe="mt-dnn-kd", tasks=three, out=taught, overrides=small, binds=binds, report=quiet)
    assert set(load_checkpoint(taught).heads) == set(three)
    events = [json.loads(line) for line in (taught / "cloze" / "log.jsonl").read_text().splitlines()]
    losses = {name for event in events if event["event"] == "train" for name in event["objectives"]}
    assert {"sentence/sentence_teachers", "pair/pair_teachers"} <= losses <= {
        "sentence/sentence", "sentence/sentence_teachers", "pair/pair", "pair/pair_teachers", "similarity/similarity"
    }  # fmt: skip


def test_the_recipe_of_several_tasks_is_legal_and_reads_back_equal(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles]
) -> None:
    made = recipe_onto(recipe_of_tasks(tasks), load_checkpoint(folder("bert")))
    assert load_recipe(made.canonical()).hash == made.hash
    assert {name: spec.metric for name, spec in made.tasks.items()} == {"topic": "accuracy", "words": "span_f1"}
    heads = [objective.head for entry in made.entries.values() for _, objective in entry.objectives()]
    assert heads == ["topic", "words"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nli", "--task nli: expected NAME=TYPE:TRAIN,DEV"),
        ("nli=pair_classification:a.tsv", "expected TYPE:TRAIN,DEV"),
        ("nli=pairs:a.tsv,b.tsv", "--task nli=pairs:a.tsv,b.tsv: unknown task 'pairs'. No known name"),
        ("first=pair_classification:a,b", "is not 'first'"),
    ],
)
def test_a_task_that_is_not_written_as_expected_is_refused(given: str, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_tasks([given])
    assert said in str(caught.value)


def test_a_recipe_says_what_each_task_is_in_one_place(tmp_path: Path) -> None:
    both = MIXTURE.replace("task: {patience: 0}", "task: {type: sentence_classification}")
    neither = MIXTURE.replace("    task: {type: sentence_classification, metric: accuracy}\n", "")
    for text, said in ((both, "the entries main each have a task of their own"), (neither, 'needs "type", a kind of task')):
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(RecipeError, match=said):
            load_recipe(tmp_path / "wrong.yaml")


def test_a_source_without_labelled_text_is_named(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tmp_path: Path
) -> None:
    whole = recipe_of_tasks(tasks)
    (tmp_path / "two.yaml").write_text(json.dumps(whole))
    one = {"topic": tasks["topic"]}
    with pytest.raises(TaskError, match="the source 'words' has no labelled text. Give it with --task words=TYPE:TRAIN,DEV"):
        finetune(folder("bert"), recipe=tmp_path / "two.yaml", tasks=one, out=tmp_path / "out", overrides=VALUES, report=quiet)
    assert not (tmp_path / "out").exists()


def test_the_command_shows_the_recipe_of_several_tasks_and_refuses_files_of_one(
    folder: Callable[[str], Path], tasks: dict[str, LabelledFiles], tables: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str]
) -> None:
    named = [word for name, one in tasks.items() for word in ("--task", f"{name}={one.recipe}:{one.train[0]},{one.dev[0]}")]
    command = ["finetune", str(folder("bert")), *named, "--set", "length=24", "--out", str(tmp_path / "out")]
    before = f"sentence_classification:{tables / 'train.tsv'},{tables / 'dev.tsv'}"
    assert main([*command, "--show"]) == 0
    assert "odds: by_size" in capsys.readouterr().out
    assert main([*command, "--first", before, "--show"]) == 0
    shown = capsys.readouterr().out
    assert "stages:" in shown and "from: first" in shown
    assert main([*command, "--train", str(tables / "train.tsv")]) == 2
    assert "with several tasks, each names its files. Write --task NAME=TYPE:TRAIN,DEV" in capsys.readouterr().err
    assert main(["finetune", str(folder("bert")), "--out", str(tmp_path / "out")]) == 2
    assert "--train FILE and --dev FILE are missing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
