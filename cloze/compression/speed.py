"""How long a network takes: forward passes of several networks and number formats, timed by turns.

Only what was timed is reported: no factor is computed from bits or zeros.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cloze.checkpoint.onnx_file import FILES
from cloze.compression.int8 import in_int8, serialised_bytes, without_warnings
from cloze.errors import ClozeError, Say, UserError
from cloze.networks.fast.switch import switched
from cloze.networks.network import TokenSequence

FORMATS = ("fp32", "bf16", "int8", *FILES)


@dataclass(frozen=True)
class Timed:
    """One row of the result: the time of a forward pass in milliseconds, the median and the quartiles of all rounds.

    `flops` are the floating-point operations of matrix products in that pass, as torch counts them; `bytes` is the size of the
    network's state. `fault` says why nothing was timed.
    """

    checkpoint: str
    format: str
    length: int
    batch: int
    parameters: int
    bytes: int
    flops: int = 0
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    fault: str = ""

    def record(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class TimedNetwork:
    """A network to time, by name, with the order in which it reads.

    `files` has a file for each of the formats of onnxruntime, or says why there is none. `vocab_size` is the number of tokens
    that it reads; without it, the network's own.
    """

    name: str
    network: Any
    order: str
    files: Mapping[str, Path | str] = field(default_factory=dict)
    vocab_size: int | None = None


class FilePass:
    """A forward pass of an ONNX file of `cloze export`, called as the network is."""

    def __init__(self, file: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.names = [argument.name for argument in self.session.get_inputs()]

    def __call__(self, *, tokens: Tensor, **further: Any) -> Any:
        """The outputs for tokens (B, L) of one segment without padding."""
        tensors = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
        return self.session.run(None, {name: tensors[name].numpy() for name in self.names})


@dataclass(frozen=True)
class Variant:
    """A network in one number format, ready to run; `fault` says why it is not."""

    subject: TimedNetwork
    format: str
    network: Any
    bytes: int
    fault: str = ""

    @classmethod
    def of(cls, subject: TimedNetwork, format: str, device: torch.device) -> Variant:
        """A network in a format. int8 is for CPUs and for networks whose linear maps are called."""
        if format in FILES:
            return cls._of_file(subject, format, device)
        size = serialised_bytes(subject.network)
        if format != "int8":
            return cls(subject, format, subject.network, size)
        try:
            if device.type != "cpu":
                raise UserError("int8 runs on a CPU only.")
            quantised = in_int8(subject.network)
            with torch.inference_mode(), without_warnings():
                quantised(**inputs(subject, 2, 1, device))
        except (ClozeError, RuntimeError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, ClozeError) else "its linear maps are read, not called"
            return cls(subject, format, None, 0, f"not in int8: {reason}")
        return cls(subject, format, quantised, serialised_bytes(quantised))

    @classmethod
    def _of_file(cls, subject: TimedNetwork, format: str, device: torch.device) -> Variant:
        """A file in onnxruntime, with as many threads as torch has."""
        file = "onnxruntime is timed on a CPU only." if device.type != "cpu" else subject.files.get(format, "no file was given")
        if isinstance(file, str):
            return cls(subject, format, None, 0, f"not in {format}: {file}")
        return cls(subject, format, FilePass(file), file.stat().st_size)

    def casting(self, device: torch.device) -> AbstractContextManager[object]:
        """bf16 is automatic casting, as in training; weights stay fp32."""
        return torch.autocast(device.type, dtype=torch.bfloat16) if self.format == "bf16" else nullcontext()


def inputs(subject: TimedNetwork, length: int, batch: int, device: torch.device) -> dict[str, Any]:
    """The arguments of a call on random tokens without padding; a decoder writes as many tokens as the encoder reads."""
    network, generator = subject.network, torch.Generator().manual_seed(0)
    size = int(network.vocab_size) if subject.vocab_size is None else subject.vocab_size
    tokens = torch.randint(0, size, (batch, length), generator=generator).to(device)
    arguments: dict[str, Any] = {"tokens": tokens, "want": frozenset({"hidden"})}
    if "order" in network.takes:
        arguments["order"] = subject.order
    if network.writes is not None:
        arguments |= {"decoder": TokenSequence(tokens), "want": frozenset({network.writes})}
    return arguments


def measure(
    subjects: Sequence[TimedNetwork], *, lengths: Sequence[int], batches: Sequence[int], formats: Sequence[str], rounds: int = 20,
    device: torch.device | None = None, report: Say = lambda line: None,
) -> list[Timed]:
    """Time every network in every format at every length and batch.

    In each of `rounds`, every variant runs once, so that a busy machine slows all of them alike. Two passes before are not
    counted. Of word vectors a pass is a look-up of the rows of tokens. A `UserError` if a length is more than a network reads.
    """
    device = device or torch.device("cpu")
    for subject in subjects:
        _require(subject, lengths)
    variants = [Variant.of(subject, format, device) for subject in subjects for format in formats]
    rows = []
    for length in lengths:
        for batch in batches:
            report(f"length {length}, batch {batch} …")
            rows += _cell(variants, length, batch, rounds, device)
    return rows


def _require(subject: TimedNetwork, lengths: Sequence[int]) -> None:
    most = subject.network.max_length
    if most is not None and max(lengths) > most:
        raise UserError(f"{subject.name}: reads at most {most} tokens; --lengths has {max(lengths)}.")


def _cell(variants: Sequence[Variant], length: int, batch: int, rounds: int, device: torch.device) -> list[Timed]:
    """The rows of one length and batch."""
    arguments = {id(variant): inputs(variant.subject, length, batch, device) for variant in variants}
    running = [variant for variant in variants if not variant.fault]
    times: Mapping[int, list[float]] = {id(variant): [] for variant in running}
    flops = {variant.subject.name: _flops(variant.subject, arguments[id(variant)]) for variant in variants}
    for number in range(rounds + 2):
        for variant in running:
            seconds = _time(variant, arguments[id(variant)], device)
            if number > 1:
                times[id(variant)].append(1000 * seconds)
    rows = []
    for variant in variants:
        common = (variant.subject.name, variant.format, length, batch, _parameters(variant.subject.network), variant.bytes)
        if variant.fault:
            rows.append(Timed(*common, fault=variant.fault))
            continue
        durations = times[id(variant)]
        low, _, high = statistics.quantiles(durations, n=4, method="inclusive") if len(durations) > 1 else (durations[0],) * 3
        rows.append(Timed(*common, flops[variant.subject.name], statistics.median(durations), low, high))
    return rows


def _time(variant: Variant, inputs: Mapping[str, Any], device: torch.device) -> float:
    """Seconds of one forward pass."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    with torch.inference_mode(), variant.casting(device):
        variant.network(**inputs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _flops(subject: TimedNetwork, inputs: Mapping[str, Any]) -> int:
    """Floating-point operations of the matrix products in one pass."""
    with torch.no_grad(), switched(False), FlopCounterMode(display=False) as counter:
        subject.network(**inputs)
    return int(counter.get_total_flops())


def _parameters(network: nn.Module) -> int:
    tensors: list[Tensor] = list(network.parameters())
    return sum(tensor.numel() for tensor in tensors)
