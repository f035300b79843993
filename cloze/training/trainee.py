"""What is trained, as this rank holds it: the model, its optimizer, and its memory between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from cloze.batching import MicroBatch
from cloze.networks.blocks.observer import Observer
from cloze.objectives import Loss
from cloze.training.carry import Carries, Carry
from cloze.training.distribution import Ranks
from cloze.training.precision import casting, choose_precision
from cloze.training.run import Run
from cloze.training.schedule.freezing import Freezing
from cloze.training.step import StepModule

#: For kernels of a CPU: with vectors of 512 bits (torch 2.13, GCC 12), gradients of rotated queries and keys in bf16 were wrong,
#: or not finite.
NARROW_VECTORS: dict[str, str | int | bool | Callable[..., Any]] = {"cpp.simdlen": 256}


class Trainee:
    """The model of a run with its optimizer.

    `model` has the parameters by our names; `wrapped_model` is the same under DDP or FSDP, which training calls.
    `learning_rate` is that of the last update.
    """

    def __init__(self, run: Run, ranks: Ranks) -> None:
        self.run, self.ranks = run, ranks
        self.precision = choose_precision(run.training.precision, ranks.device)
        self.model = run.step.to(ranks.device).train()
        self.model.clock.to(ranks.device)
        compile_layers(self.model, run.training.compile, ranks.device)
        self.wrapped_model = ranks.wrap(self.model, half=self.precision == "bf16")
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.observers = [module for module in self.model.modules() if isinstance(module, Observer)]
        for observer in self.observers:
            observer.seen.zero_()  # what trials before the run have seen
        self.freezing = Freezing(
            self.model, dict(self.model.networks), train=run.train, layerwise=run.layerwise, wrapped=ranks.sharded
        )
        self.optimizer = run.optimizer.build_by_part(self.model.named_parameters(), self.freezing.part_of)
        self.freezing.prepare(self.optimizer)
        self.carries = Carries()
        self.learning_rate = 0.0
        passes = [pass_ for entry_passes in self.model.entries.values() for pass_ in entry_passes]
        self.single_objective = sum(objective.weight != 0 for pass_ in passes for objective in pass_.objectives) == 1

    def restore_carries(self, lanes: dict[str, torch.Tensor]) -> None:
        """Continue from the memory of every lane in a checkpoint."""
        self.carries = Carries(lanes)

    def log_name(self, entry: str, objective: str) -> str:
        """An objective's name in the log: its own if the run has one entry, else `entry/objective`."""
        return objective if len(self.model.entries) == 1 else f"{entry}/{objective}"

    def log_names(self, entry: str) -> list[str]:
        """The names in the log of an entry's objectives."""
        return [self.log_name(entry, objective.name) for pass_ in self.model.entries[entry] for objective in pass_.objectives]

    def weights(self, entries: Iterable[str], share: float) -> dict[str, float]:
        """The weights of the entries' objectives, by their names in the log, when `share` of the budget is spent."""
        return {
            self.log_name(entry, name): weight
            for entry in entries for name, weight in self.model.weights(entry, share).items()
        }

    def forward(
        self, module: Any, entry: str, micro: MicroBatch, *, step: int, share: float, first_row: int, carries: Carries,
        precision: Literal["fp32", "bf16"] | None = None,
    ) -> dict[str, Loss]:
        """Loss sums of a micro-batch by objective. `step`, `share` and `first_row` address its random numbers; `precision`
        replaces that of the run."""
        self.model.clock.set(seed=self.run.seed, step=step, first_row=first_row, share=share)
        batch = micro.batch.to(self.ranks.device, non_blocking=True)
        with casting(precision or self.precision, self.ranks.device):
            losses: dict[str, Loss] = module(entry, batch, self._carry(entry, micro, carries))
        return losses

    def _carry(self, entry: str, micro: MicroBatch, carries: Carries) -> Carry | None:
        """The memory of a micro-batch's lanes among `carries`; None where no network has any."""
        if not self.model.carries:
            return None
        lanes, _ = micro.batch.shapes()[0]
        return carries.of(entry, micro.first_row, lanes, self.ranks.device)

    def next_rate(self, share: float) -> float:
        """The learning rate of the next update, when `share` of the budget is spent; also keeps it for the log."""
        self.learning_rate = self.run.rate(share, self.run.training.nominal_steps)
        return self.learning_rate

    def observe(self) -> None:
        """Give every observer the largest number that any rank has seen in this step. A collective."""
        if not self.observers:
            return
        largest = self.ranks.most(torch.stack([observer.seen for observer in self.observers]))
        for observer, number in zip(self.observers, largest, strict=True):
            if number > 0:
                observer.learn(number)
            observer.seen.zero_()


def compile_layers(step: StepModule, choice: bool | Literal["auto"], device: torch.device) -> None:
    """Compile the depth groups, whose shapes are fixed within a phase, by default on CUDA only."""
    if choice is True or (choice == "auto" and device.type == "cuda"):
        networks: Iterable[Any] = step.networks.values()
        for network in networks:
            for group in network.depth_groups()[1:]:
                group.compile(options=NARROW_VECTORS if device.type == "cpu" else None)
