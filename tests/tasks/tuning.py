"""A process that fine-tunes: `python tuning.py JSON` (under torchrun or alone), with `kills` in forked children.

The mapping holds `checkpoint`, `out` and `values`; `recipe`, `train`, `dev` and `teacher`, or `tasks`, the values of --task; and
`kills`: so many children are killed by SIGKILL at random moments before the last one ends the run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cloze.checkpoint.several import parse_tasks
from cloze.runs.finetuning.finetune import finetune


def tune(said: dict[str, Any]) -> None:
    """The run, begun or resumed."""
    what: dict[str, Any]
    if "tasks" in said:
        what = {"tasks": parse_tasks(said["tasks"])}
    else:
        what = {"recipe": said["recipe"], "train": [said["train"]], "dev": [said["dev"]], "binds": [f"teacher={said['teacher']}"]}
    finetune(said["checkpoint"], out=Path(said["out"]), overrides=said["values"], report=lambda line: None, keep_checkpoints=True,
             **what)  # fmt: skip


def child(said: dict[str, Any], seconds: float | None) -> float:
    """Train in a child, killed after some seconds; how long it took."""
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        tune(said)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"a child failed with {status}")
    return time.monotonic() - started


def main(said: dict[str, Any]) -> None:
    """The whole run for its length in time, then the one that is killed."""
    if not said["kills"]:
        tune(said)
        return
    whole = child({**said, "out": f"{said['out']}-whole"}, None)
    chance = random.Random(1)
    for number in range(said["kills"]):
        child(said, whole * (0.3 + 0.5 * number / said["kills"] + 0.1 * chance.random()))
    child(said, None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
