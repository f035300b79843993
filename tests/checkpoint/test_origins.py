"""`from:` on any network: earlier stages and bound checkpoints, their heads, what a run keeps of them, and resuming."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cloze.checkpoint.borrowed import network_folder
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.inputs import weights_input
from cloze.checkpoint.warm_start import load_origins
from cloze.cli.main import main
from cloze.errors import CheckpointError, RecipeError
from cloze.recipe.diff import diff
from cloze.recipe.load import load_recipe
from cloze.recipe.origins import borrowed, checkpoint_names
from cloze.runs.run import pretrain
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.run import RunIdentity
from cloze.training.step import StepModule
from tests.small_recipe import trainer

TEACHER = """\
name: teacher
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 200}}}
corpus: {passages: {length: 16}}
network: {transformer: {layers: 1, width: 16, heads: 2}}
exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
objectives: [token_prediction: {transform: gelu, tie: true}]
training: {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
"""
PAIR = """\
networks:
  teacher: {from: TEACHER, train: none}
  student: {transformer: {layers: 1, width: 16, heads: 2}}
passes:
  - {network: teacher, grad: false, objectives: [token_prediction: {transform: gelu, tie: true, weight: 0}]}
  - {network: student, take: {vectors: teacher.hidden}, objectives: [token_prediction: {transform: gelu, tie: true}]}
export: student
"""
_kept = [line for line in TEACHER.splitlines(keepends=True) if not line.startswith(("network:", "objectives:"))]
DISTILLED = "".join(_kept).replace("name: teacher", "name: distilled") + PAIR.replace("TEACHER", "big")
STAGED = (
    "".join(_kept).replace("name: teacher", "name: staged")
    + "stages:\n  general:\n    network: {transformer: {layers: 1, width: 16, heads: 2}}\n"
    + "    objectives: [token_prediction: {transform: gelu, tie: true}]\n  small:\n"
    + "".join(f"    {line}\n" for line in PAIR.replace("TEACHER", "general").splitlines())
)
Train = Callable[..., Any]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def weights(loaded: Any) -> dict[str, torch.Tensor]:
    heads = {f"{name}.{key}": t for name, head in loaded.heads.items() for key, t in head.state_dict().items()}
    return {**loaded.network.state_dict(), **heads}


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory, little_text: Path) -> Train:
    return trainer(tmp_path_factory.mktemp("recipes"), little_text, budget="2steps")


@pytest.fixture(scope="module")
def teacher(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    train(out, TEACHER, seed=7)
    return out


@pytest.fixture(scope="module")
def distilled(train: Train, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("distilled") / "run"
    train(out, DISTILLED, binds=[f"big={teacher}"])
    return out


def begun(text: str, folder: Path, teacher: Path) -> StepModule:
    """The step of a recipe as a run begins with it."""
    recipe = load_recipe(write(folder / "mine.yaml", text), checkpoints=BoundCheckpoints({"big": teacher}))
    tokenizer = load_checkpoint(teacher).tokenizer
    step = build_step(recipe, vocab_size=tokenizer.size)
    load_origins(step, recipe, {"teacher": teacher}, tokenizer, resumes=False, say=lambda text: None)
    return step


def test_a_network_that_is_not_exported_begins_with_the_weights_and_the_head_of_its_checkpoint(
    teacher: Path, tmp_path: Path
) -> None:
    step = begun(DISTILLED, tmp_path, teacher)
    found = load_checkpoint(teacher)
    for name, tensor in found.network.state_dict().items():
        assert torch.equal(step.networks["teacher"].state_dict()[name], tensor), name
    head = step.objectives["teacher:token_prediction"].state_dict()
    for name, tensor in found.heads["token_prediction"].state_dict().items():
        assert torch.equal(head[name], tensor), name


def test_a_teacher_of_an_earlier_stage_is_the_trained_one(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.runs import preparing

    steps: list[StepModule] = []
    usual = preparing.load_origins

    def noted(step: StepModule, *given: Any, **named: Any) -> None:
        usual(step, *given, **named)
        steps.append(step)

    monkeypatch.setattr(preparing, "load_origins", noted)
    train(tmp_path / "run", STAGED, budget="4steps")
    general = load_checkpoint(tmp_path / "run" / "cloze" / "stages" / "general").network.state_dict()
    first = load_checkpoint(Checkpoints(tmp_path / "run" / "cloze" / "stages" / "general").path(0)).network.state_dict()
    after = steps[-1].networks["teacher"].state_dict()
    for name in general:
        assert torch.equal(after[name], general[name]), name
    assert not torch.equal(general["embeddings.tokens.weight"], first["embeddings.tokens.weight"])


def test_a_frozen_network_is_kept_by_reference_and_not_in_every_checkpoint(distilled: Path, teacher: Path) -> None:
    last = Checkpoints(distilled).path(2)
    held = load_file(last / "state" / "parameters.safetensors")
    assert any(name.startswith("networks.student.") for name in held)
    assert not any("teacher" in name for name in held)
    assert not (last / "cloze" / "networks" / "teacher").exists()
    for place in (last, distilled):
        reference = json.loads((place / "cloze" / "networks" / "teacher.json").read_text())
        assert reference["folder"] == str(teacher.resolve()) and set(reference["files"]) == {"model.safetensors"}
        assert network_folder(place, "teacher") == teacher.resolve()


def test_a_frozen_network_with_a_head_that_is_trained_is_kept_with_it(train: Train, teacher: Path, tmp_path: Path) -> None:
    start = shutil.copytree(teacher, tmp_path / "start")
    text = DISTILLED.replace("network: teacher, grad: false", "network: teacher").replace("tie: true, weight: 0}", "tie: true}")
    train(tmp_path / "run", text, budget="2steps", binds=[f"big={start}"])
    shutil.rmtree(start)
    before, after = load_checkpoint(teacher), load_checkpoint(network_folder(tmp_path / "run", "teacher"))
    own = after.network.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in before.network.state_dict().items())
    (head,), (old,) = after.heads.values(), before.heads.values()
    assert not torch.equal(head.state_dict()["head.dense.weight"], old.state_dict()["head.dense.weight"])


def test_the_reference_to_a_stage_holds_where_the_run_is_moved_to(train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", STAGED, budget="4steps")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    found = network_folder(tmp_path / "moved", "teacher")
    assert found == (tmp_path / "moved" / "cloze" / "stages" / "general").absolute()
    train(tmp_path / "moved", STAGED, budget="4steps")  # nothing is left to do, and nothing is refused


def test_a_reference_to_weights_that_have_changed_is_refused(distilled: Path, teacher: Path, tmp_path: Path) -> None:
    other = shutil.copytree(teacher, tmp_path / "other")
    run = shutil.copytree(distilled, tmp_path / "run")
    path = run / "cloze" / "networks" / "teacher.json"
    reference = json.loads(path.read_text())
    path.write_text(json.dumps({**reference, "folder": str(other)}))
    assert network_folder(run, "teacher") == other
    change(other)
    with pytest.raises(CheckpointError, match="'teacher' was borrowed from .*other: its weights have changed"):
        network_folder(run, "teacher")
    shutil.rmtree(other)
    with pytest.raises(CheckpointError, match="there is no such folder.\n  Put that checkpoint back where it was."):
        network_folder(run, "teacher")


def change(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name] + 1}, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_run_with_a_teacher_that_was_interrupted_ends_with_the_same_bits(
    train: Train, distilled: Path, teacher: Path, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    given: dict[str, Any] = {"binds": [f"big={teacher}"], "budget": "4steps"}
    train(whole, DISTILLED, **given)
    shutil.copytree(whole, broken)
    for step in (3, 4):
        shutil.rmtree(Checkpoints(broken).path(step), ignore_errors=True)
    assert Checkpoints(broken).steps()[-1] < 4
    train(broken, DISTILLED, **given)
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        one, two = (load_file(Checkpoints(run).path(4) / "state" / name) for run in (whole, broken))
        assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_a_run_is_not_resumed_with_another_teacher(train: Train, distilled: Path, teacher: Path, tmp_path: Path) -> None:
    run, other = shutil.copytree(distilled, tmp_path / "run"), shutil.copytree(teacher, tmp_path / "other")
    before = json.loads((run / "cloze" / "run.json").read_text())
    assert before["identity"] != before["recipe_hash"]
    train(run, DISTILLED, binds=[f"big={other}"])  # the same weights in another place
    assert json.loads((run / "cloze" / "run.json").read_text())["identity"] == before["identity"]
    change(other)
    with pytest.raises(CheckpointError, match="different weights for the network 'teacher': .*model.safetensors") as caught:
        train(run, DISTILLED, binds=[f"big={other}"])
    assert "; --bind big differs." in str(caught.value)


def test_runs_that_begin_with_other_weights_have_another_identity() -> None:
    def identity(**inputs: Any) -> str:
        return RunIdentity({}, "recipe", {}, inputs).digest

    first, second = ({"given": place, "files": [{"path": place, "sha256": digest}]} for place, digest in (("a", "1"), ("b", "2")))
    assert identity() == identity(init=None, networks={}) == "recipe"
    known = [identity(init=first), identity(init=second), identity(networks={"teacher": first}), "recipe"]
    assert len(set(known)) == 4
    assert identity(init={**first, "given": "elsewhere"}) == known[0]


def test_an_objective_that_compares_the_rows_of_a_step_is_refused_where_they_are_split(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEACHER.replace('[{frame: "[CLS] {A} [SEP]"}', '[{pair: {}}, {frame: "[CLS] {A} [SEP] {B} [SEP]"}').replace(
        "objectives: [token_prediction: {transform: gelu, tie: true}]",
        "objectives: [pooled_classification: {set: next, pool: mean, hidden: 8, norm: true}]",
    )
    name = "pooled_classification"
    with pytest.raises(RecipeError, match=f"{name} compares all rows of a step .* splits 4 rows into parts of 2.\n  Omit"):
        train(tmp_path / "parts", text.replace("batch: 4", "batch: 4, micro_batch: 2"))
    for variable, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(RecipeError, match=f"{name} compares all rows of a step with each other, and 2 processes would split"):
        train(tmp_path / "ranks", text)


def test_a_head_that_nothing_trains_must_be_in_the_checkpoint(teacher: Path, tmp_path: Path) -> None:
    old = "grad: false, objectives: [token_prediction: {transform: gelu, tie: true, weight: 0}]"
    other = DISTILLED.replace(old, "grad: false, objectives: [token_labelling: {head: own, set: main, weight: 0}]")
    with pytest.raises(CheckpointError) as caught:
        begun(other, tmp_path, teacher)
    assert str(caught.value) == (
        f"{teacher}: the head 'own' (token_labelling) of network 'teacher' would stay random, because no pass trains it: the "
        "checkpoint has no such head.\n  Heads of the checkpoint: token_prediction (token_prediction). Bind a checkpoint "
        "with such a head: --bind big=FOLDER. Or train this one in a recipe of your own."
    )
    plain = DISTILLED.replace("objectives: [token_prediction: {transform: gelu, tie: true, weight: 0}]",
                              "objectives: [token_prediction: {tie: true, weight: 0}]")
    with pytest.raises(CheckpointError, match="head.dense.weight is .* in the checkpoint and missing in the recipe"):
        begun(plain, tmp_path, teacher)


def test_a_head_that_nothing_trains_is_the_checkpoints_only_one_whatever_its_name(teacher: Path, tmp_path: Path) -> None:
    old = "grad: false, objectives: [token_prediction: {"
    step = begun(DISTILLED.replace(old, f"{old}head: own, "), tmp_path, teacher)
    theirs = load_checkpoint(teacher).heads["token_prediction"].state_dict()
    torch.testing.assert_close(dict(step.objectives["own"].state_dict()), dict(theirs))


@pytest.mark.parametrize(
    ("binds", "told"),
    [
        ([], "mine.yaml:8: networks.teacher.from: there is no stage or checkpoint named 'big'.\n"
             "  If it is a checkpoint, bind it: --bind big=FOLDER."),
        (["bgi={teacher}"], "Did you mean"),
        (["big={teacher}"] * 2, "distilled: the checkpoint 'big' is bound 2 times. Bind it once: --bind big=FOLDER."),
        (["big={teacher}", "more={teacher}"], "--bind more: distilled has no such source, table or checkpoint."),
        (["big=nowhere"], "nowhere: there is no such file or folder"),
    ],
)
def test_a_checkpoint_that_is_not_bound_is_refused_before_anything_is_read(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binds: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("mine.yaml"), DISTILLED)
    with pytest.raises((RecipeError, CheckpointError)) as caught:
        given = [bind.format(teacher=teacher) for bind in binds]
        pretrain("mine.yaml", corpus="gone.txt", out="run", binds=given, budget="2steps")
    assert told in str(caught.value) and not Path("run").exists()


def test_a_checkpoint_cannot_have_the_name_of_a_source(teacher: Path, tmp_path: Path) -> None:
    recipe = write(tmp_path / "mine.yaml", DISTILLED.replace("from: big", "from: main"))
    with pytest.raises(RecipeError, match="`from: main` is bound with --bind main=FOLDER, but main is also a source."):
        pretrain(recipe, corpus="gone.txt", out=tmp_path / "run", binds=[f"main={teacher}"], budget="2steps")


def test_the_weights_that_are_recorded_are_those_that_transformers_has_no_place_for_too(teacher: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(teacher, tmp_path / "own")
    names = ["cloze/heads.safetensors", "cloze/network.safetensors", "cloze/tables/ngrams.safetensors"]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "model.safetensors", folder / name)
    found = weights_input(folder)
    assert {str(Path(file["path"]).relative_to(folder)) for file in found["files"]} == {"model.safetensors", *names}
    assert len({file["sha256"] for file in found["files"]}) == 1


def test_init_and_from_are_not_given_for_one_network(teacher: Path, tmp_path: Path) -> None:
    text = TEACHER.replace("{transformer: {layers: 1, width: 16, heads: 2}}", "{from: big}")
    with pytest.raises(RecipeError, match="the network 'main' of teacher comes from 'big' already. Omit --init."):
        pretrain(write(tmp_path / "mine.yaml", text), corpus="gone.txt", out=tmp_path / "run", binds=[f"big={teacher}"],
                 init=teacher, budget="2steps")


def test_an_unbound_recipe_is_legal_and_a_bound_one_is_checked_with_its_parts(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "mine.yaml", DISTILLED)
    loaded = load_recipe(path)
    assert checkpoint_names(loaded) == ["big"] and borrowed(loaded) == {"teacher"}
    assert check_recipe(loaded).networks["teacher"] == 0
    whole = check_recipe(load_recipe(path, checkpoints=BoundCheckpoints({"big": teacher}), size="tiny"))
    assert whole.networks["teacher"] > whole.heads["teacher.token_prediction"] > 0
    assert whole.recipe.networks["teacher"].part.arguments["width"] == 16  # type: ignore[union-attr]
    assert whole.recipe.networks["student"].part.arguments["width"] == 128  # type: ignore[union-attr]
    assert main(["check", str(path)]) == 0
    assert "from a checkpoint: --bind big=FOLDER" in capsys.readouterr().out
    assert main(["check", str(path), "--bind", f"big={teacher}"]) == 0
    assert "from a checkpoint" not in capsys.readouterr().out


def test_a_difference_shows_that_a_teacher_is_frozen(tmp_path: Path) -> None:
    one, two = (load_recipe(write(tmp_path / f"{n}.yaml", text)) for n, text in enumerate((DISTILLED, TEACHER)))
    found = {change.path: change.left for change in diff(one, two)}
    assert found["networks.teacher"] == {"from": "big", "train": "none"}
    assert found["passes.teacher"]["grad"] is False and "grad" not in found["passes.student"]


def test_a_stage_may_come_from_one_that_comes_from_a_checkpoint(train: Train, teacher: Path, tmp_path: Path) -> None:
    text = TEACHER.replace("network: {transformer: {layers: 1, width: 16, heads: 2}}\n", "").replace("peak: 1e-2", "peak: 0.0")
    text += "stages: {first: {network: {from: big}}, second: {network: {from: first}}}\n"
    train(tmp_path / "run", text, binds=[f"big={teacher}"], budget="2steps")
    first, last = weights(load_checkpoint(teacher)), weights(load_checkpoint(tmp_path / "run"))
    assert first.keys() == last.keys() and all(torch.equal(first[name], last[name]) for name in first)


def test_a_frozen_network_that_is_exported_makes_a_whole_checkpoint(train: Train, teacher: Path, tmp_path: Path) -> None:
    text = TEACHER.replace("{transformer: {layers: 1, width: 16, heads: 2}}", "{from: big, train: none}")
    train(tmp_path / "run", text, binds=[f"big={teacher}"])
    first, last = load_checkpoint(teacher), load_checkpoint(tmp_path / "run")
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(last.network.state_dict()[name], tensor), name
    held = load_file(Checkpoints(tmp_path / "run").path(2) / "state" / "parameters.safetensors")
    assert held and all(name.startswith("objectives.") for name in held)


def test_weights_of_another_shape_are_refused_with_the_command_that_continues_them(
    train: Train, teacher: Path, tmp_path: Path
) -> None:
    wider = TEACHER.replace("width: 16", "width: 32")
    own = f"To continue it with its own recipe: cloze pretrain {teacher} --init {teacher} --corpus TEXT --out CONTINUED"
    with pytest.raises(CheckpointError, match=r"is \(72, 16\) in the checkpoint and \(72, 32\) in the recipe") as caught:
        train(tmp_path / "run", wider, init=teacher)
    assert str(caught.value).endswith(own)
    foreign = shutil.copytree(teacher, tmp_path / "foreign", ignore=shutil.ignore_patterns("cloze"))
    with pytest.raises(CheckpointError, match="To continue it in its own shape: cloze import .*foreign --out IMPORTED"):
        train(tmp_path / "other", wider, init=foreign)


def test_a_built_in_recipe_that_continues_a_checkpoint_learns_at_a_tenth_of_the_fitted_rate_and_expects_no_loss(
    teacher: Path, little_text: Path, tmp_path: Path
) -> None:
    start: list[str] = []
    small = ["length=16", "training.checkpoint_every=1000"]
    made = {"corpus": little_text, "size": "tiny", "budget": "600tokens", "device": "cpu", "overrides": small}
    pretrain("bert", out=tmp_path / "bert", report=start.append, **made)  # type: ignore[arg-type]
    said: list[str] = []
    pretrain("biobert", out=tmp_path / "bio", report=said.append, binds=[f"bert={tmp_path / 'bert'}"], **made)  # type: ignore[arg-type]
    told = ["\n".join(lines) for lines in (start, said)]
    peaks = [float(text.partition("training.rate.linear.peak=")[2].split()[0]) for text in told]
    assert peaks == [pytest.approx(2e-3), pytest.approx(2e-4)]
    assert "a tenth for a trained network" in told[1] and "a tenth" not in told[0]
    assert ["expected held-out loss" in text for text in told] == [True, False]
    assert "token_prediction: single tokens" in told[1]
    before, after = (load_checkpoint(tmp_path / name) for name in ("bert", "bio"))
    assert after.tokenizer.hash == before.tokenizer.hash
