"""A run of fine-tuning that has finished: its folder holds the best weights, and no checkpoints unless they were asked for.

A checkpoint holds the weights twice and the optimiser's state, several times the size of the model. Only `--extend` reads them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloze.errors import CheckpointError
from cloze.interop.files import read_json
from cloze.runs.out_folder import has_checkpoint, is_tuned
from cloze.tasks.result import contents_of
from cloze.training.run import Outcome

_REMOVED = ".checkpoints.removed"


def drop_checkpoints(out: Path) -> None:
    """Remove the checkpoints of a finished run, of its stages and of its seeds; each folder of them disappears in one step."""
    inner = out / "cloze"
    for folder in [*inner.glob("**/checkpoints")]:
        hidden = folder.with_name(_REMOVED)
        shutil.rmtree(hidden, ignore_errors=True)
        os.replace(folder, hidden)
    for hidden in [*inner.glob(f"**/{_REMOVED}")]:  # also those of a process that was killed
        shutil.rmtree(hidden, ignore_errors=True)


def is_closed(out: Path, seeds: Sequence[int], *, extend: bool) -> bool:
    """Whether a run has finished and keeps no checkpoints, so that nothing is trained.

    Raises `CheckpointError` for `extend` and for other `seeds`, which would have to train.
    """
    if not is_tuned(out) or has_checkpoint(out):
        return False
    trained = [int(trial["seed"]) for trial in contents_of(out)["trials"]]
    if not extend and set(seeds) == set(trained):
        return True
    what = "--extend" if extend else f"--seeds {','.join(map(str, seeds))}"
    raise CheckpointError(
        f"{out}: has finished with --seeds {','.join(map(str, trained))} and keeps no checkpoints, which {what} needs.\n"
        "  Train again, in another --out or with --overwrite. To be able to go on later, add --keep-checkpoints."
    )


def outcome_of(folder: Path) -> Outcome:
    """The outcome of a run that finished earlier."""
    described: dict[str, Any] = read_json(folder / "cloze" / "network.json", "the network of a run")
    return Outcome(folder, int(described.get("step") or 0), finished=True, reason="budget", held_out=None)
