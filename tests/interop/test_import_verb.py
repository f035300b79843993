"""`cloze import`: a Hugging Face folder in, a checkpoint with a legal recipe out."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch

from cloze.cli.main import main
from cloze.interop import Card, export_folder, import_folder
from cloze.recipe.load import load_recipe


def folder_of(systems: ModuleType, place: Path, name: str) -> Path:
    made = systems.system(name, width=64, heads=1)
    export_folder(place, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    shutil.rmtree(place / "cloze")
    return place


@pytest.mark.parametrize("name", ["bert", "bert-tanh", "roberta", "gpt2", "electra", "generator", "classifier"])
def test_a_folder_becomes_a_checkpoint_with_a_recipe(
    systems: ModuleType, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder_of(systems, tmp_path / "source", name)
    assert main(["import", str(source), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "2 layers, width 64, 1 attention heads" in printed
    first, second = import_folder(source), import_folder(tmp_path / "out")
    assert second.remarks == ()
    for key, tensor in first.model.network.items():
        assert torch.equal(tensor, second.model.network[key])
    assert main(["check", str(tmp_path / "out" / "cloze" / "recipe.yaml")]) == 0
    recipe = load_recipe(tmp_path / "out")
    exported = recipe.networks[recipe.export].part
    assert exported is not None
    assert [exported.arguments[key] for key in ("layers", "width")] == [2, 64]
    assert exported.arguments["positions"].arguments["max_length"] == 20
    assert (recipe.reading.single, recipe.reading.pair) == (first.reading.single, first.reading.pair)
    assert (tmp_path / "out").stat().st_mode & 0o777 == (tmp_path / "out" / "cloze").stat().st_mode & 0o777


def test_a_folder_with_a_further_file_of_torch_is_not_taken_for_weights_of_authors(
    systems: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder_of(systems, tmp_path / "source", "bert")
    torch.save({"last_epoch": torch.tensor(3)}, source / "scheduler.pt")
    assert main(["import", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "bert: 2 layers" in capsys.readouterr().out


def test_a_checkpoint_of_our_own_keeps_its_recipe_and_is_said_to_be_copied(
    systems: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder_of(systems, tmp_path / "source", "bert")
    assert main(["import", str(source), "--out", str(tmp_path / "one"), "--name", "mine"]) == 0
    assert "already" not in capsys.readouterr().out
    assert main(["import", str(tmp_path / "one"), "--out", str(tmp_path / "two"), "--name", "other"]) == 0
    assert f"{tmp_path / 'one'} is already a checkpoint of cloze, which every command opens" in capsys.readouterr().out
    texts = [(tmp_path / name / "cloze" / "recipe.yaml").read_text() for name in ("one", "two")]
    assert texts[0] == texts[1]
    assert load_recipe(tmp_path / "two").name == "mine"


def test_a_place_that_holds_something_is_refused(
    systems: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder_of(systems, tmp_path / "source", "bert")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert main(["import", str(source), "--out", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_bad_folder_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    assert main(["import", str(tmp_path / "source"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "config.json: there is no such file" in error and "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_folder_of_peft_is_told_what_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert main(["import", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "a folder of peft" in told and f"cloze export {tmp_path} {tmp_path / 'out'} --to merged" in told


def test_a_place_that_does_not_exist_may_have_been_a_file_or_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.bin").write_text("")
    assert main(["import", str(tmp_path / "word.bin"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "word.bin: there is no such file or folder" in error and "or a file of vectors. Did you mean 'words.bin'?" in error
    assert "Hugging Face Hub" not in error and not (tmp_path / "out").exists()


def test_options_of_import_that_would_change_nothing_are_refused_by_the_name_of_the_file(
    systems: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = tmp_path / "words.vec"
    vectors.write_text("2 2\ncat 1 2\ndog 3 4\n")
    assert main(["import", str(vectors), "--encoder", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"cloze import: {vectors}: word_vectors; expected lstm_encoder_decoder")
    source = folder_of(systems, tmp_path / "source", "bert")
    assert main(["import", str(source), "--repeated", "first", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"--repeated first: only for files of word vectors, which {source} is not. Leave it out." in error
    assert not (tmp_path / "out").exists()
