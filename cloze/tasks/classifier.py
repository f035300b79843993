"""A network that reads texts and a head that classifies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError
from cloze.networks.blocks.dropout import name_dropouts
from cloze.objectives import Classify, classify, relation_prediction
from cloze.tasks.classification import Classification, Examples

SET = "label"


@dataclass(frozen=True)
class Head:
    """A classification head and what a recipe would write for it: the registered objective and its arguments."""

    objective: Classify
    part: str
    arguments: dict[str, Any]


def make_head(reader: Reader, *, classes: int, dropout: float, labels_tokens: bool) -> Head:
    """The head that transformers' `…ForSequenceClassification` has for this kind of network.

    Left to right: one linear map on the last token, without a bias (GPT-2). A network with narrow embeddings or a head
    that labels tokens (`labels_tokens`): dense, GELU, linear (ELECTRA). Any other: dense, tanh, linear (BERT, RoBERTa).
    """
    given: dict[str, Any] = {"width": reader.network.width, "clock": reader.network.clock}
    arguments: dict[str, Any] = {"set": SET, "classes": classes, "dropout": dropout}
    if reader.order == "left_to_right":
        arguments |= {"reading": "summary", "transform": None}
        objective = classify(**arguments, **given)
        objective.head.get_submodule("output").bias.requires_grad_(False)  # zero, and transformers has none
        return Head(objective, "classify", arguments)
    narrow = getattr(reader.network, "embedding_width", reader.network.width) != reader.network.width
    if narrow or labels_tokens:
        arguments |= {"reading": "summary", "transform": "gelu"}
        return Head(classify(**arguments, **given), "classify", arguments)
    arguments |= {"pool": True}
    return Head(relation_prediction(**arguments, **given), "relation_prediction", arguments)


class Classifier(nn.Module):
    """A reader with a head over `labels`; an `nn.Module` so that both are trained, saved and moved together."""

    def __init__(
        self, reader: Reader, head: Head, labels: Sequence[str], task: Classification, *, length: int | None
    ) -> None:
        super().__init__()
        self.network: nn.Module = reader.network
        self.head = head.objective
        self.reader, self.made, self.labels, self.task, self.length = reader, head, tuple(labels), task, length
        self.exact = replace(reader, precision=None)
        name_dropouts(self)

    def encode(self, examples: Examples) -> list[Framed]:
        """The examples as the network reads them."""
        return self.reader.encode(examples.texts, examples.others, longest=self.length)

    def scores(self, rows: Sequence[Framed]) -> Tensor:
        """Scores (B, C) of framed rows, computed in fp32 so that they do not depend on how the classifier was trained."""
        batch = self.exact.batch(rows)
        states = self.exact.states(batch, self.head.reads)
        places = torch.arange(len(rows), device=self.exact.device)
        return self.exact.scores(self.head, states, batch, places)

    def loss(self, rows: Sequence[Framed], labels: NDArray[np.int64]) -> Tensor:
        """The mean loss of some rows."""
        batch = self.reader.batch(rows)
        states = self.reader.states(batch, self.head.reads)
        answers = {
            f"targets/{self.head.set}": torch.from_numpy(labels).to(self.reader.device),
            f"places/{self.head.set}": torch.arange(len(rows), device=self.reader.device),
        }
        with self.reader.autocast():
            loss = self.head({name: states[name] for name in self.head.reads}, Batch({**batch, **answers}, checked=True))
        return loss.total / len(rows)

    @torch.inference_mode()
    def probabilities(
        self, framed: Sequence[Framed], *, rows: int = 64, report: Callable[[int], None] = lambda done: None
    ) -> NDArray[np.float32]:
        """The probability of each label for every row: (N, C), in the order of the rows; runs in eval mode."""
        with evaluating(self):
            found = np.empty((len(framed), len(self.labels)), np.float32)
            for index in by_length([len(row) for row in framed], rows=rows):
                found[index] = self.scores([framed[i] for i in index]).softmax(-1).cpu().numpy()
                report(len(index))
            return found


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within: eval mode; afterwards the mode is what it was."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def fresh_network(network: Any, arguments: dict[str, Any], seed: int) -> Any:
    """A randomly initialised twin: the same builder with the same arguments, weights drawn from `seed`, same clock."""
    if "tokens" not in network.tables:
        raise CheckpointError("this network has no token table, so its vocabulary is not known; a twin cannot be built.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin = type(network)(**arguments, vocab_size=network.tables["tokens"].num_embeddings, clock=network.clock)
    return twin.to(next(network.parameters()).device)


def copy_pool(head: Classify, loaded: Checkpoint) -> None:
    """Start the dense layer of a head from the pooler that was pre-trained with a relation objective, as BERT does.

    A folder that keeps BERT's pooler without such an objective gives that; where there is none the layer stays random.
    """
    mine = getattr(head.head, "pool", None)
    if mine is None:
        return
    pools = [getattr(other.head, "pool", None) for other in loaded.heads.values()]
    found = [pool.state_dict() for pool in pools if pool is not None]
    imported = getattr(loaded, "imported", None)
    if imported is not None and imported.architecture == "bert":
        spare = imported.model.spare
        found.append({key: spare[f"pooler.dense.{key}"] for key in ("weight", "bias") if f"pooler.dense.{key}" in spare})
    for state in found:
        if "weight" in state and state["weight"].shape == mine.weight.shape:
            mine.load_state_dict(state)
            return
