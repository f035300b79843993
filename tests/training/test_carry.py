"""The loop hands memory back lane by lane, saves it, and goes on from it as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lanes import Lanes, recurrent
from tiny import tiny_run, weights

from cloze.errors import CheckpointError, RecipeError
from cloze.training.carry import Carries, Carry
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.loop import train
from cloze.training.schedule.phases import SchedulePhase

HERE = Path(__file__).resolve().parent


def losses(folder: Path) -> list[tuple[str, int, float]]:
    records = [json.loads(line) for line in (folder / "cloze" / "log.jsonl").read_text().splitlines()]
    return [(record["event"], record["step"], record["loss"]) for record in records if "loss" in record]


def run(folder: Path, budget: str = "12steps", **changes: object) -> None:
    train(tiny_run(folder, step=recurrent(), budget=budget, **{"data": Lanes(), **changes}))


def test_a_step_reads_the_carry_and_writes_the_next_one() -> None:
    step, data = recurrent().eval(), Lanes()
    first, second = (data.next("main", place)[0][0].batch for place in [(0, 0), (0, 8)])
    carry = Carry()
    step("main", first, carry)
    kept = carry.passes["main"]
    assert kept["states"].shape == (8, 2, 6, 16) and not kept["states"].requires_grad
    remembered = step("main", second, carry)["lm"].total
    assert carry.passes["main"]["states"].shape == (8, 2, 8, 16)
    assert not torch.equal(remembered, step("main", second, Carry())["lm"].total)
    assert torch.equal(step("main", first, carry)["lm"].total, step("main", first)["lm"].total)  # its rows restart


def test_rows_that_do_not_say_where_a_stream_begins_remember_nothing() -> None:
    step, carry = recurrent().eval(), Carry()
    batch = Lanes().next("main", (0, 0))[0][0].batch
    step("main", type(batch)({name: tensor for name, tensor in batch.items() if name != "restarts"}), carry)
    assert carry.passes == {}


def test_lanes_are_gathered_in_order_and_sliced_again() -> None:
    carries = Carries()
    for first in (4, 0):
        states = torch.arange(first, first + 4.0)[:, None]
        carries.of("main", first, 4, torch.device("cpu")).passes["xl"] = {"states": states, "known": states > 1}
    saved = carries.gather(1)
    assert saved["main:xl:states"].view(-1).tolist() == list(range(8))
    again = Carries(saved)
    assert again.gather(1).keys() == saved.keys()  # kept even if the entry is not read before the next checkpoint
    passes = again.of("main", 2, 2, torch.device("cpu")).passes
    assert passes["xl"]["states"].view(-1).tolist() == [2, 3]


def test_micro_batches_change_nothing_but_rounding(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    run(tmp_path / "parts", data=Lanes(micro=2))
    for one, other in zip(losses(tmp_path / "whole"), losses(tmp_path / "parts"), strict=True):
        assert one[:2] == other[:2] and one[2] == pytest.approx(other[2], abs=1e-4)


def test_a_resumed_run_ends_bit_identical_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    stopped = tmp_path / "stopped"
    run(stopped, "8steps", rate=lambda share, steps: 1e-3)
    run(tmp_path / "again", rate=lambda share, steps: 1e-3)
    run(stopped, "12steps", rate=lambda share, steps: 1e-3, extend=True)
    assert weights(stopped) == weights(tmp_path / "again")
    last = Path("cloze/checkpoints/step-00000012/state/carry.safetensors")
    assert (stopped / last).read_bytes() == (tmp_path / "again" / last).read_bytes()


def test_a_killed_run_ends_bit_identical(tmp_path: Path) -> None:
    """In children of one process that has imported everything."""
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nimport torch\nfrom lanes import Lanes, recurrent\n"
        "from tiny import tiny_run\nfrom cloze.training import run_progress\nfrom cloze.training.loop import train\n"
        "torch.set_num_threads(1)\n"
        "steps = run_progress.RunProgress.advance\n"
        "def child(folder, kill):\n"
        "    if os.fork() == 0:\n"
        "        def advance(self, *given, **named):\n"
        "            if self.step == 6 and kill: os.kill(os.getpid(), signal.SIGKILL)\n"
        "            return steps(self, *given, **named)\n"
        "        run_progress.RunProgress.advance = advance\n"
        "        train(tiny_run(Path(folder), step=recurrent(), data=Lanes(micro=4)))\n"
        "        os._exit(0)\n"
        "    return os.waitstatus_to_exitcode(os.wait()[1])\n"
        "print(child(sys.argv[1], False), child(sys.argv[2], True), child(sys.argv[2], False))\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    command = [sys.executable, "-c", script, str(tmp_path / "whole"), str(tmp_path / "killed")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "-9", "0"], done.stderr
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    last = Path("cloze/checkpoints/step-00000012/state/carry.safetensors")
    assert (tmp_path / "killed" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


def test_a_damaged_carry_is_a_plain_error(tmp_path: Path) -> None:
    run(tmp_path, "4steps")
    file = Checkpoints(tmp_path).path(4) / "state" / "carry.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"carry\.safetensors"):
        run(tmp_path, "4steps")


def test_a_network_without_memory_writes_no_carry(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, step=recurrent(memory=0), data=Lanes(), budget="4steps"))
    assert not (Checkpoints(tmp_path).path(4) / "state" / "carry.safetensors").exists()


def test_a_phase_must_not_change_the_batch_of_lanes(tmp_path: Path) -> None:
    phases = [SchedulePhase(0.0, {"length": 6}), SchedulePhase(0.5, {"batch": 16})]
    with pytest.raises(RecipeError, match="the batch must stay the same"):
        train(tiny_run(tmp_path, step=recurrent(), data=Lanes(), phases=phases))
