"""A process that trains in forked children and kills them: `python killing.py FOLDER SEED KILLS`.

`whole` is not killed. `random`: children die by SIGKILL at random moments, the last one ends the run. `export`, `rename`,
`publish`: the first child dies inside that part of writing the second checkpoint; `twice`: while it replaces that checkpoint
by another of the same step.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tiny import Numbers, electra, export, tiny_run

from cloze import whole
from cloze.training import checkpoint
from cloze.training.loop import train
from cloze.training.session import Session

STEPS = 18
HOW = ("random", "export", "rename", "publish", "twice")


def child(folder: Path) -> None:
    train(
        tiny_run(
            folder, step=electra(), data=Numbers(micro=4), budget=f"{STEPS}steps", training={"checkpoint_every": 3}
        )
    )


def fork(folder: Path, seconds: float | None) -> bool:
    """Train in a child; kill it after some seconds. True if it ended by itself."""
    process = os.fork()
    if process == 0:
        child(folder)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"a child failed with {status}")
    return not os.WIFSIGNALED(status)


def die_inside(how: str) -> None:
    """Make the writing of the checkpoint of step 3 deadly."""

    def deadly(real, is_time):
        def call(*given):
            if is_time(*given):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        return call

    if how == "export":
        tiny = sys.modules["tiny"]
        tiny.export = deadly(export, lambda folder, state, step: step == 3)
    if how == "rename":
        checkpoint.put = deadly(checkpoint.put, lambda partial, target: target.name.endswith("03"))
    if how == "twice":
        save = Session.checkpoint
        Session.checkpoint = lambda self: (save(self), save(self))  # type: ignore[method-assign]
        removed = iter(range(10**6))
        whole._remove = deadly(whole._remove, lambda path: next(removed) == 1)
    if how == "publish":
        links = iter(range(10**6))  # step 0 publishes two files; the fourth link is the middle of step 3's
        checkpoint.os.link = deadly(os.link, lambda *_: next(links) == 3)


def killed_inside(folder: Path, how: str) -> None:
    """A child that dies inside `how`."""
    if os.fork() == 0:
        die_inside(how)
        child(folder)
        os._exit(0)
    if not os.WIFSIGNALED(os.wait()[1]):
        sys.exit(f"{how}: the child was to die and did not")


def main(folder: Path, seed: int, kills: int) -> None:
    torch.set_num_threads(1)  # a fork must not inherit a pool of threads
    child(folder / "first")  # imports and caches what every child would
    start = time.perf_counter()
    fork(folder / "whole", None)
    whole = time.perf_counter() - start
    chance = random.Random(seed)
    for _ in range(kills):
        fork(folder / "random", chance.uniform(0.05, 0.5) * whole)
    for how in HOW[1:]:
        killed_inside(folder / how, how)
    for how in HOW:
        if not fork(folder / how, None):
            sys.exit(f"{how}: the last child was killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
