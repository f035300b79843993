"""Forward and backward of recurrent layers against torch.nn.LSTM in fp32, on AWD-LSTM's and ELMo's shapes, and whole steps.

    OMP_NUM_THREADS=2 python benchmarks/lstm.py
    OMP_NUM_THREADS=1 python benchmarks/lstm.py --shapes awd-20 --rounds 1 --length 20

Both sides have the same weights and inputs and run in turn; figures are medians of the rounds. `error` is the largest relative
error of a gradient (of the input or of any weight) against torch's in fp32. torch's own layers are not run under bf16 autocast:
their gradients are wrong on some CPUs for 1,024 cells and more, so that their speed means nothing. `--whole` adds AWD-LSTM with
a softmax over 30,000 words, full and adaptive, against torch's layers with a linear map, in fp32. Goals (the issue that asked for
them): 2.4 times nn.LSTM on AWD-LSTM's shapes, 1.8 on ELMo's, and 2 (full) and 3.5 (adaptive) for whole steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from results import processor, write_results
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.networks import LSTM, Clock
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.objectives import adaptive_prediction, token_prediction
from cloze.training.hardware import keep_memory
from cloze.training.precision import cpu_multiplies_bf16


class Shape(NamedTuple):
    """A stack: rows, tokens, (inputs, cells) of each layer, the projection; and the ratio that was asked for."""

    rows: int
    length: int
    layers: tuple[tuple[int, int], ...]
    projection: int | None
    goal: float


_AWD = ((400, 1150), (1150, 1150), (1150, 400))
SHAPES = {
    "awd-20": Shape(20, 70, _AWD, None, 2.4),
    "awd-80": Shape(80, 70, _AWD, None, 2.4),
    "elmo-128": Shape(128, 20, ((512, 4096), (512, 4096)), 512, 1.8),
}
WORDS, CUTOFFS = 30_000, (2_000, 10_000)


def theirs(shape: Shape) -> list[nn.LSTM]:
    """torch's layers."""
    return [nn.LSTM(inputs, cell, proj_size=shape.projection or 0) for inputs, cell in shape.layers]


def ours(shape: Shape, same: list[nn.LSTM]) -> list[LSTMLayer]:
    """Our layers with the weights of torch's."""
    made = []
    for (inputs, cell), other in zip(shape.layers, same, strict=True):
        layer = LSTMLayer(input_width=inputs, cell=cell, projection=shape.projection, biases="two", clock=Clock())
        with torch.no_grad():
            for own, their in zip(weights(layer), other.parameters(), strict=True):
                own.copy_(their)
        made.append(layer)
    return made


def weights(layer: LSTMLayer) -> list[Tensor]:
    """The weights in torch's order."""
    assert layer.recurrent.bias is not None
    own = [layer.input.weight, layer.recurrent.weight, layer.bias, layer.recurrent.bias]
    return own if layer.projection is None else [*own, layer.projection.weight]


def gradients(layers: list[Any], x: Tensor, *, bf16: bool) -> list[Tensor]:
    """Forward and backward; the gradients of the input and of every weight in torch's order."""
    own = isinstance(layers[0], LSTMLayer)
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        y = x if own else x.transpose(0, 1).contiguous()
        for layer in layers:
            y, _ = layer(y)
    parameters = [p for layer in layers for p in (weights(layer) if own else layer.parameters())]
    return list(torch.autograd.grad(y.float().square().sum(), [x, *parameters]))


def in_turn(sides: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds of every side, one round of each after the other, and what each returned first."""
    first = {name: side() for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}, first


def layers_alone(name: str, shape: Shape, rounds: int) -> list[dict[str, Any]]:
    """Records of one shape."""
    torch.manual_seed(0)
    peers = theirs(shape)
    layers = ours(shape, peers)
    x = torch.randn(shape.rows, shape.length, shape.layers[0][0])
    sides = {
        "nn.LSTM fp32": lambda: gradients(peers, x, bf16=False),
        "cloze fp32": lambda: gradients(layers, x, bf16=False),
        "cloze bf16": lambda: gradients(layers, x, bf16=True),
    }
    seconds, found = in_turn(sides, rounds)
    records = []
    for side, value in seconds.items():
        pairs = zip(found[side], found["nn.LSTM fp32"], strict=True)
        error = max(float((own - their).norm() / their.norm()) for own, their in pairs)
        records.append(record(name, side, shape, value, seconds["nn.LSTM fp32"], shape.goal, error))
    return records


def whole_steps(shape: Shape, rounds: int) -> list[dict[str, Any]]:
    """Records of AWD-LSTM with its softmax, dropouts off on both sides."""
    torch.manual_seed(0)
    tokens, targets = (torch.randint(0, WORDS, (shape.rows, shape.length)) for _ in range(2))
    table, decoder, peers = nn.Embedding(WORDS, 400), nn.Linear(400, WORDS), theirs(shape)
    decoder.weight = table.weight
    network = LSTM(layers=3, width=400, inner=1150, vocab_size=WORDS, clock=Clock())
    own_table = network.token_tables["tokens"]
    full = token_prediction(tie=True, width=400, vocab_size=WORDS, table=own_table)
    adaptive = adaptive_prediction(cutoffs=CUTOFFS, width=400, vocab_size=WORDS, table=own_table)
    batch = Batch({"targets/main": targets.flatten(), "positions/main": torch.arange(targets.numel())})

    def peer() -> None:
        y = table(tokens.t())
        for layer in peers:
            y, _ = layer(y)
        nn.functional.cross_entropy(decoder(y).flatten(0, 1), targets.t().flatten()).backward()

    def own(head: Any) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cpu_multiplies_bf16()):
            states = network(want=frozenset({"hidden"}), tokens=tokens)
            loss = head({"hidden": states["hidden"]}, batch)
        (loss.total / targets.numel()).backward()

    sides: dict[str, Callable[[], Any]] = {
        "nn.LSTM fp32, full softmax": peer, "cloze, full softmax": lambda: own(full),
        "cloze, adaptive softmax": lambda: own(adaptive),
    }
    seconds, _ = in_turn(sides, rounds)
    goals = dict(zip(sides, (1.0, 2.0, 3.5), strict=True))
    slowest = seconds["nn.LSTM fp32, full softmax"]
    return [record(f"whole step, {shape.rows} rows", side, shape, value, slowest, goals[side]) for side, value in seconds.items()]


def record(
    name: str, side: str, shape: Shape, seconds: float, peer: float, goal: float, error: float | None = None
) -> dict[str, Any]:
    """One line of the results, printed."""
    speed, ratio = shape.rows * shape.length / seconds, peer / seconds
    told = "" if error is None else f"  error {error:.5f}"
    print(f"{name:<20} {side:<28} {speed:>9,.0f} tokens/s  {ratio:5.2f}x (goal {goal}){told}", flush=True)
    return {
        "shape": name, "side": side, "rows": shape.rows, "length": shape.length, "threads": torch.get_num_threads(),
        "tokens_per_second": round(speed), "ratio": round(ratio, 3), "goal": goal,
        "error": "" if error is None else f"{error:.6f}",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--length", type=int, help="tokens in a row; default: as published")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="LSTM with projections")
    keep_memory()
    records = []
    for name in given.shapes:
        shape = SHAPES[name]._replace(**({"length": given.length} if given.length else {}))
        records += layers_alone(name, shape, given.rounds)
    if given.whole:
        shape = SHAPES["awd-20"]._replace(**({"length": given.length} if given.length else {}))
        records += whole_steps(shape, given.rounds)
    write_results("lstm", records, hardware=processor())


if __name__ == "__main__":
    main()
