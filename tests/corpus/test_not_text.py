"""Folders of cloze and transformers that are named as text: refused with their path, their files never read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus.readers.files import find_files
from cloze.corpus.readers.not_text import require_apart, what_is
from cloze.corpus.readers.report import Oddities
from cloze.corpus.records.classes import read_class_folders
from cloze.errors import CorpusError


def write(folder: Path, *names: str) -> Path:
    """Files of a line each below a folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rain falls.\n")
    return folder


STORE = ("store.json", "tokens.bin", "tokenizer/tokenizer.json", "tokenizer/vocab.txt")
RUN = (
    "config.json", "model.safetensors", "tokenizer.json", "cloze/run.json", "cloze/recipe.yaml",
    *(f"cloze/corpus/main/store/{name}" for name in STORE),
)  # fmt: skip
CHECKPOINT = ("config.json", "pytorch_model.bin", "vocab.txt", "merges.txt", "tokenizer_config.json")


def refused(paths: list[Path]) -> str:
    with pytest.raises(CorpusError) as caught:
        find_files(paths, Oddities())
    return str(caught.value)


def test_a_store_inside_a_folder_of_text_is_refused_with_its_path(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", "a.txt", *(f"built/store/{name}" for name in STORE))
    said = refused([texts])
    assert said == (
        f"{texts}: holds a token store, {texts}/built/store, which is not text.\n"
        f"  To read the store, give its path: {texts}/built/store\n"
        f"  To read text files in this folder, name them: '{texts}/*.txt'"
    )
    assert [file.path for file in find_files([str(texts / "*.txt")], Oddities())] == [str(texts / "a.txt")]


def test_a_store_among_other_paths_is_refused(tmp_path: Path) -> None:
    store, text = write(tmp_path / "store", *STORE), write(tmp_path / "texts", "a.txt")
    assert refused([text, store]) == f"{store}: is a token store, not text.\n  Give one store alone, without other paths."


def test_a_run_folder_is_refused_with_the_path_of_its_store(tmp_path: Path) -> None:
    run = write(tmp_path / "RUN", *RUN)
    assert refused([run]) == (
        f"{run}: is a run folder, not text.\n  To read the text that it was trained on, give its token store: "
        f"{run}/cloze/corpus/main/store"
    )
    assert refused([tmp_path]).startswith(f"{tmp_path}: holds a run folder, {run}, which is not text.\n")


@pytest.mark.parametrize(
    ("names", "kind"),
    [(CHECKPOINT, "a checkpoint"), (("config.json", "cloze/recipe.yaml", "cloze/network.json"), "a checkpoint"),
     (("tokenizer.json", "vocab.txt"), "a tokenizer folder"), (("config.json", "notes.txt"), "")],
)  # fmt: skip
def test_checkpoints_and_tokenizers_are_told_from_text(names: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "HF", *names)
    assert what_is(folder) == kind
    if kind:
        assert refused([folder]).startswith(f"{folder}: is {kind}, not text.\n") and f"--tokenizer {folder}" in refused([folder])


def test_a_pattern_does_not_reach_into_a_store(tmp_path: Path) -> None:
    store = write(tmp_path / "store", *STORE)
    assert "is a token store, not text" in refused([store / "*"])


def test_a_hidden_folder_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", *(f".cache/{name}" for name in STORE))
    assert [file.path for file in find_files([tmp_path], Oddities())] == [str(tmp_path / "a.txt")]


def test_a_run_folder_is_no_folder_of_classes(tmp_path: Path) -> None:
    run = write(tmp_path / "RUN", *RUN)
    with pytest.raises(CorpusError, match="is a run folder, not text"):
        list(read_class_folders(run))


def test_nothing_is_written_inside_the_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = write(tmp_path / "texts", "a.txt")
    for arguments in (["corpus", "build", str(texts)], ["pretrain", "bert", "--corpus", str(texts)]):
        assert main([*arguments, "--out", str(texts / "made" / "here")]) == 2
        said = capsys.readouterr().err
        assert f"{texts}/made/here: lies inside the corpus {texts}" in said and f"'{texts}/*.txt'" in said
    assert sorted(path.name for path in texts.iterdir()) == ["a.txt"]
    require_apart([texts], tmp_path / "texts2")  # a name that only begins alike
