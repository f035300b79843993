"""Tasks on the frozen layers of a network: learned, saved, opened again, and the network as it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.cli.main import main
from cloze.errors import RecipeError
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks import load_tuned
from cloze.tasks.evaluation import evaluate
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import network_of
from tests.recipes.test_flops import counted

PART = {"filters": [[1, 8], [2, 16], [3, 16]], "per_word": 12, "highways": 1}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Path:
    """A random network of characters, exported; it knows few of the words in the tables."""
    tokenizer = Words(min_count=1).train(["the cat and the rain saw all in the garden on the mat"], Normalise())
    torch.manual_seed(0)
    made = CharCNN(**PART, vocab_size=tokenizer.size, spellings=tokenizer.spellings)  # type: ignore[arg-type]
    network = network_of("bilstm", layers=2, width=32, inner=24, embedding=made, vocab_size=tokenizer.size, clock=Clock())
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # so that words differ
    arguments = {"layers": 2, "width": 32, "inner": 24, "embedding": {"char_cnn": PART}}
    folder = tmp_path_factory.mktemp("elmo") / "elmo"
    export_folder(
        folder, model=PortableModel(arguments, "open", network.state_dict(), {}, "bilstm"), tokenizer=tokenizer,
        reading=Reading("[EOS] {A} [EOS]", None, "last"), card=Card("elmo"),
    )
    return folder


QUICK = ["training.batch=8", "training.epochs=1", "length=20", "task.patience=0"]
SMALL = "passes[1].objectives[0].encoder=16"


def learnt(folder: Path, tables: Path, out: Path, *values: str, recipe: str = "frozen_features") -> Any:
    """What was learned, by `load_tuned`, and the lines that were said."""
    said: list[str] = []
    made = finetune(
        folder, recipe=recipe, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out,
        overrides=[*QUICK, *([SMALL] if recipe.startswith("frozen") else []), *values], report=said.append,
    )
    return (*load_tuned(load_checkpoint(out)), made, said)


def test_it_learns_and_leaves_the_network_as_it_is(elmo: Path, tables: Path, tmp_path: Path) -> None:
    values = ["training.epochs=10", "training.rate.peak=1e-2", "passes[1].objectives[0].mixed.mix=both"]
    start = shutil.copytree(elmo, tmp_path / "start")
    _, told, made, _ = learnt(start, tables, tmp_path / "out", *values)
    shutil.rmtree(start)  # the folder holds the network, too
    assert main(["export", str(tmp_path / "out"), str(tmp_path / "export"), "--to", "huggingface"]) == 0
    learner, _ = load_tuned(load_checkpoint(tmp_path / "export"))
    standing = made.outcomes[1].standing
    assert standing.metrics["accuracy"] > 0.9 and told["dev"] == standing.metrics
    measured = evaluate(learner, learner.task.read(tables / "dev.tsv"), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(standing.metrics)
    for name, tensor in load_checkpoint(elmo).network.state_dict().items():
        assert torch.equal(tensor, learner.network.state_dict()[name]), name
    assert len(learner.head.head.mixes) == 2 and all(mix.weights.abs().max() > 0 for mix in learner.head.head.mixes)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_the_network_is_run_once_and_drops_nothing_while_the_head_learns(elmo: Path, tables: Path) -> None:
    from cloze.checkpoint.build import build_step

    loaded = load_checkpoint(elmo)
    recipe = recipe_onto("frozen_features", loaded, overrides=[*QUICK, SMALL, "network.dropout=0.5"])
    step = build_step(recipe, vocab_size=loaded.tokenizer.size, tokenizer=loaded.tokenizer).train()
    modes: list[bool] = []
    step.networks["main"].register_forward_hook(lambda module, *rest: modes.append(module.training))
    tokens = torch.tensor([[1, 3, 4, 5], [2, 3, 4, 6]])
    from cloze.batch import Batch

    labels = torch.tensor([0, 1])
    batch = Batch({"tokens": tokens, "targets/label": labels, "positions/label": torch.tensor([0, 1])}, checked=True)
    step("main", batch)["classification"].total.backward()
    assert modes == [False]
    assert not any(p.requires_grad for p in step.networks["main"].parameters())
    head: Any = step.objectives["classification"]
    assert all(p.grad is not None for p in head.head.pooling.parameters())
    found = step.flops("main", batch)
    assert found == pytest.approx(counted(step, "main", batch), rel=0.02)


def test_the_rate_is_that_of_weights_drawn_at_random(elmo: Path, folder: Any) -> None:
    for place in (elmo, folder("bert")):
        made = recipe_onto("frozen_features", load_checkpoint(place), overrides=["length=20"])
        assert made.training.rate.arguments["peak"] == 1e-3
    layers = [o.part.arguments["mixed"]["layers"] for _, o in made.entries["main"].objectives()]
    assert layers == [len(load_checkpoint(folder("bert")).network.depth_groups())]  # type: ignore[operator]


def test_words_that_the_vocabulary_lacks_are_read_by_their_characters(elmo: Path, tables: Path, tmp_path: Path) -> None:
    learner, _, _, said = learnt(elmo, tables, tmp_path / "out")
    found = learner.row_outputs(learner.reader.encode(["the yak", "the gnu"]))
    assert not np.allclose(found[0], found[1])
    before, after = load_checkpoint(elmo).tokenizer, learner.reader.tokenizer
    assert {"mice", "night", "river", "dreamed"} <= set(after.spellings[before.size :])  # of the training text
    assert after.spellings[: before.size] == before.spellings
    assert not any("begin with the mean" in line for line in said)


def test_from_scratch_is_a_twin_with_other_weights(elmo: Path, tables: Path, tmp_path: Path) -> None:
    learner, told, _, _ = learnt(elmo, tables, tmp_path / "out", "network.from=null", recipe="sentence_classification")
    assert told["from_scratch"]
    twin, before = learner.network.state_dict(), load_checkpoint(elmo).network
    assert not [name for name, tensor in before.named_parameters() if torch.equal(tensor, twin[name]) and tensor.dim() > 1]


def test_a_network_of_one_layer_to_read_is_refused_in_words(folder: Any, tmp_path: Path) -> None:
    from cloze.objectives.labels.head_from_checkpoint import HeadFacts
    from cloze.objectives.labels.layer_heads import LayerClassification

    with pytest.raises(RecipeError, match="(?s)gives only its top layer.*--task sentence_classification"):
        LayerClassification().resolve(HeadFacts("open", 1, given=0))


def test_words_are_labelled_from_frozen_layers(elmo: Path, tables: Path, tmp_path: Path) -> None:
    texts = [line.split("\t")[0].split() for line in (tables / "train.tsv").read_text().splitlines()[1:17]]
    for name in ("train", "dev"):
        rows = ["".join(f"{word}\t{word == 'the'}\n" for word in words) for words in texts]
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows))
    values = ["training.epochs=10", "training.batch=4", "training.rate.peak=2e-2"]
    learner, told, made, _ = learnt(elmo, tmp_path, tmp_path / "out", *values, recipe="frozen_labelling")
    assert made.outcomes[1].standing.metrics["accuracy"] > 0.8 and told["task"] == "token_labelling"
    measured = evaluate(learner, learner.task.read(tmp_path / "dev.tsv"))
    assert measured.metrics == pytest.approx(made.outcomes[1].standing.metrics)


def test_the_recipe_chooses_layers_on_any_network_that_gives_them(elmo: Path, folder: Any) -> None:
    head = "passes[1].objectives[0]"
    values = ["length=20", f"{head}.mixed.combine=concatenate", f"{head}.encoder=0"]
    for recipe in ("frozen_features", "frozen_labelling"):
        made = recipe_onto(recipe, load_checkpoint(folder("bert")), overrides=[*values, f"{head}.mixed.use=[-1, 0]"])
        said = made.entries["main"].passes[1].objectives[0].part.arguments["mixed"]
        assert list(said["use"]) == [-1, 0] and said["combine"] == "concatenate" and said["layers"] == 3
    with pytest.raises(RecipeError, match=r"use: \[-4, -3, -2, -1\]. Expected numbers from 0"):
        last_four = [*values, f"{head}.mixed.use=[-4, -3, -2, -1]"]
        check_recipe(recipe_onto("frozen_features", load_checkpoint(elmo), overrides=last_four))


def test_features_go_into_a_file(elmo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", str(elmo), "the cat saw a yak", "rain", "--layers", "all", "--out", str(out)]) == 0
    with np.load(out) as archive:
        assert archive["0"].shape == (3, 5, 32) and archive["1"].shape == (3, 1, 32)
    assert main(["embed", str(elmo), "rain", "--layers", "all"]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_network_that_reads_ngrams_keeps_the_checkpoints_table(tables: Path, tmp_path: Path) -> None:
    from cloze.runs.run import pretrain

    text = tmp_path / "text.txt"
    text.write_text("The cat sleeps here.\nA dog runs there.\n\nFish swim in the sea.\nBirds fly over it.\n\n" * 40)
    small = ["length=24", "training.batch=8", "text.tokenizer.size=200", "tables.ngrams.min_count=2"]
    pretrain("zen", corpus=[text], out=tmp_path / "zen", budget="1steps", size="tiny", overrides=small, report=lambda line: None,
             fit=False)  # fmt: skip
    zen = load_checkpoint(tmp_path / "zen")
    made = recipe_onto("sentence_classification", zen, overrides=["length=24"])
    assert [edit.part.name for edit in made.entries["main"].exercise] == ["frame", "label", "match"]
    learner, told, outcome, _ = learnt(tmp_path / "zen", tables, tmp_path / "out", recipe="sentence_classification")
    kept: Any = load_checkpoint(tmp_path / "out").tables["ngrams"]
    assert np.array_equal(kept.arrays["grams"], zen.tables["ngrams"].arrays["grams"])
    measured = evaluate(learner, learner.task.read(tables / "dev.tsv"))
    assert measured.metrics == pytest.approx(told["dev"]) and len(learner.reader.input_edits) == 1
