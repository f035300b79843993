"""Tiny runs for the tests of training: real networks and objectives, synthetic examples that are a function of their address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from cloze.batch import Batch
from cloze.batching import Cursor, MicroBatch
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.clock import Clock
from cloze.objectives import Sample, relation_prediction, token_labelling, token_prediction
from cloze.training.optimizers.optimizers import AdamW
from cloze.training.passes import Pass, PassObjective, Rewrite
from cloze.training.run import Run, RunIdentity, Training
from cloze.training.schedule.budget import Budget
from cloze.training.schedule.rates import Linear
from cloze.training.step import StepModule
from cloze.training.tie import tie
from tests.making import network_of

VOCABULARY = 40


class Numbers:
    """Rows of random ids, `length` long, some padded; the row is a pure function of (epoch, item), or of the item alone."""

    def __init__(
        self,
        *,
        batch: int = 8,
        micro: int | None = None,
        length: int = 12,
        rank: int = 0,
        ranks: int = 1,
        epoch_items: int = 20,
        static: bool = False,
    ) -> None:
        self.batch, self.micro, self.length, self.rank, self.ranks = batch, micro, length, rank, ranks
        self.epoch_items, self.static = epoch_items, static
        self.changes: list[dict[str, Any]] = []

    def next(self, entry: str, cursor: Cursor, share: float = 0.0) -> tuple[Sequence[MicroBatch], Cursor]:
        addresses = []
        epoch, item = cursor
        for _ in range(self.batch):
            addresses.append((epoch, item))
            epoch, item = (epoch, item + 1) if item + 1 < self.epoch_items else (epoch + 1, 0)
        share = self.batch // self.ranks
        size = self.micro or share
        starts = range(self.rank * share, (self.rank + 1) * share, size)
        return [self._micro(addresses[start : start + size], start) for start in starts], Cursor(epoch, item)

    def held_out(self, entry: str) -> Iterator[MicroBatch]:
        share = 8 // self.ranks
        yield self._micro([(-1, self.rank * share + item) for item in range(share)], self.rank * share)

    def rows_in_epoch(self, entry: str) -> int:
        return self.epoch_items

    def change(self, values: Mapping[str, Any]) -> bool:
        self.changes.append(dict(values))
        new = values.get("length", self.length) != self.length
        self.length, self.batch = values.get("length", self.length), values.get("batch", self.batch)
        return new

    def _micro(self, addresses: list[tuple[int, int]], first_row: int) -> MicroBatch:
        rows, block, targets, positions, next_ = [], [], [], [], []
        for number, (epoch, item) in enumerate(addresses):
            generator = np.random.default_rng([0 if self.static else epoch + 7, item, self.length])
            real = int(generator.integers(self.length // 2, self.length + 1))
            rows.append(np.where(np.arange(self.length) < real, generator.integers(5, VOCABULARY, self.length), 0))
            block.append((np.arange(self.length) < real).astype(np.int64))
            asked = np.sort(generator.permutation(real)[: max(1, real // 6)])
            targets.append(rows[-1][asked])
            rows[-1][asked] = 4
            positions.append(asked + number * self.length)
            next_.append(int(generator.integers(2)))
        fields = {
            "tokens": np.stack(rows),
            "block": np.stack(block),
            "targets/main": np.concatenate(targets),
            "positions/main": np.concatenate(positions),
            "targets/next": np.array(next_),
            "positions/next": np.arange(len(rows)),
        }
        batch = Batch({name: torch.from_numpy(value.astype(np.int64)) for name, value in fields.items()})
        return MicroBatch(batch, first_row, int(fields["block"].sum()), len(rows))


def bert(*, seed: int = 0, dropout: float = 0.1) -> StepModule:
    """Token prediction and relation prediction on one network."""
    torch.manual_seed(seed)
    clock = Clock(seed)
    network = network_of("transformer", layers=2, width=16, heads=2, vocab_size=VOCABULARY, dropout=dropout, clock=clock,
        **{"positions.max_length": 32})
    objectives = {
        "token_prediction": token_prediction(
            transform="gelu", tie=True, width=16, vocab_size=VOCABULARY, table=network.token_tables["tokens"]
        ),
        "relation_prediction": relation_prediction(width=16, clock=clock),
    }
    passes = [
        Pass(
            "main",
            "main",
            objectives=(
                PassObjective("token_prediction", "token_prediction"),
                PassObjective("relation_prediction", "relation_prediction"),
            ),
        )
    ]
    step = StepModule(networks={"main": network}, objectives=objectives, entries={"main": passes}, clock=clock)
    name_dropouts(step)
    return step


def electra(*, seed: int = 0, dropout: float = 0.1) -> StepModule:
    """A generator and a discriminator that share their embeddings."""
    torch.manual_seed(seed)
    clock = Clock(seed)
    shape = {"layers": 1, "heads": 2, "embedding.width": 16, "vocab_size": VOCABULARY, "positions.max_length": 32,
        "dropout": dropout}
    networks = {
        "generator": network_of("transformer", **shape, width=8, clock=clock),
        "discriminator": network_of("transformer", **shape, width=16, clock=clock),
    }
    tie(networks, [["generator.embeddings", "discriminator.embeddings"]])
    objectives = {
        "token_prediction": token_prediction(
            transform="gelu", tie=True, width=8, vocab_size=VOCABULARY, table=networks["generator"].token_tables["tokens"]
        ),
        "token_labelling": token_labelling(width=16, clock=clock),
    }
    passes = [
        Pass("generator", "generator", objectives=(PassObjective("token_prediction", "token_prediction"),)),
        Pass(
            "discriminator",
            "discriminator",
            take={"sample": Rewrite("sample", {"scores": "generator.token_prediction"})},
            objectives=(PassObjective("token_labelling", "token_labelling", weight=5.0),),
        ),
    ]
    step = StepModule(
        networks=networks,
        objectives=objectives,
        rewriters={"sample": Sample(clock=clock)},
        entries={"main": passes},
        clock=clock,
    )
    name_dropouts(step)
    return step


def export(folder: Path, state: Mapping[str, Tensor], step: int) -> None:
    """What stands for the Hugging Face files: the weights under all names, and a model card."""
    named = {name: tensor.clone() for name, tensor in state.items()}
    save_file(named, folder / "model.safetensors")
    (folder / "README.md").write_text(f"step {step}\n", encoding="utf-8")


def tiny_run(
    folder: Path, *, step: StepModule | None = None, data: Any = None, budget: str = "12steps", **changes: Any
) -> Run:
    """A run of the tiny BERT, fp32 on the CPU."""
    values = {
        "precision": "fp32",
        "checkpoint_every": 4,
        "log_every": 2,
        "evaluate_every": 0.5,
        **changes.pop("training", {}),
    }
    return Run(
        folder=folder,
        step=step or bert(),
        data=data or Numbers(),
        export=export,
        budget=Budget.parse(budget),
        optimizer=changes.pop("optimizer", AdamW()),
        rate=changes.pop("rate", Linear(1e-2, warmup=0.2)),
        identity=changes.pop("identity", RunIdentity({"name": "tiny"}, "hash")),
        training=Training(**values),
        device="cpu",
        say=lambda text: None,
        **changes,
    )


def weights(folder: Path) -> dict[str, bytes]:
    """The published weights, as bytes by name."""
    from safetensors.torch import load_file

    return {name: tensor.numpy().tobytes() for name, tensor in load_file(folder / "model.safetensors").items()}
