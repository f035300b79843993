"""One process at a time in a run folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloze.errors import CheckpointError
from cloze.training.checkpoints.lock import LOCK, alone_in

HOLD = """
import sys, time
from pathlib import Path
from cloze.training.checkpoints.lock import alone_in
with alone_in(Path(sys.argv[1]), first=True):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_trains_there_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=rf"(?s)pid {holder.pid}.*--out") as refused, alone_in(tmp_path, first=True):
            pass
        assert refused.value.exit_code == 2  # the work has not failed: it has not begun
    finally:
        holder.kill()
        holder.communicate()
    with alone_in(tmp_path, first=True):
        assert (tmp_path / LOCK).read_text().startswith("pid ")


def test_other_ranks_share_the_folder_with_the_first(tmp_path: Path) -> None:
    with alone_in(tmp_path, first=True), alone_in(tmp_path, first=False):
        assert (tmp_path / LOCK).is_file()
    with alone_in(tmp_path / "elsewhere", first=False):
        assert not (tmp_path / "elsewhere").exists()  # only the first rank writes
