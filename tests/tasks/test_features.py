"""Classification from the frozen layers of a network: learned, saved, opened again, and the network as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import TaskError
from cloze.interop import Card, Model, Reading, export_folder
from cloze.networks import BiLSTM, Clock
from cloze.networks.blocks.characters import CharCNN
from cloze.tasks import Settings, finetune_seeds, load_tuned, task
from cloze.tasks.features import FeatureClassifier
from cloze.tasks.kept import BUDGET as KEPT
from cloze.text.normalise import Normalise
from cloze.text.words import Words

PART = {"filters": [[1, 8], [2, 16], [3, 16]], "per_word": 12, "highways": 1}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Path:
    """A random network of characters, exported; it knows few of the words in the tables."""
    tokenizer = Words(min_count=1).train(["the cat and the rain saw all in the garden on the mat"], Normalise())
    torch.manual_seed(0)
    made = CharCNN(**PART, vocab_size=tokenizer.size, spellings=tokenizer.spellings)  # type: ignore[arg-type]
    network = BiLSTM(layers=2, width=32, inner=24, characters=made, vocab_size=tokenizer.size, clock=Clock())
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # so that words differ
    arguments = {"layers": 2, "width": 32, "inner": 24, "characters": {"char_cnn": PART}}
    folder = tmp_path_factory.mktemp("elmo") / "elmo"
    export_folder(
        folder, model=Model(arguments, "open", network.state_dict(), {}, "bilstm"), tokenizer=tokenizer,
        reading=Reading("[EOS] {A} [EOS]", None, "last"), card=Card("elmo"),
    )
    return folder


def learnt(folder: Path, tables: Path, mix: str, **changed: Any) -> Any:
    chosen: Any = task("frozen_features", mix=mix)
    settings = Settings(**{"epochs": 3, "batch": 8, "task_lstm": 16, "pool": "max", "length": 20, **changed})
    loaded = load_checkpoint(folder)
    train, dev = (chosen.read(tables / f"{name}.tsv") for name in ("train", "dev"))
    return loaded, finetune_seeds(loaded, chosen, train, dev, settings=settings, seeds=(1,)), dev


@pytest.mark.parametrize("mix", ["input", "both"])
def test_it_learns_and_leaves_the_network_as_it_is(elmo: Path, tables: Path, mix: str) -> None:
    loaded, result, _ = learnt(elmo, tables, mix, epochs=14, rate=0.01, patience=None)
    assert result.best.metrics["accuracy"] > 0.9
    tuned = result.tuned
    assert isinstance(tuned, FeatureClassifier)
    for name, tensor in loaded.network.state_dict().items():
        assert torch.equal(tensor, tuned.network.state_dict()[name]), name
    assert not any(p.requires_grad for p in tuned.network.parameters())
    tuned.train()
    assert tuned.head.training and not tuned.network.training
    assert all(mix.weights.abs().max() > 0 for mix in tuned.head.head.mixes)


def test_the_usual_rate_is_that_of_weights_drawn_at_random(elmo: Path, tables: Path) -> None:
    _, result, _ = learnt(elmo, tables, "input", epochs=1)
    assert max(moment["learning_rate"] for moment in result.log) <= 1e-3
    assert FeatureClassifier.usual_rate == 1e-3


def test_what_was_learned_is_opened_again_by_the_verbs(
    elmo: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned"
    arguments = ["finetune", str(elmo), "--task", "frozen_features", "--mix", "both:0.01", "--task-lstm", "8"]
    arguments += ["--pool", "max", "--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), "--out", str(out)]
    assert main([*arguments, "--epochs", "1", "--device", "cpu"]) == 0, capsys.readouterr().err
    learner, described = load_tuned(load_checkpoint(out))
    assert described["task"] == "frozen_features" and described["mix"] == "both" and described["penalty"] == 0.01
    examples = learner.task.read(tables / "dev.tsv")
    assert learner.evaluate(examples, None, size=4, report=lambda done: None).metrics == pytest.approx(described["dev"])
    assert main(["predict", str(out), str(tables / "dev.tsv")]) == 0, capsys.readouterr().err


def test_words_that_the_vocabulary_lacks_are_read_by_their_characters(elmo: Path, tables: Path) -> None:
    _, result, _ = learnt(elmo, tables, "input", epochs=1)
    tuned: Any = result.tuned
    found = tuned.probabilities(tuned.reader.encode(["the yak", "the gnu"]))
    assert not np.allclose(found[0], found[1])


def test_from_scratch_is_a_twin_with_other_weights(elmo: Path, tables: Path) -> None:
    loaded, result, _ = learnt(elmo, tables, "input", epochs=1, from_scratch=True)
    twin = result.tuned.network.state_dict()
    assert twin.keys() == loaded.network.state_dict().keys()
    same = [name for name, tensor in loaded.network.named_parameters() if torch.equal(tensor, twin[name])]
    assert not same


def test_options_that_mean_nothing_here_are_refused(elmo: Path, tables: Path) -> None:
    for changed, said in (({"auxiliary": (0.2, 0.1)}, "--auxiliary"), ({"truncate": (5, 10)}, "--truncate")):
        with pytest.raises(TaskError, match=said):
            learnt(elmo, tables, "input", **changed)
    for mix, said in (("inside", "unknown --mix 'inside'"), ("both:", "penalty"), ("both:-1", "penalty"), ("both:x", "penalty")):
        with pytest.raises(TaskError, match=said):
            task("frozen_features", mix=mix)


def test_features_go_into_a_file(elmo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", str(elmo), "the cat saw a yak", "rain", "--layers", "all", "--out", str(out)]) == 0
    with np.load(out) as archive:
        assert archive["0"].shape == (3, 5, 32) and archive["1"].shape == (3, 1, 32)
    assert main(["embed", str(elmo), "rain", "--layers", "all"]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize("budget", [0, 12_000, KEPT])
@pytest.mark.parametrize("kind", ["frozen_features", "token_labelling"])
def test_layers_that_are_kept_between_epochs_change_no_metric(
    elmo: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, budget: int
) -> None:
    chosen: Any = task(kind, mix="both")
    path = tables / "train.tsv"
    if kind == "token_labelling":
        texts = [line.split("\t")[0].split() for line in path.read_text().splitlines()[1:17]]
        path = tmp_path / "tags.tsv"
        path.write_text("\n".join("".join(f"{word}\t{word[0]}\n" for word in words) for words in texts))
    examples, loaded = chosen.read(path), load_checkpoint(elmo)
    settings = Settings(epochs=3, batch=8, task_lstm=16, pool="max" if kind == "frozen_features" else None, length=20)
    read: list[int] = []
    network = type(loaded.network).forward

    def counted(self: Any, **given: Any) -> Any:
        read.append(len(given["tokens"]))
        return network(self, **given)

    def found(budget: int) -> tuple[list[Any], int]:
        read.clear()
        monkeypatch.setattr("cloze.tasks.kept.KeptLayers.__init__.__defaults__", (budget,))
        made = finetune_seeds(loaded, chosen, examples, examples, settings=settings, seeds=(1,))
        assert made.tuned.kept is None  # nothing stays when the run is over
        return [(record["loss"], record["dev"]) for record in made.log], sum(read)

    monkeypatch.setattr(type(loaded.network), "forward", counted)
    (anew, all_rows), (kept, rows) = found(0), found(budget)
    assert [dev for _, dev in kept] == [dev for _, dev in anew]
    assert [loss for loss, _ in kept] == pytest.approx([loss for loss, _ in anew], rel=1e-6)
    # train and dev are each read once where all is kept, and in each of three epochs where nothing is; one text counts layers
    assert {0: rows == all_rows, 12_000: len(examples) * 2 < rows < all_rows, KEPT: rows == len(examples) * 2 + 1}[budget]
    assert all_rows == len(examples) * 6 + 1
