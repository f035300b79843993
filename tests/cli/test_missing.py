"""A checkpoint or a file that is not there: seen before anything heavy is imported, and answered with the next step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.missing import require_checkpoint


def told(path: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        require_checkpoint(Path(path))
    return str(caught.value)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_a_recipe_in_the_place_of_a_checkpoint_is_to_be_pretrained(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "Pre-train it first: cloze pretrain quick --corpus TEXT --budget 10m --out quick-run"
    assert told("quick") == f"quick: is a recipe, not a checkpoint. {said}"
    assert main(["finetune", "quick", "--train", "a.tsv", "--dev", "b.tsv", "--out", "o"]) == 2
    assert said in capsys.readouterr().err
    assert "Did you mean the recipe 'quick'? Pre-train it first: cloze pretrain quick " in told("quik")


def test_a_name_without_its_owner_is_told_how_names_on_the_hub_look(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "bert-base-uncased", "--out", "o"]) == 2
    said = capsys.readouterr().err
    assert "there is no such file or folder; expected the folder of a model, or a file of vectors." in said
    assert "A model of the Hugging Face Hub is named with its owner: ORG/bert-base-uncased" in said


def test_a_wrong_path_names_what_is_alike(empty: Path) -> None:
    (empty / "here" / "tuned").mkdir()
    assert "Did you mean 'tuned'?" in told("tund") and "Did you mean 'tuned'?" in told(str(empty / "here" / "tund"))
    assert "Hugging Face" not in told(str(empty / "here" / "tund"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["finetune", "{run}", "--train", "{none}", "--dev", "{file}", "--out", "{out}"], "none.tsv: no such file."),
        (["pretrain", "bert", "--corpus", "{none}", "--out", "{out}"], "none.tsv: no such file"),
        (["predict", "{none}", "text"], "none.tsv: there is no such file or folder"),
        (["probe", "heads", "{run}", "{none}"], "none.tsv: there is no such file or folder"),
    ],
)
def test_a_missing_path_is_answered_before_torch_is_imported(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "file.tsv").write_text("text\tlabel\na\tb\n")
    names = {name: str(tmp_path / name) for name in ("run", "out")} | {
        "none": str(tmp_path / "none.tsv"), "file": str(tmp_path / "file.tsv"),
    }
    words = [word.format(**names) for word in arguments]
    code = "import sys; from cloze.cli.main import main; code = main(sys.argv[1:]); sys.exit(code + 5 * ('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and not (tmp_path / "out").exists()


def test_a_held_out_text_that_is_not_there_is_seen_before_the_corpus_is_read(
    empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.txt").write_text("Rain falls on the roof.\n" * 9)
    wrong = ["--held-out", "test.txt"]
    assert main(["pretrain", "quick", "--corpus", "text.txt", "--budget", "2steps", *wrong, "--out", "run"]) == 2
    assert capsys.readouterr().err == "cloze pretrain: test.txt: no such file or folder. Did you mean 'text.txt'?\n"
    assert [path.name for path in Path().iterdir()] == ["text.txt"]
