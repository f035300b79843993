"""The tables that kernels train: copies of parameters, padded to whole vector registers and in huge pages."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.kernels.vectors.arguments import LINE, aligned, padded


class AlignedTable:
    """A parameter (rows, width) whose memory a kernel may read by whole registers.

    Between `take` and `give_back` the parameter is a view of `rows`, whose width is padded. Rows are read at random: with pages
    of 4 KB, address translation took a fifth of the time.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self.width = parameter.shape[1]
        self.padded = padded(self.width)
        self.taken = False
        self.rows: NDArray[np.float32] = np.zeros((0, self.padded), np.float32)

    def take(self) -> None:
        """Make the parameter a view of `rows`; the columns beyond its width are 0 and stay so."""
        if self.taken:
            return
        held = self.parameter.data
        self.rows, self.taken = aligned(len(held), self.padded), True
        table = torch.from_numpy(self.rows)
        table[:, : self.width] = held
        self.parameter.data = table[:, : self.width]

    def give_back(self) -> None:
        """Make the parameter contiguous again."""
        if self.taken and self.padded != self.width:
            self.rows = self.rows[:0]
            self.parameter.data = self.parameter.data.contiguous()
            self.taken = False


class TurnedTable:
    """A parameter (C, width) that a kernel reads turned, (width, C), with C padded to whole cache lines.

    `take` copies it into `rows`, and `give_back` copies it back; between them the parameter is not up to date.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter, self.taken = parameter, False
        self.padded = -(-parameter.shape[0] // LINE) * LINE
        self.rows: NDArray[np.float32] = np.zeros((parameter.shape[1], 0), np.float32)

    def take(self) -> None:
        """Copy the parameter into `rows`; the columns of the padding are 0 and stay so."""
        if not self.taken:
            self.rows, self.taken = aligned(self.parameter.shape[1], self.padded), True
            self.rows[:, : self.parameter.shape[0]] = self.parameter.data.numpy().T

    def give_back(self) -> None:
        """Copy `rows` back into the parameter."""
        if self.taken:
            self.parameter.data.copy_(torch.from_numpy(self.rows[:, : self.parameter.shape[0]].T))
            self.taken = False
