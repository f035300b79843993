"""Objects around the layers of every network: adapters are called, trained and saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.networks import GRU, LSTM, BiLSTM, Clock, EncoderDecoder, Transformer, TransformerXL, TwoStream
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.selected import Selected

SIZE: dict[str, Any] = {"layers": 2, "width": 8, "heads": 2, "vocab_size": 20, "dropout": 0.0}
WORDS: dict[str, Any] = {"width": 8, "vocab_size": 20}
MAKERS: dict[str, Any] = {
    "bert": lambda: Transformer(**SIZE, clock=Clock()),
    "t5": lambda: EncoderDecoder(**SIZE, clock=Clock()),
    "xl": lambda: TransformerXL(**SIZE, clock=Clock()),
    "xlnet": lambda: TwoStream(**SIZE, clock=Clock()),
    "lstm": lambda: LSTM(**WORDS, layers=2, clock=Clock()),
    "bilstm": lambda: BiLSTM(**{**WORDS, "width": 16}, layers=2, clock=Clock()),
    "gru": lambda: GRU(**WORDS, clock=Clock()),
}
HIDDEN = frozenset({"hidden"})


class Adapter(nn.Module, LayerHook):
    """A dense map that begins at zero, added after every layer."""

    per_token = True

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(layers))
        for linear in self.maps:
            nn.init.zeros_(linear.weight)

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x and a map of it."""
        return x + self.maps[number](x)


@pytest.mark.parametrize("name", MAKERS)
def test_an_adapter_begins_as_nothing_and_is_trained_and_saved_with_the_network(name: str) -> None:
    torch.manual_seed(0)
    network, tokens = MAKERS[name]().double(), torch.randint(0, 20, (2, 5))
    plain = network(want=HIDDEN, tokens=tokens)["hidden"]
    adapter = Adapter(1 if name == "gru" else 2).double()
    (network.encoder if name == "t5" else network).around.append(adapter)
    adapted = network(want=HIDDEN, tokens=tokens)["hidden"]
    torch.testing.assert_close(adapted, plain)
    adapted.sin().sum().backward()
    for linear in adapter.maps:
        assert linear.weight.grad is not None and linear.weight.grad.ne(0).any()
        nn.init.normal_(linear.weight)
    assert not torch.allclose(network(want=HIDDEN, tokens=tokens)["hidden"], plain)
    assert sum(".maps." in key for key in network.state_dict()) == len(adapter.maps)


def test_an_adapter_meets_the_last_layer_at_the_positions_that_are_read() -> None:
    network, tokens, positions = MAKERS["bert"]().double(), torch.randint(0, 20, (2, 5)), torch.tensor([1, 7])
    network.around.append(Adapter(2).double())
    nn.init.normal_(network.around[0].maps[1].weight)
    whole = network(want=HIDDEN, tokens=tokens)["hidden"].flatten(0, 1)
    some = network(want=HIDDEN, tokens=tokens, positions=positions)["hidden"].flatten(0, 1)
    torch.testing.assert_close(some[positions], whole[positions])
    assert some[0].eq(0).all()
