"""A run with parts of a user's own file: its folder has a copy, which runs only if the user says so."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.cli.commands import COMMANDS
from cloze.cli.main import main
from cloze.errors import CheckpointError, RecipeError
from cloze.recipe.parts import names
from cloze.recipe.schema import arguments_of_part
from cloze.recipe.user_files import import_files
from cloze.registry import arguments_of, lookup, parameters

PARTS = '''
from cloze.networks.transformer import Transformer
from cloze.registry import register


@register("network", "mine_alone")
class Mine(Transformer):
    """A Transformer by another name."""
'''
RECIPE = """
name: mine
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 80}}}
corpus: {passages: {length: 16}}
network: {mine_alone: {layers: 1, width: 8, heads: 1}}
exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask: {rate: 0.15}
  - corrupt: {mask: 1.0, random: 0.0, keep: 0.0}
  - predict: masked
objectives: [token_prediction]
training: {optimizer: adamw, rate: {linear: {peak: 1e-3}}, batch: 2, held_out: 0}
reading: {single: "[CLS] {A} [SEP]", summary: first}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a run, RUN, the recipe, and the file of parts; tests/conftest.py then forgets the parts."""
    here = tmp_path_factory.mktemp("user_files")
    (here / "parts.py").write_text(PARTS)
    (here / "mine.yaml").write_text(RECIPE)
    (here / "a.txt").write_text("\n\n".join(f"the cat saw {word} and the dog ran home ." for word in "abcdefgh"))
    options = ["--budget", "1steps", "--with", str(here / "parts.py"), "--device", "cpu"]
    assert main(["pretrain", str(here / "mine.yaml"), "--corpus", str(here / "a.txt"), "--out", str(here / "RUN"), *options]) == 0
    return here


def test_the_run_folder_has_a_copy_of_the_file_and_its_digest(trained: Path) -> None:
    run = trained / "RUN"
    assert (run / "cloze" / "code" / "parts.py").read_text() == PARTS
    assert (run / "cloze" / "checkpoints" / "step-00000001" / "cloze" / "code" / "parts.py").read_text() == PARTS
    recorded = json.loads((run / "cloze" / "run.json").read_text())["inputs"]["code"]
    assert recorded == {"parts.py": {"given": str(trained / "parts.py"), "sha256": sha256(PARTS.encode()).hexdigest()}}


EDITED = '''
from dataclasses import dataclass

from cloze.exercises import Edit
from cloze.registry import register


@register("edit", "mine_NAME")
@dataclass(frozen=True)
class Mine(Edit):
    rate: float = DEFAULT

    takes = gives = frozenset()

    def __call__(self, rows, draw):
        return rows
'''


def edited(name: str, default: str) -> str:
    return EDITED.replace("NAME", name).replace("DEFAULT", default)


def test_an_edited_file_is_imported_again_and_its_parts_replace_the_old_ones(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    for name, default in (("one", "0.1"), ("one", "0.2"), ("two", "0.3")):  # within a second, and of equal length
        file.write_text(edited(name, default))
        import_files([file])
        assert arguments_of_part("edit", f"mine_{name}")["rate"].default == float(default)
    assert "mine_one" not in names("edit")
    before = lookup("edit", "mine_two")
    import_files([file])
    assert lookup("edit", "mine_two") is before  # unchanged code is imported once


def test_an_edit_that_cannot_be_imported_leaves_the_earlier_parts_and_can_be_corrected(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    file.write_text(edited("one", "0.1"))
    import_files([file])
    before = lookup("edit", "mine_one")
    file.write_text(edited("two", "0.2") + "\n1 / 0\n")
    with pytest.raises(RecipeError, match="line 18: importing it failed: ZeroDivisionError"):
        import_files([file])
    assert lookup("edit", "mine_one") is before and "mine_two" not in names("edit")
    file.write_text(edited("two", "0.2"))
    import_files([file])
    assert "mine_two" in names("edit") and "mine_one" not in names("edit")


def test_without_the_file_no_code_runs_and_the_error_names_the_copy(trained: Path) -> None:
    copy = trained / "RUN" / "cloze" / "code" / "parts.py"
    with pytest.raises(CheckpointError) as told:
        cloze.load(trained / "RUN", device="cpu")
    assert "unknown network 'mine_alone'" in str(told.value)
    assert f"--with {copy}  (in Python: with_files=['{copy}'])" in str(told.value)
    with pytest.raises(RecipeError, match=f"unknown network 'mine_alone'(.|\n)*--with {copy}"):
        cloze.load_recipe(trained / "RUN")


def test_the_copy_opens_the_checkpoint(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = trained / "RUN" / "cloze" / "code" / "parts.py"
    model = cloze.load(trained / "RUN", device="cpu", with_files=[copy])
    assert type(model.network).__name__ == "Mine"
    cloze.load(trained / "RUN", device="cpu", with_files=[trained / "parts.py"])  # the same code from another place
    assert main(["show", str(trained / "RUN"), "--with", str(copy)]) == 0
    shown = capsys.readouterr().out
    assert f"your parts     {copy}, sha256 {sha256(PARTS.encode()).hexdigest()[:12]}" in shown
    assert all(line.endswith(f" --with {copy}") for line in shown.splitlines() if line.startswith("  cloze fi"))


def test_an_exported_folder_has_the_copy_and_says_so(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(trained / "RUN"), str(tmp_path / "OUT"), "--to", "huggingface"]
    assert main(words) == 2 and not (tmp_path / "OUT").exists()
    assert main([*words, "--with", str(trained / "parts.py")]) == 0
    assert (tmp_path / "OUT" / "cloze" / "code" / "parts.py").read_text() == PARTS
    assert "cloze/code/parts.py is your Python file" in capsys.readouterr().out


def test_a_run_that_resumes_says_that_its_file_has_changed(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "RUN", tmp_path / "RUN")
    (tmp_path / "parts.py").write_text(PARTS + "\n# another version\n")
    lines: list[str] = []
    cloze.pretrain(
        trained / "mine.yaml", corpus=trained / "a.txt", out=tmp_path / "RUN", budget="2steps", extend=True, device="cpu",
        with_files=[tmp_path / "parts.py"], report=lines.append,
    )
    assert f"{tmp_path / 'parts.py'}: has changed since the run began; the run resumes with the file as it is now." in lines


WITHOUT_PARTS = {"list", "corpus", "report", "demo", "vocab", "words", "link", "features"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_PARTS))
def test_every_command_that_may_meet_parts_of_a_user_takes_their_file(name: str) -> None:
    command: Callable[..., None] = vars(import_module(f"cloze.cli.{COMMANDS[name].module}"))["command"]
    assert "with_files" in inspect.signature(command).parameters


def test_a_constructor_that_passes_its_keywords_on_has_the_parameters_of_the_one_above() -> None:
    class Base:
        def __init__(self, *, width: int, dropout: float = 0.1) -> None:
            self.width, self.dropout = width, dropout

    class Between(Base):
        pass

    class Wide(Between):
        def __init__(self, *, dropout: float = 0.2, layers: int = 1, **base: Any) -> None:
            super().__init__(dropout=dropout, **base)

    found = parameters(Wide)
    assert list(found) == ["dropout", "layers", "width"] and found["dropout"].default == 0.2
    assert list(arguments_of(Wide)) == ["dropout", "layers", "width"] and arguments_of(Wide)["width"].required
