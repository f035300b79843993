"""Saves and restores the state of a run over its ranks: the first rank alone keeps, writes and reads it.

A checkpoint is written behind the training: the state is copied, and a thread writes the copy while the next steps train. At most
one is being written. A process that is killed meanwhile leaves the checkpoint before it, which is whole, and resumes from that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from cloze.errors import ClozeError, RunError
from cloze.training.checkpoints.background import BackgroundTask
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.checkpoints.mirror import Mirror
from cloze.training.checkpoints.plain import writing
from cloze.training.checkpoints.state import (
    Gathering,
    gather_optimizer,
    gather_parameters,
    load_optimizer,
    load_parameters,
    with_shared_names,
    without,
)
from cloze.training.distribution import Ranks
from cloze.training.optimizers.averaged import averaged
from cloze.training.run import Run
from cloze.training.trainee import Trainee


class Saved(NamedTuple):
    """A checkpoint as the session reads it: its record, and tensors by name. `carry` is the memory of every lane."""

    state: Mapping[str, Any]
    parameters: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    carry: dict[str, Tensor]


class Saver:
    """The checkpoints of a run on this rank. Every method but `publish_last` and `close` is a collective."""

    def __init__(self, run: Run, ranks: Ranks, *, say: Callable[[str], object] = print) -> None:
        self.run, self.ranks = run, ranks
        self.checkpoints = Checkpoints(run.folder, keep=run.training.keep, keep_steps=run.training.keep_steps)
        self._background = BackgroundTask()
        self._step = 0  # of the checkpoint that is being written
        self.mirror: Mirror | None = None
        if ranks.first:
            self.checkpoints.recover()
        if run.mirror is not None:
            self._open_mirror(run.mirror, say)

    def _open_mirror(self, url: str, say: Callable[[str], object]) -> None:
        failure: ClozeError | None = None
        if self.ranks.first:
            try:
                self.mirror = Mirror(url, say=say)
                self.mirror.require_own(self.run.folder, self.checkpoints.steps())
            except ClozeError as error:
                failure = error
            except Exception as error:  # of the file system, which may answer later
                if self.mirror is not None:
                    self.mirror.failed(error)
        self._fail_together(failure, "could not use the mirror")

    def load(self) -> Saved | None:
        """The last checkpoint; None if there is none.

        The first rank reads them. On the others the tensors of parameters and optimizer are on `meta`; `ranks.share` brings them
        one by one. Raises `CheckpointError` where the checkpoint is damaged, and `RunError` on the other ranks.
        """
        state: dict[str, Any] = {}
        parts: list[dict[str, Tensor]] = [{}, {}, {}]
        failure: ClozeError | None = None
        if self.ranks.first and self.checkpoints.steps():
            try:
                state, *parts[:2] = self.checkpoints.load()
                parts[2] = self.checkpoints.load_carry(state["step"])
            except ClozeError as error:
                failure = error
        self._fail_together(failure, "could not read the checkpoint")
        state = self.ranks.share_data(state)
        if not state:
            return None
        parameters, optimizer, carry = map(self.ranks.share_tensors, parts)
        return Saved(state, parameters, optimizer, {name: self.ranks.share(tensor) for name, tensor in carry.items()})

    def restore(self, saved: Saved, trainee: Trainee) -> None:
        """Give the model, its optimizer and its lanes the tensors of a checkpoint. A collective."""
        where, fetch = str(self.checkpoints.path(saved.state["step"])), self.ranks.share
        load_parameters(trainee.model, saved.parameters, where=where, borrowed=self.run.borrowed, fetch=fetch)
        load_optimizer(trainee.optimizer, trainee.model, saved.optimizer, where=where, fetch=fetch)
        trainee.restore_carries(saved.carry)

    def save(self, state: Mapping[str, Any], trainee: Trainee, *, behind: bool) -> None:
        """Write the checkpoint of `state["step"]` on the first rank, `behind` the steps that follow or at once.

        Raises what the writing raised on the first rank and `RunError` on the others, for a write behind the steps at the next
        `save` or `finish`.
        """
        self.finish()
        gathering = Gathering(kept=self.ranks.first, apart=behind)
        model, optimizer = trainee.model, trainee.optimizer
        parameters = gather_parameters(model, gathering)
        exported = averaged(optimizer, lambda: gather_parameters(model, gathering)) or parameters
        moments = gather_optimizer(optimizer, model, gathering)
        carry = trainee.carries.gather(self.ranks.world)
        self._step = state["step"]
        if self.ranks.first:
            tensors = with_shared_names(model, exported)
            checkpoints = copy.copy(self.checkpoints)  # with what is best now
            export = self.run.exports[state["phase"]] if self.run.exports else self.run.export

            def write() -> None:
                checkpoints.save(
                    state, parameters=without(parameters, self.run.borrowed), optimizer=moments, carry=carry,
                    export=lambda folder: export(folder, tensors, state["step"]),
                )
                self._copy()

            self._background.start(write)
        if not behind:
            self.finish()

    def publish_last(self) -> None:
        """Publish the run's checkpoint again and copy what the mirror lacks, behind the training.

        The process may have been killed before it had done so. Raises `RunError` if the disk is full.
        """
        if not self.ranks.first:
            return
        with writing(self.run.folder):
            self.checkpoints.publish_last()
        if self.mirror is not None:
            self._background.start(self._copy)

    def _copy(self) -> None:
        if self.mirror is not None:
            self.mirror.copy(self.run.folder, self.checkpoints.steps())

    def finish(self) -> None:
        """Wait until the checkpoint that is being written is whole. Raises as `save`."""
        self._fail_together(self._background.wait(), f"could not write the checkpoint of step {self._step}")

    def close(self) -> None:
        """Let the checkpoint that is being written become whole, whatever ended the run."""
        self._background.wait()

    def _fail_together(self, failure: Exception | None, what: str) -> None:
        failed = self.ranks.add([float(failure is not None)])[0]
        if failure is not None:
            raise failure
        if failed:
            raise RunError(f"rank 0 {what}; rank {self.ranks.rank} stops too. Its own output has the reason.")
