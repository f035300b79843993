"""`cloze explain`, and what is said of mistakes in a user's own parts."""

from __future__ import annotations

import errno
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from cloze.array_files import save_array, write_values
from cloze.cli.main import describe_error, is_disk_full, main
from cloze.decoding.texts import gather
from cloze.errors import RecipeError, TaskError
from cloze.recipe import parts

OBJECTIVE = '''
from cloze.exercises import Edit
from cloze.registry import register


@register("edit", "{name}")
class Mine(Edit):
    """Does nothing."""

    takes = frozenset()
    gives = frozenset()

    def __init__(self, *, rate: float = 0.5) -> None:
        self.rate = rate

    def __call__(self, rows, draw):
        return rows.absent
'''


def test_a_part_is_explained_with_types_bounds_defaults_and_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "mask"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("mask (edit)\n")
    assert "  rate " in said and "a number from 0 to 1" in said and "default: 0.15" in said
    assert "SpanBERT" in said and "used by albert-base" in said
    assert main(["explain", "linear", "--json"]) == 0
    assert {one["kind"] for one in json.loads(capsys.readouterr().out)} == {"rate", "scaling", "schedule"}
    assert main(["explain", "rate.linear"]) == 0
    said = capsys.readouterr().out
    assert "linear (rate)" in said and "(schedule)" not in said and "a number of 0 or more; needed" in said


def test_kinds_and_their_parts_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "schedule      cubic, exponential, linear" in said
    assert [line.split()[0] for line in said if not line.startswith((" ", "Next"))] == list(parts.MODULES)
    assert main(["explain", "schedule"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("exponential  From `start` to `end` by an equal factor")
    assert main(["explain", "schedule", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["schedule"]) == ["cubic", "exponential", "linear"]
    assert main(["explain", "order"]) == 0  # an edit and a kind
    said = capsys.readouterr().out
    assert said.startswith("order (edit)\n") and said.endswith("\norder is also a kind of part: permutation\n")


def test_an_unknown_part_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "mazk"]) == 2
    assert "unknown part 'mazk'. Did you mean 'mask'" in capsys.readouterr().err


def test_a_part_of_ones_own_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OBJECTIVE.format(name="mine_explained"))
    assert main(["explain", "mine_explained", "--with", str(tmp_path / "mine.py")]) == 0
    assert "rate  a number; default: 0.5" in capsys.readouterr().out


def test_a_mistake_in_a_users_part_is_told_with_file_and_line(tmp_path: Path) -> None:
    from cloze.recipe.parts import builder_of
    from cloze.recipe.user_files import import_files

    file = tmp_path / "wrong.py"
    file.write_text(OBJECTIVE.format(name="mine_wrong"))
    import_files([file])
    part = builder_of("edit", "mine_wrong")()
    with pytest.raises(AttributeError) as inside:
        part(object(), None)
    line = OBJECTIVE.split("\n").index("        return rows.absent") + 1
    message, code = describe_error(inside.value)
    assert code == 2
    assert message.startswith(f"{file}:{line}: in __call__: AttributeError: 'object' object has no attribute 'absent'")
    with pytest.raises(AttributeError) as outside:
        _ = part.frozen
    message, code = describe_error(outside.value)
    assert (code, "bug in cloze" in message) == (2, False)
    assert f"{file}:6: Mine has no 'frozen', which parts of its kind must have." in message


def test_a_part_that_does_not_inherit_from_the_class_of_its_kind_is_refused_with_the_way_out(tmp_path: Path) -> None:
    from cloze.recipe.parts import builder_of
    from cloze.recipe.user_files import import_files

    (tmp_path / "bare.py").write_text(OBJECTIVE.format(name="mine_bare").replace("Mine(Edit)", "Mine"))
    import_files([tmp_path / "bare.py"])
    with pytest.raises(RecipeError, match="(?s)'mine_bare': Mine does not inherit from Edit.*class Mine\\(Edit\\)"):
        builder_of("edit", "mine_bare")


def test_a_part_that_lacks_members_of_its_kind_is_refused_with_their_names_and_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "half.py"
    file.write_text(OBJECTIVE.format(name="mine_half").replace("    gives = frozenset()\n", "").replace("__call__", "call"))
    assert main(["explain", "edit.mine_half", "--with", str(file)]) == 2
    assert capsys.readouterr().err == (
        "cloze explain: edit 'mine_half': Mine lacks what every edit defines:\n"
        "  __call__: The rows after this edit.\n"
        "  gives: The fields that it adds or replaces.\n"
        f"  Add it to the class in {file}.\n"
    )


@pytest.mark.parametrize("kind", ["source", "edit", "network", "objective", "optimizer"])
def test_the_base_class_of_a_kind_is_abstract(kind: str) -> None:
    from importlib import import_module

    from cloze.recipe.parts import BASES

    module, *classes = BASES[kind]
    for name in classes:
        assert inspect.isabstract(getattr(import_module(module), name)), name


def test_an_import_that_fails_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = missing\n")
    assert main(["show", "bert", "--with", str(tmp_path / "bad.py")]) == 2
    assert "bad.py, line 2: importing it failed: NameError: name 'missing' is not defined" in capsys.readouterr().err
    (tmp_path / "worse.py").write_text("x = 1\n\ny = (\n")
    assert main(["show", "bert", "--with", str(tmp_path / "worse.py")]) == 2
    assert "worse.py, line 3: importing it failed: SyntaxError" in capsys.readouterr().err


def test_the_name_of_a_file_is_not_taken_for_a_text(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"TEXTS\.txt: looks like a file's name, and there is no such file\."):
        gather(["TEXTS.txt"], None)
    (tmp_path / "a.txt").write_text("One.\nTwo.\n")
    (tmp_path / "a.tsv").write_text("text\nOne.\n")
    assert gather([str(tmp_path / "a.txt")], None) == ["One.", "Two."]
    with pytest.raises(TaskError, match=r"a\.txt: is a file, among other texts. Give it alone"):
        gather(["A text.", str(tmp_path / "a.txt")], None)
    with pytest.raises(TaskError, match=r"a\.tsv: is a table, not a text\.\n.*--file .*a\.tsv"):
        gather([str(tmp_path / "a.tsv")], None)
    assert gather(["I read a.txt", "etc."], None) == ["I read a.txt", "etc."]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("write", [write_values, save_array])
def test_a_full_disk_is_known_by_the_number_of_the_error(write: Callable[[IO[bytes], Any], None]) -> None:
    with pytest.raises(OSError) as caught, open("/dev/full", "wb") as file:
        write(file, np.zeros(100_000))
    assert is_disk_full(caught.value) and caught.value.errno == errno.ENOSPC
    assert not is_disk_full(OSError("something else"))
