"""What a pass costs: a walk over modules, here against torch's counter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, reading_kinds

HIDDEN = frozenset({"hidden"})


class TorchModules(Network):
    """A network of torch's modules, without a price of its own."""

    takes = frozenset({"tokens"})
    gives = reading_kinds("open")

    def __init__(self) -> None:
        super().__init__()
        self.width = 8
        self.embeddings = nn.Embedding(11, 6)
        self.convolution = nn.Conv1d(6, 8, kernel_size=3, padding=1)
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.out = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 8))

    def forward(self, *, want: frozenset[str], tokens: Tensor) -> dict[str, Tensor]:
        x = self.convolution(self.embeddings(tokens).mT).mT
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return {"hidden": self.out(x)}


def by_torch(network: Network, tokens: Tensor) -> int:
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        network(want=HIDDEN, tokens=tokens)["hidden"].sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_torchs_modules_are_counted_without_a_price() -> None:
    tokens = torch.arange(14).view(2, 7) % 11
    network = TorchModules()
    assert network.flops({"tokens": tokens}, want=HIDDEN) == by_torch(network, tokens)
    network.embeddings.requires_grad_(False)
    network.convolution.requires_grad_(False)  # neither it nor what is below needs a gradient
    assert network.flops({"tokens": tokens}, want=HIDDEN) == by_torch(network, tokens)


def test_padding_is_not_counted() -> None:
    tokens, block = torch.zeros(2, 7, dtype=torch.long), torch.tensor([[1] * 7, [1] * 3 + [0] * 4])
    network = TorchModules()
    ratio = network.flops({"tokens": tokens, "block": block}, want=HIDDEN) / network.flops({"tokens": tokens}, want=HIDDEN)
    assert ratio == 10 / 14


def test_a_recurrent_module_meets_all_of_its_matrices_with_every_token() -> None:
    counted = Operations()
    counted.add(SequenceSize(2, 10, 5), nn.GRU(4, 6, bidirectional=True))
    assert counted.total == 2 * 10 * 2 * (2 * 18 * (4 + 6))  # forward, and the gradient of the weights


def test_a_side_is_counted_once_and_passes_its_need_of_a_gradient_on() -> None:
    counted, linear = Operations(), nn.Linear(3, 5)
    for _ in range(2):
        counted.side("items").add(4, linear)
        counted.join(counted.side("items"))
    assert counted.needs_grad and counted.total == 4 * 15 * 2 * (2 + 3)  # the first rows need no gradient
