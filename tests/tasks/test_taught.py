"""Recipes for fine-tuning with a bound teacher: from a tuned checkpoint to a smaller one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.changes.compressing.quantise_activations import ActivationRounding
from cloze.changes.replace_layers import Predecessors
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.recipe.load import taught_task_recipe_names

TOP = ("--set", "passes[1].objectives[2].layers=top")
Folder = Callable[..., Path]
VALUES = ["--set", "training.epochs=1", "--set", "length=12", "--set", "training.held_out=0.0"]


def taught(recipe: str, start: Path, teacher: Path, tables: Path, out: Path, *more: str) -> int:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    bind = ["--bind", f"teacher={teacher}"]
    return main(["finetune", str(start), "--recipe", recipe, *bind, *files, *VALUES, *more, "--out", str(out)])


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory, tuned: Folder, tables: Path) -> Path:
    """A student of one layer that PKD taught."""
    out = tmp_path_factory.mktemp("taught") / "pkd"
    assert taught("pkd", tuned(), tuned(), tables, out, "--change", "keep_layers=[0]", *TOP) == 0
    return out


def test_a_student_is_a_smaller_classifier_that_needs_no_teacher(student: Path, tuned: Folder) -> None:
    made, teacher = load_checkpoint(student), load_checkpoint(tuned())
    assert (len(made.network.layers), len(teacher.network.layers)) == (1, 2)  # type: ignore[arg-type]
    assert list(made.heads) == ["classification"] and made.imported.remarks == ()
    assert json.loads((student / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    assert main(["predict", str(student), "the cat saw the rain"]) == 0


def test_the_log_has_the_three_losses_and_not_the_teachers(student: Path) -> None:
    events = [json.loads(line) for line in (student / "cloze" / "log.jsonl").read_text().splitlines()]
    losses = next(event["objectives"] for event in events if event["event"] == "train")
    assert losses.keys() == {"classification", "match_scores", "match_hidden"}


def test_the_teacher_is_read_by_its_own_head_and_stays_as_it_was(student: Path, tuned: Folder) -> None:
    reference = json.loads((student / "cloze" / "networks" / "teacher.json").read_text())
    assert Path(reference["folder"]) == tuned().resolve()
    assert not (student / "cloze" / "networks" / "teacher").exists()


def test_a_teacher_of_other_classes_is_refused(
    tuned: Folder, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (tables / "train.tsv").read_text().replace("\tanimal", "\tbeast")
    (tmp_path / "train.tsv").write_text(rows)
    (tmp_path / "dev.tsv").write_text(rows)
    assert taught("pkd", tuned(), tuned(), tmp_path, tmp_path / "out") == 2
    assert "was tuned to the classes animal, weather, and the training files have beast, weather" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_teacher_without_a_head_is_refused(
    folder: Folder, tuned: Folder, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert taught("pkd", tuned(), folder("roberta"), tables, tmp_path / "out") == 2
    assert "roberta" in capsys.readouterr().err


def test_a_teacher_that_was_not_tuned_is_refused_with_the_command_that_tunes_it(
    folder: Folder, tuned: Folder, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = folder("bert")
    assert taught("pkd", tuned(), teacher, tables, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert f"{teacher}: the head 'teaching' (relation_prediction) of network 'teacher' would stay random" in said
    assert "Tune the checkpoint on this task first, with the same classes, then give --bind teacher=TUNED:\n" in said
    assert f"    cloze finetune {teacher} --task sentence_classification --train FILE --dev FILE --out TUNED" in said
    assert not (tmp_path / "out").exists()
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), *VALUES, "--out", str(tmp_path / "out")]
    assert main(["finetune", str(teacher), "--recipe", "distilled-bilstm", *files]) == 2
    assert "with the same classes, then give cloze finetune TUNED:\n" in capsys.readouterr().err


@pytest.fixture(scope="module")
def successor(tmp_path_factory: pytest.TempPathFactory, tuned: Folder, tables: Path) -> Path:
    """A network of one layer that grew into a tuned one of two."""
    out = tmp_path_factory.mktemp("taught") / "theseus"
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    assert main(["finetune", str(tuned()), "--recipe", "theseus", *files, *VALUES, "--out", str(out)]) == 0
    return out


def test_a_successor_is_an_ordinary_network_and_all_but_its_layers_is_the_predecessors(successor: Path, tuned: Folder) -> None:
    made, old = load_checkpoint(successor, plain_form=True), load_checkpoint(tuned())
    theirs, own = old.network.state_dict(), made.network.state_dict()
    assert own.keys() == {name for name in theirs if not name.startswith("layers.1.")}
    moved = {name for name in own if not torch.equal(own[name], theirs[name])}
    assert moved and {name.split(".")[0] for name in moved} == {"layers"}
    heads = [loaded.heads["classification"].state_dict() for loaded in (made, old)]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[1])
    config = json.loads((successor / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"]) == (["BertForSequenceClassification"], 1)


def test_the_predecessors_layers_stay_bit_for_bit(successor: Path, tuned: Folder) -> None:
    changed: Any = load_checkpoint(successor).network
    (host,) = [module for module in changed.around if isinstance(module, Predecessors)]
    for number, layer in enumerate(load_checkpoint(tuned()).network.layers):  # type: ignore[arg-type]
        for name, tensor in layer.state_dict().items():
            assert torch.equal(host.layers[number].state_dict()[name], tensor)


def test_q8bert_learns_ranges_that_its_folder_computes_with_and_exports_rounded_weights(
    tuned: Folder, tables: Path, tmp_path: Path
) -> None:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    assert main(["finetune", str(tuned()), "--recipe", "q8bert", *files, *VALUES, "--out", str(tmp_path / "out")]) == 0
    made, plain = load_checkpoint(tmp_path / "out"), load_checkpoint(tmp_path / "out", plain_form=True)
    ranges = [m.range for m in made.network.modules() if isinstance(m, ActivationRounding)]
    assert len(ranges) == 2 * (4 + 2) and all(float(one) > 0 for one in ranges)
    weight = plain.network.layers[1].outer.weight
    assert len(weight.unique()) <= 255 and torch.equal(made.network.layers[1].outer.weight, weight)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    tokens = torch.arange(5, 11)[None]
    with torch.no_grad():
        own, theirs = (
            loaded.network(want=frozenset({"hidden"}), order="open", tokens=tokens)["hidden"] for loaded in (made, plain)
        )
    assert 0 < (own - theirs).abs().max() < 0.3


def test_q_bert_trains_each_layer_with_the_bits_that_it_is_given_in_groups_with_their_own_ranges(
    tuned: Folder, tables: Path, tmp_path: Path
) -> None:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), "--out", str(tmp_path / "out")]
    bits = ["--set", "network.change.quantise.bits=[2,3]", "--set", "network.change.quantise.groups=4"]
    assert main(["finetune", str(tuned()), "--recipe", "q-bert", *files, *VALUES, *bits]) == 0
    network: Any = load_checkpoint(tmp_path / "out", plain_form=True).network
    for layer, values in zip(network.layers, (4, 8), strict=True):
        assert [len(group.unique()) for group in layer.outer.weight.chunk(4)] == [values] * 4
        assert {len(group.unique()) for group in layer.attention.projections.weight.chunk(12)} <= {values - 1, values}
    assert any(isinstance(m, ActivationRounding) for m in load_checkpoint(tmp_path / "out").network.modules())


def test_tinybert_learns_layers_and_then_classes_from_its_teacher(tuned: Folder, tables: Path, tmp_path: Path) -> None:
    out, values = tmp_path / "out", ["--change", "keep_layers=[0]"]
    assert taught("tinybert-task", tuned(), tuned(), tables, out, *values) == 0
    made = load_checkpoint(out)
    assert len(made.network.layers) == 1 and list(made.heads) == ["classification"]  # type: ignore[arg-type]
    logs = [folder / "cloze" / "log.jsonl" for folder in (out / "cloze" / "stages" / "intermediate", out)]
    events = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
    losses = [next(event["objectives"] for event in log if event["event"] == "train").keys() for log in events]
    assert losses == [{"match_attention", "match_hidden"}, {"match_scores"}]
    assert "accuracy" in json.loads((out / "cloze" / "task.json").read_text())["dev"]


def test_a_student_learns_from_labels_and_from_three_teachers_at_once(tuned: Folder, tables: Path, tmp_path: Path) -> None:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    binds = [word for number in (1, 2, 3) for word in ("--bind", f"teacher_{number}={tuned(seed=number)}")]
    assert main(["finetune", str(tuned()), "--recipe", "ensemble", *binds, *files, *VALUES, "--out", str(tmp_path)]) == 0
    assert list(load_checkpoint(tmp_path).heads) == ["classification"]
    references = [json.loads((tmp_path / "cloze" / "networks" / f"teacher_{n}.json").read_text())["folder"] for n in (1, 2, 3)]
    assert references == [str(tuned(seed=number).resolve()) for number in (1, 2, 3)]
    events = [json.loads(line) for line in (tmp_path / "cloze" / "log.jsonl").read_text().splitlines()]
    assert next(e["objectives"] for e in events if e["event"] == "train").keys() == {"classification", "match_scores"}


def test_a_network_that_teaches_itself_keeps_the_mean_of_its_last_weights(tuned: Folder, tables: Path, tmp_path: Path) -> None:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    last = ["--set", "networks.teacher.average.last=1"]  # the mean of one is the network itself
    assert main(["finetune", str(tuned()), "--recipe", "self-distillation", *files, *VALUES, *last, "--out", str(tmp_path)]) == 0
    own, theirs = load_checkpoint(tmp_path), load_checkpoint(tmp_path / "cloze" / "networks" / "teacher")
    start = load_checkpoint(tuned()).network.state_dict()
    assert all(torch.equal(theirs.network.state_dict()[name], tensor) for name, tensor in own.network.state_dict().items())
    heads = [theirs.heads["teaching"].state_dict(), own.heads["classification"].state_dict()]
    assert all(torch.equal(tensor, heads[1][name]) for name, tensor in heads[0].items())
    assert any(not torch.equal(start[name], tensor) for name, tensor in own.network.state_dict().items())


def test_a_bilstm_that_starts_at_random_learns_the_scores_of_a_tuned_bert(tuned: Folder, tables: Path, tmp_path: Path) -> None:
    files = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv")]
    sizes = [f"networks.student.{size}" for size in ("width=16", "embedding_width=8")]
    sizes += ["training.log_every=1", "training.rate.peak=1e-2"]
    more = [word for size in sizes for word in ("--set", size)]
    assert main(["finetune", str(tuned()), "--recipe", "distilled-bilstm", *files, *VALUES, *more, "--out", str(tmp_path)]) == 0
    made = load_checkpoint(tmp_path)
    assert made.imported.model.part == "lstm_encoder_decoder" and list(made.heads) == ["classification"]
    events = [json.loads(line) for line in (tmp_path / "cloze" / "log.jsonl").read_text().splitlines()]
    losses = [event["objectives"]["match_scores"] for event in events if event["event"] == "train"]
    assert sum(losses[4:]) < 0.8 * sum(losses[:4])


@pytest.mark.parametrize("name", taught_task_recipe_names())
def test_a_recipe_is_legal_and_says_where_it_is_from(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", name]) == 0 and main(["show", name]) == 0
    shown = capsys.readouterr().out
    assert "paper:" in shown and "notes:" in shown and "from: start" in shown

