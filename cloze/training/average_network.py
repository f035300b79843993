"""A network that averages another: its weights and heads follow those of a network that is trained.

With `decay` d they are an exponential average, θ' ← d θ' + (1 - d) θ after every update (mean teacher; Tarvainen and Valpola,
2017). With `last` K they are the mean over the last K updates (Xu et al., 2020, "Improving BERT Fine-Tuning via Self-Ensemble and
Self-Distillation"); the K weights are part of the run's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from cloze.training.checkpoints.state import put_whole
from cloze.training.sharding import whole

Pair = tuple[nn.Module, nn.Module]


class Average(nn.Module):
    """Keeps the first module of each of `pairs` an average of the second, which is trained.

    Until the first update, both are equal. The weights of the last K updates are buffers `history_N` (K, …), and `updates` counts
    them; an exponential average has no state of its own.
    """

    def __init__(self, pairs: Sequence[Pair], *, decay: float | None, last: int | None) -> None:
        super().__init__()
        self.pairs, self.decay, self.last = tuple(pairs), decay, last
        if last is None:
            return
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        for number, (_, trained) in enumerate(self._tensors()):
            self.register_buffer(f"history_{number}", torch.zeros(last, *trained.shape))

    @torch.no_grad()
    def begin(self) -> None:
        """Copy the modules that are trained."""
        for average, trained in self._tensors():
            average.copy_(trained)

    @torch.no_grad()
    def follow(self) -> None:
        """Take up the weights after an update. A collective under FSDP."""
        if self.decay is not None:
            for average, trained in self._tensors():
                if average.is_floating_point():
                    average.lerp_(trained, 1.0 - self.decay)
                else:
                    average.copy_(trained)
            return
        updates: Tensor = self.get_buffer("updates")
        for number, (average, trained) in enumerate(self._tensors()):
            history = self.get_buffer(f"history_{number}")
            history[int(updates) % len(history)] = whole(trained).to(history.dtype)
            mean = history[: int(updates) + 1].mean(0)
            put_whole(average, mean)
        updates += 1

    def _tensors(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Every parameter and persistent buffer of the modules, and its counterpart that is trained."""
        for module, trained in self.pairs:
            tensors = trained.state_dict(keep_vars=True)
            for name, average in module.state_dict(keep_vars=True).items():
                yield average.detach(), tensors[name].detach()
