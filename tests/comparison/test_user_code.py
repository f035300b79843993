"""Comparisons of parts from a user's own Python file: a cell depends on the file, and its process imports it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.comparison import work
from cloze.comparison.cell import RESULT
from cloze.comparison.compare import run
from cloze.comparison.design import Design, checked, transfers_of
from cloze.errors import CheckpointError
from cloze.recipe.user_files import import_files
from tests.conftest import forget_own_parts

from .conftest import Here, stub

Make = Callable[..., Design]

PARTS = '''
from dataclasses import dataclass

from cloze.networks.transformer import Transformer
from cloze.registry import register
from cloze.changes.change import Change


@register("network", "mine_alone")
class Mine(Transformer):
    """A Transformer by another name."""


@register("change", "nothing")
@dataclass(frozen=True)
class Nothing(Change):
    """A change that changes nothing."""

    share: float
'''


@pytest.fixture
def parts(files: Path, tmp_path: Path) -> Path:
    """The file of parts; `own.yaml` next to it is a.yaml with the network of this file."""
    recipe = (files / "a.yaml").read_text(encoding="utf-8").replace("transformer:", "mine_alone:").replace("name: a", "name: own")
    (tmp_path / "own.yaml").write_text(recipe, encoding="utf-8")
    (tmp_path / "parts.py").write_text(PARTS)
    import_files([tmp_path / "parts.py"])
    return tmp_path / "parts.py"


def started(design: Design, out: Path) -> list[str]:
    """The kinds and candidates of the cells that a comparison starts."""
    workers = Here(stub)
    run(design, out, workers)
    return sorted("-".join(name.split("-")[:2]) for name in workers.started)


def test_another_version_of_the_users_code_is_another_cell_and_other_candidates_keep_theirs(
    design: Make, parts: Path, tmp_path: Path
) -> None:
    wanted = design("a.yaml", str(parts.with_name("own.yaml")), seeds=1, with_files=[parts])
    assert started(wanted, tmp_path / "out") == ["corpus-text", "finetune-mood", "finetune-mood", "pretrain-a", "pretrain-own"]
    assert started(wanted, tmp_path / "out") == []
    parts.write_text(PARTS + "\n# another version\n")
    assert started(wanted, tmp_path / "out") == ["finetune-mood", "pretrain-own"]


def test_a_change_of_the_users_own_depends_on_their_file(design: Make, parts: Path, tmp_path: Path) -> None:
    wanted = design("a.yaml", seeds=1, with_files=[parts], transfers=transfers_of("full,nothing=0.5"))
    assert len(started(wanted, tmp_path / "out")) == 4
    parts.write_text(PARTS + "\n# another version\n")
    assert started(wanted, tmp_path / "out") == ["finetune-mood"]


def test_the_process_of_every_cell_imports_the_file(design: Make, parts: Path, tmp_path: Path) -> None:
    workers = Here(stub)
    own = str(parts.with_name("own.yaml"))
    run(design(own, seeds=1, with_files=[parts], transfers=transfers_of("nothing=0.5")), tmp_path / "out", workers)
    assert [name.split("-")[0] for name in workers.started] == ["corpus", "pretrain", "finetune"]
    for name in workers.started:
        folder = tmp_path / "out" / "cells" / name
        (folder / RESULT).unlink()
        forget_own_parts()
        assert work.run(folder) == 0, (folder / "failed.json").read_text()


def test_a_checkpoint_with_unknown_parts_is_refused_before_any_cell_starts(design: Make, parts: Path, tmp_path: Path) -> None:
    description = {
        "version": 1, "part": "mine_alone", "arguments": {}, "order": "open", "architecture": None, "heads": {},
        "reading": {"single": "{A}", "pair": None, "summary": "first"},
    }
    for name in ("one", "two"):
        (tmp_path / name / "cloze").mkdir(parents=True)
        (tmp_path / name / "cloze" / "run.json").write_text("{}")
    (tmp_path / "two" / "cloze" / "network.json").write_text(json.dumps(description))
    wanted = design("a.yaml", str(tmp_path / "one"), str(tmp_path / "two"), seeds=1)
    forget_own_parts()
    with pytest.raises(CheckpointError, match=rf"{tmp_path}/two: .*mine_alone.*\n  .* add --with FILE"):
        checked(wanted)
