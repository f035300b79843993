"""What is replaced is never lost: a writer killed at any moment leaves the old result or the new one, and no litter for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloze import atomic

# Writes `new` over `old`, and dies at the call of that number to anything that changes a name or removes something.
DEADLY = """
import os, shutil, signal, sys
from pathlib import Path
from cloze import atomic

target, moment, can_exchange = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
calls = 0

def deadly(real):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), 9)
        return real(*given, **named)
    return call

atomic.os.replace, atomic._remove, atomic.flush = deadly(os.replace), deadly(atomic._remove), deadly(atomic.flush)
atomic.exchange = deadly(atomic.exchange if can_exchange else lambda one, other: False)
if target.suffix:
    with atomic.whole_file(target) as stage:
        stage.write_text("new")
else:
    with atomic.whole_folder(target) as stage:
        (stage / "file").write_text("new")
"""


def held(target: Path) -> str:
    return (target if target.suffix else target / "file").read_text()


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5])
def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path, moment: int, can_exchange: bool) -> None:
    target = tmp_path / "result"
    target.mkdir()
    (target / "file").write_text("old")
    command = [sys.executable, "-c", DEADLY, str(target), str(moment), str(can_exchange)]
    died = subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert died == (moment <= (3 if can_exchange else 5))
    if can_exchange:
        assert held(target) == ("old" if moment <= 2 else "new")
    atomic.recover(target)
    assert held(target) == ("old" if moment <= (2 if can_exchange else 4) else "new")
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_file_is_replaced_in_one_step(tmp_path: Path, moment: int) -> None:
    target = tmp_path / "v.vec"
    target.write_text("old")
    subprocess.run([sys.executable, "-c", DEADLY, str(target), str(moment), "True"], check=False)
    assert held(target) == ("new" if moment == 3 else "old")
    with atomic.whole_file(target) as stage:
        stage.write_text("newer")
    assert held(target) == "newer" and [path.name for path in tmp_path.iterdir()] == ["v.vec"]


def test_the_place_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with atomic.whole_file(tmp_path / "v.vec") as first:
        first.write_text("first")
        with atomic.whole_file(tmp_path / "v.vec") as second:
            second.write_text("second")
        assert held(tmp_path / "v.vec") == "second" and first.is_file()
    assert held(tmp_path / "v.vec") == "first" and len(list(tmp_path.iterdir())) == 1


def test_an_error_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "v.vec").write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.whole_file(tmp_path / "v.vec") as stage:
        stage.write_text("half")
        raise ZeroDivisionError
    assert held(tmp_path / "v.vec") == "old" and os.listdir(tmp_path) == ["v.vec"]


def test_names_are_exchanged_where_the_file_system_can(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    if not atomic.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two names")
    assert (held(tmp_path / "a"), held(tmp_path / "b")) == ("b", "a")
    assert not atomic.exchange(tmp_path / "a", tmp_path / "none")
    assert (tmp_path / "a").is_dir()
