"""Training steps of a system at tiny size on a device, as the loop does them: on a CPU, a GPU or a simulated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch

from cloze.batching import Cursor
from cloze.checkpoint.build import build_part
from cloze.checkpoint.feeds import build_data
from cloze.recipe.recipe import Recipe
from cloze.runs.preparing import training_of
from cloze.training import loop
from cloze.training.distribution import Ranks
from cloze.training.meter import Meter
from cloze.training.run import Run, RunIdentity
from cloze.training.schedule.budget import Budget
from cloze.training.step import StepModule
from cloze.training.together import StepPiece, whole_step_losses
from cloze.training.trainee import Trainee


class DeviceSteps:
    """Steps of a recipe's `step` module on a device; `system` has what it reads. Dropout is on only if `training`."""

    def __init__(
        self, system: Any, recipe: Recipe, step: StepModule, device: str, *, precision: Literal["fp32", "bf16"] = "fp32",
        training: bool = False, compiled: bool = False,
    ) -> None:
        self.entries = list(recipe.step_entries)
        self.data = build_data(recipe, system.stores, step, system.tokenizer, seed=0, tables=system.tables)
        run = Run(
            folder=Path("unused"), step=step, data=self.data, export=lambda folder, state, number: None,
            budget=Budget.parse("1000steps"), optimizer=build_part(recipe.training.optimizer),
            rate=build_part(recipe.training.rate), identity=RunIdentity({}, ""),
            training=replace(training_of(recipe), precision=precision, compile=compiled, nominal_steps=1000),
        )
        self.trainee = Trainee(run, Ranks(0, 1, torch.device(device)))
        step.train(training)
        step.begin_averages()
        progress = SimpleNamespace(step=0, share=0.0)
        self.session: Any = SimpleNamespace(
            run=run, trainee=self.trainee, ranks=self.trainee.ranks, meter=Meter(), run_progress=progress
        )
        self.cursors: dict[str, Cursor] = {entry: Cursor() for entry in self.entries}

    @property
    def compiled_modules(self) -> list[torch.nn.Module]:
        """The modules that `compile_layers` would compile."""
        networks: list[Any] = list(self.trainee.model.networks.values())
        return [group for network in networks for group in network.depth_groups()[1:]]

    def update(self) -> None:
        """One update: fetch, count, forward, backward, optimizer."""
        session, trainee = self.session, self.trainee
        pieces: list[StepPiece] = []
        for number, entry in enumerate(self.entries):
            micros, self.cursors[entry] = self.data.next(entry, self.cursors[entry])
            pieces += [StepPiece(entry, micro, micro.first_row + (number << 32)) for micro in micros]
        totals = loop._count(session_with_seconds(session), self.entries, pieces, False)  # type: ignore[arg-type]
        factors = {name: 1.0 / max(count, 1.0) for name, count in totals.divisors("targets").items()}
        for entry in self.entries:
            entry_pieces = [piece for piece in pieces if piece.entry == entry]
            with whole_step_losses(trainee, entry_pieces, step=session.run_progress.step, share=0.0):
                for piece in entry_pieces:
                    loop._backward(session, piece, 0.0, factors, last=piece is pieces[-1])
        norm = loop._update(session, 0.0)
        session.run_progress.step += 1
        session.meter.add_step(session.run_progress.step, norm, totals, {})

    def losses(self) -> Mapping[str, float]:
        """The mean losses since the last call, by their names in the log; waits for the device."""
        self.session.meter.check()
        objectives: Mapping[str, float] = self.session.meter.means(self.session.ranks)["objectives"]
        self.session.meter.clear()
        return objectives


def session_with_seconds(session: Any) -> Any:
    """The session, whose clock of training stands."""
    session.run_progress.seconds_now = lambda: 0.0
    return session
