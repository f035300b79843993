"""One of the processes of torchrun: `restarting.py FOLDER [STEP]`. The last kills itself once, when it has read so many steps."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny import Numbers, electra, tiny_run

from cloze.training.loop import train

STEPS = 12


class Deadly(Numbers):
    """Rows as in `Numbers`; the process dies before step `at`, in the first of its lives."""

    def __init__(self, at: int, died: Path, **given: Any) -> None:
        super().__init__(**given)
        self.at, self.died = at, died

    def next(self, entry: str, cursor: Any, share: float = 0.0) -> tuple[Sequence[Any], Any]:
        epoch, item = cursor
        if (epoch * self.epoch_items + item) // self.batch >= self.at and not self.died.exists():
            self.died.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().next(entry, cursor, share)


def main(folder: Path, at: int | None) -> None:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    given: dict[str, Any] = {"micro": 2, "rank": rank, "ranks": ranks}
    data = Numbers(**given) if at is None or rank + 1 < ranks else Deadly(at, folder / "died", **given)
    settings = {"log_every": 1, "checkpoint_every": 3}
    train(tiny_run(folder / "run", step=electra(), data=data, budget=f"{STEPS}steps", training=settings))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
