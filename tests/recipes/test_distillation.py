"""The contract of recipes with a teacher: they train from a bound checkpoint; a student that equals its teacher has no loss."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.batching import Cursor
from cloze.changes import DropSegments, KeepLayers, Shape
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint, plain_arguments
from cloze.checkpoint.feeds import build_data
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.warm_start import load_origins
from cloze.cli.main import main
from cloze.errors import RecipeError
from cloze.networks.clock import Clock
from cloze.networks.transformer import Transformer
from cloze.recipe.builders import build
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import distillation_recipe_names, load_recipe
from cloze.recipe.recipe import Recipe
from cloze.registry import lookup
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.runs.binds import open_stores
from cloze.training.step import StepModule
from tests.making import network_of

SAMPLE = Path(__file__).resolve().parents[2] / "cloze" / "samples" / "english.txt"
SMALL = ["length=48", "training.batch=8", "training.held_out=0.0"]


class Taught:
    """A teacher of four layers with random weights, and the text that it was trained on. `of`: its recipe."""

    def __init__(self, folder: Path, of: str = "bert") -> None:
        layers = ["network.layers=4", "network.positions.max_length=64"]
        recipe = load_recipe(of, size="tiny", overrides=[*SMALL, *layers])
        self.stores, self.tokenizer = open_stores(
            recipe, {"main": [str(SAMPLE)]}, folder, tokenizer=None, text_format="auto", seed=0, say=lambda line: None
        )
        step = build_step(recipe, vocab_size=self.tokenizer.size, seed=0)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for parameter in step.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        self.folder = folder / "teacher"
        Publisher(recipe, self.tokenizer)(self.folder, step.state_dict(), 0)

    def recipe(self, name: str, *changes: str) -> Recipe:
        return load_recipe(name, overrides=[*SMALL, *changes], checkpoints=BoundCheckpoints({"teacher": self.folder}))

    def step(self, recipe: Recipe) -> tuple[StepModule, Batch]:
        """The step with the teacher's weights and without dropout, and its first batch."""
        step = build_step(recipe, vocab_size=self.tokenizer.size, seed=0, store=self.stores["main"], tokenizer=self.tokenizer)
        folders = {name: self.folder for name, network in recipe.networks.items() if network.origin}
        load_origins(step, recipe, folders, self.tokenizer, resumes=False, say=lambda line: None)
        step.eval()
        step.clock.set(seed=0, step=0, first_row=0, share=0.0)
        data = build_data(recipe, self.stores, step, self.tokenizer, seed=0)
        return step, data.next("main", Cursor())[0][0].batch


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    return Taught(tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="module")
def taught_to_write(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    return Taught(tmp_path_factory.mktemp("taught_to_write"), "gpt2")


#: What makes the students of recipes small, and gives them as many heads as the teacher.
NARROW = [f"networks.student.{name}" for name in ("layers=1", "width=32", "heads=2", "feed_forward.inner=64")]
DEEP = ("layers=4", "width=128", "heads=2", "bottleneck.width=16", "feed_forward.inner=24", "embedding.width=16")
SMALL_VOCABULARY = ["text.tokenizer.wordpiece.size=300", "networks.student.layers=4", *NARROW[1:3]]
OWN = {
    "dualtrain": [*SMALL_VOCABULARY, "networks.student.feed_forward.inner=128", "networks.student.positions.max_length=64"],
    "minilm": NARROW, "tinybert": NARROW, "mobilebert": [f"networks.student.{value}" for value in DEEP],
}
ALL_LAYERS = "networks.student.change.keep_layers.layers=[0,1,2,3]"


@pytest.mark.parametrize("name", distillation_recipe_names())
def test_it_trains_from_a_bound_teacher(
    name: str, taught: Taught, taught_to_write: Taught, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = taught_to_write if name == "distilgpt2" else taught
    arguments = ["pretrain", name, "--bind", f"teacher={taught.folder}", "--corpus", str(SAMPLE), "--budget", "4steps"]
    arguments += [part for value in [*SMALL, *OWN.get(name, [])] for part in ("--set", value)]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    student = load_checkpoint(tmp_path / "run")
    assert (student.tokenizer.hash == taught.tokenizer.hash) == (name != "dualtrain")  # it has a vocabulary of its own
    assert [remark for remark in student.imported.remarks if "the vector of [PAD]" not in remark] == []


def test_a_student_with_all_layers_of_its_teacher_has_nothing_to_learn_from_it(taught: Taught) -> None:
    recipe = taught.recipe("distilbert", ALL_LAYERS)
    step, batch = taught.step(recipe)
    teacher: Any = step.networks["teacher"]
    with torch.no_grad():  # a student has no segments
        teacher.embeddings.segments.weight.zero_()
    losses = step("main", batch)
    parameters = list(step.networks["student"].parameters())
    matched = torch.stack([losses[name].total for name in ("match_scores", "match_hidden")])
    assert matched.detach().abs().max() < 1e-2
    sizes = [
        max(float(gradient.abs().max()) for gradient in torch.autograd.grad(total, parameters, retain_graph=True))
        for total in (matched.sum(), losses["token_prediction/main"].total)
    ]
    assert sizes[0] < 1e-3 * sizes[1]


def test_distilbert_begins_with_every_second_layer_and_the_head_of_its_teacher(taught: Taught) -> None:
    step, batch = taught.step(taught.recipe("distilbert"))
    teacher, student = (step.networks[name].state_dict() for name in ("teacher", "student"))
    assert len(step.networks["student"].layers) == 2 and "embeddings.segments.weight" not in student
    for number, layer in enumerate((0, 3)):
        torch.testing.assert_close(student[f"layers.{number}.outer.weight"], teacher[f"layers.{layer}.outer.weight"])
    heads = [step.objectives[f"{name}:token_prediction"].head for name in ("teacher", "student")]
    assert heads[0] is not heads[1] and not any(parameter.requires_grad for parameter in heads[0].parameters())
    torch.testing.assert_close(*(head.state_dict() for head in heads))
    counts = step.count("main", batch)
    real = float((batch["block"] > 0).sum()) if "block" in batch else float(batch["tokens"].numel())
    assert counts["match_scores"] == counts["match_hidden"] == real
    assert 0.1 < counts["token_prediction/main"] / real < 0.2
    losses = step("main", batch)
    assert losses.keys() == {"token_prediction/main", "match_scores", "match_hidden"}


def test_distilbert_has_the_published_number_of_parameters() -> None:
    bert = load_recipe("bert").networks["main"].part
    assert bert is not None
    arguments: Any = plain_arguments(bert.arguments)
    for change in (KeepLayers("half"), DropSegments()):
        arguments = change.shape(Shape("bert", "transformer", arguments))
    with torch.device("meta"):
        made: Transformer = network_of("transformer", **arguments, vocab_size=30522, clock=Clock())
    assert sum(parameter.numel() for parameter in made.parameters()) == 66_362_880


@pytest.mark.parametrize(("layers", "published"), [(12, 109_482_240), (6, 66_955_008), (3, 45_691_392)])
def test_kept_layers_of_bert_have_the_published_number_of_parameters_with_a_pooler(layers: int, published: int) -> None:
    """The students of PKD: BERT-base with six or three layers."""
    assert _parameters("bert", layers) + 768 * 769 == published


def test_half_of_the_layers_of_roberta_large_are_what_layerdrop_leaves_out() -> None:
    """README of fairseq's examples/layerdrop: 246,933,504 parameters before and 146,163,712 after, eight layers fewer."""
    whole, cut = (_parameters("bert", layers, size="large") for layers in (16, 8))
    assert whole - cut == 246_933_504 - 146_163_712 == 8 * 12_596_224


def test_the_larger_minilm_has_the_published_number_of_parameters_with_a_pooler() -> None:
    part = load_recipe("minilm").networks["student"].part
    assert part is not None
    with torch.device("meta"):
        arguments: Any = {**plain_arguments(part.arguments), "layers": 12}
        made = build(lookup("network", part.name), arguments, {"vocab_size": 30522, "clock": Clock()})
    assert sum(parameter.numel() for parameter in made.parameters()) + 384 * 385 == 33_360_000


def _parameters(recipe: str, layers: int, **options: Any) -> int:
    """Those of the network of a recipe, with its first layers alone."""
    part = load_recipe(recipe, **options).networks["main"].part
    assert part is not None
    arguments: Any = {**plain_arguments(part.arguments), "layers": layers}
    with torch.device("meta"):
        made = build(lookup("network", part.name), arguments, {"vocab_size": 30522, "clock": Clock()})
    return sum(parameter.numel() for parameter in made.parameters())


def test_distilgpt2_has_the_losses_of_its_authors_formulas_on_networks_of_transformers(
    taught_to_write: Taught, tmp_path: Path
) -> None:
    """KL at temperature 2 times 4, next-token cross-entropy, 1 - cosine of the last states: distiller.py, `step`."""
    transformers = pytest.importorskip("transformers")
    recipe = taught_to_write.recipe("distilgpt2")
    step, batch = taught_to_write.step(recipe)
    Publisher(recipe, taught_to_write.tokenizer)(tmp_path / "student", step.state_dict(), 0)
    teacher, student = (
        transformers.GPT2LMHeadModel.from_pretrained(folder).eval() for folder in (taught_to_write.folder, tmp_path / "student")
    )
    assert (teacher.config.n_layer, student.config.n_layer) == (4, 2)
    for number, layer in enumerate((0, 3)):
        assert torch.equal(student.transformer.h[number].mlp.c_fc.weight, teacher.transformer.h[layer].mlp.c_fc.weight)
    with torch.no_grad():
        losses, counts = step("main", batch), step.count("main", batch)
        real = batch["block"] > 0 if "block" in batch else torch.ones_like(batch["tokens"], dtype=torch.bool)
        here, there = (network(batch["tokens"], output_hidden_states=True) for network in (student, teacher))
        asked = real[:, :-1] & real[:, 1:]
        found, goal = (made.logits[:, :-1][asked] for made in (here, there))
        expected = {
            "token_prediction": torch.nn.functional.cross_entropy(found, batch["tokens"][:, 1:][asked]),
            "match_scores": 4 * torch.nn.functional.kl_div(
                torch.log_softmax(found / 2, -1), torch.softmax(goal / 2, -1), reduction="batchmean"
            ),
            "match_hidden": 1 - torch.cosine_similarity(here.hidden_states[-1][real], there.hidden_states[-1][real]).mean(),
        }
    assert counts["match_scores"] == asked.sum() and counts["match_hidden"] == real.sum()
    means = {name.partition("/")[0]: float(loss.total / counts[name]) for name, loss in losses.items()}
    assert means == pytest.approx({name: float(value) for name, value in expected.items()}, rel=1e-4)
    assert all(value > 0.01 for value in means.values())
    framed = batch["tokens"][0][real[0]].tolist()
    roles = taught_to_write.tokenizer.roles
    assert framed[0] == roles["[BOS]"] and framed[-1] == roles["[EOS]"] and roles["[EOS]"] not in framed[1:-1]


def test_distilgpt2_has_the_published_number_of_parameters() -> None:
    """README of the authors: 82M, and 124M for its teacher."""
    gpt2 = load_recipe("gpt2").networks["main"].part
    assert gpt2 is not None
    arguments: Any = KeepLayers("half").shape(Shape("gpt2", "transformer", plain_arguments(gpt2.arguments)))
    with torch.device("meta"):
        made = network_of("transformer", **arguments, vocab_size=50257, clock=Clock())
    assert sum(parameter.numel() for parameter in made.parameters()) == 81_912_576


def test_relations_of_values_are_learned_from_a_teacher_that_reads_left_to_right(
    taught_to_write: Taught, tmp_path: Path
) -> None:
    """The recipe of your own in docs/family/minilm.md: MiniLM's objectives with the order and the frame of GPT-2."""
    recipe = load_recipe("minilm").canonical()
    recipe["networks"]["teacher"] = {"from": "teacher", "train": "none"}
    recipe |= {"order": "left_to_right", "exercise": [{"frame": "{A}"}], "reading": {"single": "{A}", "summary": "last"}}
    student = recipe["networks"]["student"]["transformer"]
    student |= {"segments": 0, "norm": {"pre": {"epsilon": 1e-5}}}
    student["feed_forward"]["plain"]["activation"] = "gelu_tanh"
    made = load_recipe(
        recipe, overrides=[*SMALL, *OWN["minilm"], "networks.student.positions.max_length=64"],
        checkpoints=BoundCheckpoints({"teacher": taught_to_write.folder}),
    )
    step, batch = taught_to_write.step(made)
    losses = step("main", batch)
    assert losses.keys() == {"attention_of_top", "values_of_top"}
    states = {}
    for name in ("teacher", "student"):
        network: Any = step.networks[name]
        given = {"tokens": batch["tokens"], "order": "left_to_right"} | ({"block": batch["block"]} if "block" in batch else {})
        states[name] = network(want=frozenset({"attention", "values"}), **given)
    assert not states["student"]["attention"].triu(1).any()
    values = [states[name]["values"][-1] for name in ("student", "teacher")]
    length = batch["tokens"].shape[1]
    hidden = torch.ones(length, length).triu(1).bool()
    real = batch["block"] > 0 if "block" in batch else torch.ones_like(batch["tokens"], dtype=torch.bool)
    found, goal = (
        torch.log_softmax((v @ v.mT / v.shape[-1] ** 0.5).masked_fill(hidden, -1e9), -1) for v in values
    )
    apart = (goal.exp() * (goal - found)).sum(-1).mean(1)[real].sum()
    assert losses["values_of_top"].total.item() == pytest.approx(apart.item(), rel=1e-3) and apart.item() > 0
    Publisher(made, taught_to_write.tokenizer)(tmp_path / "student", step.state_dict(), 0)
    assert load_checkpoint(tmp_path / "student").imported.architecture == "gpt2"


@pytest.mark.parametrize(("name", "said"), [
    ("distilbert", "take a recipe for a teacher that reads in the order left_to_right: distilgpt2."),
    ("minilm", "take a recipe for a teacher that reads in the order left_to_right: distilgpt2."),
    ("distilgpt2", "for a teacher that reads in the order open: distilbert, dualtrain, minilm, mobilebert, tinybert."),
])  # fmt: skip
def test_a_teacher_that_reads_in_another_order_is_refused_with_a_recipe_that_can_read_it(
    name: str, said: str, taught: Taught, taught_to_write: Taught
) -> None:
    there, here = ("open", "left_to_right") if name == "distilgpt2" else ("left_to_right", "open")
    wrong = taught if name == "distilgpt2" else taught_to_write
    with pytest.raises(RecipeError) as refused:
        wrong.recipe(name)
    told = str(refused.value)
    assert f"networks.teacher.from: {wrong.folder} was trained to read in the order {there}" in told and said in told
    assert f"the recipe reads it in the order {here}.\n  Bind a checkpoint that reads in the order {here}" in told


def test_a_frame_with_roles_that_the_teachers_tokenizer_lacks_is_named_with_those_that_it_has(
    taught_to_write: Taught, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe("distilgpt2").canonical()
    recipe["networks"] = {"teacher": {"from": "teacher", "train": "none"}, "student": {"from": "teacher"}}
    recipe["exercise"][0] = {"frame": "[CLS] {A}"}
    (tmp_path / "mine.yaml").write_text(to_yaml(recipe), encoding="utf-8")
    arguments = ["pretrain", str(tmp_path / "mine.yaml"), "--bind", f"teacher={taught_to_write.folder}", "--corpus", str(SAMPLE)]
    values = [part for value in SMALL for part in ("--set", value)]
    assert main([*arguments, *values, "--budget", "1steps", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "exercise[0].frame: this tokenizer has no token for the role [CLS]. Its roles: [BOS], [EOS]" in said
    assert "mine.yaml" in said and "Use these in a recipe of your own" in said


def test_layers_to_begin_with_can_be_set(taught: Taught) -> None:
    step, _ = taught.step(taught.recipe("distilbert", "networks.student.change.keep_layers.layers=[1,2,3]"))
    teacher, student = (step.networks[name].state_dict() for name in ("teacher", "student"))
    torch.testing.assert_close(student["layers.0.outer.weight"], teacher["layers.1.outer.weight"])


def test_without_a_teacher_the_error_says_how_to_bind_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "distilbert", "--corpus", str(SAMPLE), "--out", str(tmp_path / "run")]) == 2
    assert "If it is a checkpoint, bind it: --bind teacher=FOLDER." in capsys.readouterr().err



def test_minilm_has_the_published_number_of_parameters_with_a_pooler() -> None:
    part = load_recipe("minilm").networks["student"].part
    assert part is not None
    with torch.device("meta"):
        made = build(lookup("network", part.name), plain_arguments(part.arguments), {"vocab_size": 30522, "clock": Clock()})
    assert sum(parameter.numel() for parameter in made.parameters()) + 384 * 385 == 22_713_216


def test_minilm_compares_the_top_layers_alone_whatever_the_width(taught: Taught) -> None:
    step, batch = taught.step(taught.recipe("minilm", *OWN["minilm"]))
    losses = step("main", batch)
    assert losses.keys() == {"attention_of_top", "values_of_top"}
    torch.stack([loss.total for loss in losses.values()]).sum().backward()
    assert all(parameter.grad is None for parameter in step.networks["teacher"].parameters())
    student: Any = step.networks["student"]
    assert student.layers[0].attention.projections.weight.grad.abs().sum() > 0 and student.layers[0].outer.weight.grad is None


def test_a_student_with_other_heads_than_its_teacher_is_refused_in_words(
    taught: Taught, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pretrain", "minilm", "--bind", f"teacher={taught.folder}", "--corpus", str(SAMPLE), "--budget", "2steps"]
    values = [part for value in [*SMALL, *OWN["minilm"], "networks.student.heads=4"] for part in ("--set", value)]
    assert main([*arguments, *values, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert "match_attention: heads: the student has 4, the teacher 2" in message
    assert "One that starts at random gets them with --set networks.student.heads=2." in message


def test_a_teacher_whose_head_has_other_arguments_is_refused_with_the_options_that_read_it(
    taught: Taught, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pretrain", "distilbert", "--bind", f"teacher={taught.folder}", "--corpus", str(SAMPLE), "--budget", "2steps"]
    arguments += [part for value in SMALL for part in ("--set", value)]
    misfit = [*arguments, "--set", "networks.student.architecture=modernbert", "--out", str(tmp_path / "run")]
    assert main(misfit) == 2
    assert "the checkpoint's own architecture: --set networks.student.architecture=null." in capsys.readouterr().err
    others = [
        f"passes[{place}].objectives[{number}].token_prediction.biases=false" for place, number in ((0, 0), (1, 0), (1, 1))
    ]
    arguments += [part for value in others for part in ("--set", value)]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert "Give the head the arguments with which the checkpoint's was trained:" in message
    options = shlex.split(message.rstrip().splitlines()[-1])
    assert options[::2] == ["--set"] * 3 and options[1::2] == [value.replace("false", "true") for value in others]
    assert main([*arguments, *options, "--out", str(tmp_path / "run")]) == 0
    assert "which start fresh" not in capsys.readouterr().out  # the student has the teacher's head, too


def test_tinybert_has_the_published_number_of_parameters_with_a_pooler() -> None:
    part = load_recipe("tinybert").networks["student"].part
    assert part is not None
    with torch.device("meta"):
        made = build(lookup("network", part.name), plain_arguments(part.arguments), {"vocab_size": 30522, "clock": Clock()})
    assert sum(parameter.numel() for parameter in made.parameters()) + 312 * 313 == 14_350_248


def test_tinybert_starts_from_a_normal_distribution_and_each_tensor_is_clipped_as_in_the_authors_code() -> None:
    """`init_bert_weights` of TinyBERT/transformer/modeling.py does not cut, and BertAdam clips one tensor after another."""
    part = load_recipe("tinybert").networks["student"].part
    assert part is not None
    torch.manual_seed(0)
    sizes = {**plain_arguments(part.arguments), "layers": 1}
    weight = build(lookup("network", part.name), sizes, {"vocab_size": 99, "clock": Clock()}).layers[0].inner.weight.detach()
    assert (weight.abs() > 3 * 0.02).any() and float(weight.std()) == pytest.approx(0.02, rel=0.01)
    stages = [load_recipe("tinybert").training, *(stage.recipe.training for stage in load_recipe("tinybert-task").stages)]
    clips = [(training.clip, training.optimizer.arguments["tensor_clip"]) for training in stages]
    assert clips == [(None, 1.0)] * 3


def test_one_token_of_each_row_of_tinybert_is_replaced_as_in_the_authors_code() -> None:
    """`min(20, max(1, round(length * masked_lm_prob)))` with 0.0 (TinyBERT/pregenerate_training_data.py, 161-162 and 352)."""
    edits = {edit.part.name: edit.part for edit in load_recipe("tinybert").entries["main"].exercise}
    length, column = np.arange(4, 129), np.arange(128)
    special = (column == 0) | (column == length[:, None] - 1)
    rows = Rows({"tokens": np.ones((len(length), 128), np.int32), "length": length, "special": special})
    mask = build(lookup("edit", "mask"), plain_arguments(edits["mask"].arguments), {})
    masked = mask(rows, Draw(np.arange(len(length), dtype=np.uint64)))
    assert masked["masked"].sum(1).tolist() == [min(20, max(1, round(int(tokens) * 0.0))) for tokens in length]
    assert list(edits) == ["pair", "frame", "mask", "corrupt"]


def test_a_tinybert_of_its_teachers_layers_with_an_identity_for_the_map_has_no_loss_and_no_gradient(taught: Taught) -> None:
    sizes = ("layers=4", "width=128", "heads=2", "feed_forward.inner=512", "positions.max_length=64")
    whole = [f"networks.student.{size}" for size in sizes]
    step, batch = taught.step(taught.recipe("tinybert", *whole))
    student = step.networks["student"]
    student.load_state_dict(step.networks["teacher"].state_dict())
    head: Any = step.objectives["match_hidden"].head
    with torch.no_grad():
        head.weight.copy_(torch.eye(128))
        head.bias.zero_()
    losses = step("main", batch)
    assert losses.keys() == {"match_attention", "match_hidden"}
    total = torch.stack([loss.total for loss in losses.values()]).sum()
    gradients = torch.autograd.grad(total, [p for p in student.parameters() if p.requires_grad], allow_unused=True)
    assert total.item() == 0.0 and all(g is None or not g.any() for g in gradients)


def test_tinyberts_map_ends_at_the_width_of_the_teacher_that_is_bound(taught: Taught) -> None:
    def project(recipe: Recipe) -> Any:
        return next(o.part.arguments["project"] for _, o in recipe.entries["main"].objectives() if o.part.name == "match_hidden")

    assert project(load_recipe("tinybert")) == "teacher"
    bound = taught.recipe("tinybert", *NARROW)
    assert project(bound) == 128 and project(load_recipe(bound.canonical())) == 128
    assert project(taught.recipe("tinybert", *NARROW, "passes[1].objectives.match_hidden.project=64")) == 64


def test_mobilebert_learns_the_layers_of_its_teacher_and_then_words(taught: Taught) -> None:
    recipe = taught.recipe("mobilebert", *OWN["mobilebert"])
    transfer, pretraining = (stage.recipe for stage in recipe.stages)
    assert transfer.training.layerwise_rates.name == "progressive" and pretraining.training.layerwise_rates is None
    step, batch = taught.step(transfer)
    losses = {"states", "means", "variances", "match_attention"}
    gradients = []
    for share in (0.0, 0.9):
        step.clock.set(share=share)
        step.zero_grad()
        found = step("main", batch)
        assert found.keys() == losses
        torch.stack([loss.total for loss in found.values()]).sum().backward()
        student: Any = step.networks["student"]
        weights = [layer.leave.weight.grad for layer in student.layers]
        gradients.append([weight is not None and bool(weight.any()) for weight in weights])
    assert gradients == [[True, False, False, False], [True, True, True, True]]
    names = [objective.name for _, objective in pretraining.entries["main"].objectives()]
    assert names == ["token_prediction", "token_prediction/main", "match_scores", "relation_prediction"]
