"""Recurrent memory between steps: the last state of each lane's network, given back with the lane's next row.

Lanes are rows of the batch: row i of every step continues row i of the step before. A micro-batch is a run of lanes that
starts at its first row, on any rank.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

Passes = dict[str, Mapping[str, Tensor]]


class Carry:
    """The memory of one micro-batch's lanes, by pass: tensors with the lane first. `StepModule` reads it and writes the new one.

    A class and not a mapping, because DDP and FSDP copy the mappings that they are given.
    """

    def __init__(self, passes: Passes | None = None) -> None:
        self.passes: Passes = {} if passes is None else passes


class Carries:
    """The carries of a run on this rank, by entry and first lane. `saved` are those of all lanes in a checkpoint."""

    def __init__(self, saved: Mapping[str, Tensor] | None = None) -> None:
        self._saved = dict(saved or {})
        self._now: dict[str, dict[int, Carry]] = {}

    def of(self, entry: str, first: int, lanes: int, device: torch.device) -> Carry:
        """The carry of the lanes `first` … `first + lanes` of an entry; empty if nothing has been read yet."""
        carries = self._now.setdefault(entry, {})
        if first not in carries:
            passes: dict[str, dict[str, Tensor]] = {}
            for name, tensor in self._saved.items():
                whose, pass_name, key = name.split(":")
                if whose == entry:
                    passes.setdefault(pass_name, {})[key] = tensor[first : first + lanes].to(device)
            carries[first] = Carry(dict(passes))
        return carries[first]

    def gather(self, world: int) -> dict[str, Tensor]:
        """Every lane of every entry as `entry:pass:name` → tensor, on the CPU. A collective when there are several ranks."""
        gathered = {name: tensor for name, tensor in self._saved.items() if name.split(":")[0] not in self._now}
        for entry, carries in self._now.items():
            parts = [carries[first].passes for first in sorted(carries)]
            for pass_name, tensors in parts[0].items():
                for key in tensors:
                    lanes = torch.cat([part[pass_name][key] for part in parts]).cpu()
                    gathered[f"{entry}:{pass_name}:{key}"] = lanes if world == 1 else _of_all_ranks(lanes, world)
        return gathered


def _of_all_ranks(lanes: Tensor, world: int) -> Tensor:
    """The lanes of all ranks, in order; every rank has the same number."""
    data = lanes.contiguous().view(-1).view(torch.uint8)
    parts = [torch.empty_like(data) for _ in range(world)]
    dist.all_gather(parts, data)
    return torch.cat(parts).view(lanes.dtype).view(-1, *lanes.shape[1:])
