"""A process that trains in forked children and kills them: `python killing.py FOLDER SEED KILLS`.

`whole` is not killed. `random`: children die by SIGKILL at random moments, the last one ends the run. `export`, `rename`,
`publish` and others: the first child dies inside that part of writing the second checkpoint, in the thread that writes it;
`behind`: two steps later, while it is being written; `twice`: while it replaces that checkpoint by another of the same step.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from tiny import Numbers, electra, export, tiny_run

from cloze import atomic
from cloze.training import saving
from cloze.training.checkpoints import checkpoint
from cloze.training.loop import train
from cloze.training.run_progress import RunProgress
from cloze.training.session import Session

STEPS = 18
HOW = ("random", "copy", "export", "tensors", "flush", "rename", "publish", "drop", "behind", "twice")


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
        def call(*given, **named):
            if is_time(*given, **named):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return call

    saves = iter(range(10**6))
    if how == "export":
        tiny = sys.modules["tiny"]
        tiny.export = deadly(export, lambda folder, state, step: step == 3)
    if how == "copy":
        saving.with_shared_names = deadly(saving.with_shared_names, lambda module, state: next(saves) == 1)
    if how == "tensors":  # state.json is not there yet, the optimizer's tensors are
        checkpoint.json.dumps = deadly(json.dumps, lambda *given, **_: given[0].get("step") == 3)
    if how == "flush":
        checkpoint.flush = deadly(checkpoint.flush, lambda partial: "03" in partial.name)
    if how == "drop":  # step 3 goes when step 9 is there
        checkpoint.shutil.rmtree = deadly(shutil.rmtree, lambda path, **_: str(path).endswith("03.removed"))
    if how == "behind":
        write, advance = checkpoint.write_tensors, RunProgress.advance
        checkpoint.write_tensors = lambda path, tensors: (
            time.sleep(60) if "03" in str(path) and path.stem == "optimizer" else None, write(path, tensors)
        )[1]  # fmt: skip
        died = deadly(advance, lambda run_progress, *_, **__: run_progress.step == 5)
        RunProgress.advance = died  # type: ignore[method-assign]
    if how == "rename":
        checkpoint.put = deadly(checkpoint.put, lambda partial, target: target.name.endswith("03"))
    if how == "twice":
        save = Session.checkpoint
        Session.checkpoint = lambda self, **_: (save(self), save(self))  # type: ignore[method-assign]
        removed = iter(range(10**6))
        atomic._remove = deadly(atomic._remove, lambda path: next(removed) == 1)
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
