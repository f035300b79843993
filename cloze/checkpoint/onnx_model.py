"""Opens an ONNX file of `cloze export --to onnx` as a checkpoint: onnxruntime computes what network and head would.

The rest of cloze sees a network that gives the scores of its head as a state, and a head that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.checkpoint.loaded import Loaded, network_inputs
from cloze.errors import CheckpointError
from cloze.interop import Imported, PortableModel
from cloze.interop.files import read_json
from cloze.interop.onnx_folder import ABOUT, FILE, session_of, unpacked
from cloze.interop.own import own_description
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.clock import Clock
from cloze.reading import Reading
from cloze.recipe.builders import build
from cloze.registry import lookup
from cloze.text.tokenizer import Tokenizer

SCORES = "logits"
_OUTPUTS = {"hidden": "last_hidden_state", SCORES: SCORES}  # by the state


class OnnxNetwork(nn.Module):
    """A file in place of a network; `shape` is the network that it was exported from, without weights.

    An int8 file rounds the states of all rows of a batch on one scale, so what it says of a row would depend on the others. It is
    therefore run row by row, without padding. `path` is what the user calls the file.
    """

    def __init__(self, shape: Any, session: Any, *, alone: bool, path: Path) -> None:
        super().__init__()
        self.path = path
        self.__dict__["shape"] = shape  # not a submodule: it has no weights
        self.place = nn.Parameter(torch.zeros(()), requires_grad=False)  # tells the device
        self.session, self.alone = session, alone

    def __getattr__(self, name: str) -> Any:
        """What the network says of itself, such as `takes`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["shape"], name)

    @property
    def gives(self) -> Mapping[str, Any]:
        """The states of the network that the file has."""
        return {"hidden": self.shape.gives["hidden"]}

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, segments: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """The states in `want`: `hidden` (B, L, D) and `logits`, (B, C) or (B, L, C) for a labeller. The file has no others."""
        if not want or not want <= _OUTPUTS.keys():
            raise CheckpointError(
                f"{self.path}: an ONNX file gives only the states of the last layer and scores.\n"
                "  Use the folder that it was exported from."
            )
        block = torch.ones_like(tokens) if block is None else block
        segments = torch.zeros_like(tokens) if segments is None else segments
        inputs = {"input_ids": tokens, "attention_mask": block, "token_type_ids": segments}
        if not self.alone:
            return self._run(inputs, want)
        rows = [
            self._run({name: field[row : row + 1, :length] for name, field in inputs.items()}, want)
            for row, length in enumerate(block.sum(1).tolist())
        ]
        return {name: _joined([row[name] for row in rows], tokens.shape[1]) for name in want}

    def _run(self, fields: Mapping[str, Tensor], want: frozenset[str]) -> dict[str, Tensor]:
        inputs = {argument.name: fields[argument.name].long().numpy() for argument in self.session.get_inputs()}
        names = list(want)
        outputs = self.session.run([_OUTPUTS[name] for name in names], inputs)
        return {name: torch.from_numpy(output) for name, output in zip(names, outputs, strict=True)}


def _joined(rows: Sequence[Tensor], length: int) -> Tensor:
    """Rows (1, L, …) of different lengths as one tensor, padded by zeros; rows (1, C) one below the other."""
    if rows[0].dim() == 2:
        return torch.cat(list(rows))
    return torch.cat([nn.functional.pad(row, (0, 0, 0, length - row.shape[1])) for row in rows])


class OnnxHead(nn.Module):
    """The head that is part of a file: its scores are the network's state `logits`."""

    kind, set, at, of_texts, chained = "relation_prediction", "label", ("positions/label",), False, False
    reads = (SCORES,)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Identity()

    def usable_as(self, sees: Sequence[str]) -> None:
        """It predicts no tokens."""

    def predict(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The scores (M, C) at the positions of its set: rows, or for a labeller tokens."""
        scores = states[SCORES]
        return (scores if scores.dim() == 2 else scores.flatten(0, 1)).index_select(0, batch[f"positions/{self.set}"].long())

    def decided(self, scores: Tensor, sizes: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The label of each word and its probability."""
        best, which = scores.softmax(-1).max(-1)
        return which, best


def load_onnx(path: Path) -> Loaded:
    """The checkpoint of an ONNX file, or of a folder with one in place of weights; errors name this path."""
    with unpacked(path) as folder:
        return _loaded(folder, path)


def _loaded(folder: Path, path: Path) -> Loaded:
    """The checkpoint of a folder, in which the ONNX file of `path` is unpacked."""
    about, description = read_json(folder / ABOUT, "what cloze knows of the ONNX file"), own_description(folder)
    if description is None:
        raise CheckpointError(f"{folder}: the files of the checkpoint are missing. Export it again.")
    tokenizer, clock = Tokenizer.load(folder), Clock()
    if not isinstance(about.get("int8"), bool) or not isinstance(about.get("head", 0), str | None):
        raise CheckpointError(f"{folder}: {ABOUT} says nothing of int8 or of the head. Export it again.")
    try:
        with torch.device("meta"), SkipInit():
            inputs = network_inputs(tokenizer.size, tokenizer, clock, None)
            shape = build(lookup("network", description["part"]), description["arguments"], inputs)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        raise CheckpointError(f"{folder}: the network's arguments are damaged: {error}. Export it again.") from None
    reading = Reading.of(description["reading"])
    model = PortableModel(
        arguments=description["arguments"], order=description["order"], network={}, heads={}, part=description["part"]
    )
    network = OnnxNetwork(shape, session_of(folder / FILE, threads=torch.get_num_threads()), alone=bool(about["int8"]), path=path)
    labels = tuple(description.get("labels") or ())
    return Loaded(
        recipe=None, network=network.eval(), heads={} if about["head"] is None else {about["head"]: OnnxHead()},
        tokenizer=tokenizer, reading=reading, order=description["order"], folder=path,
        network_arguments=description["arguments"], clock=clock,
        imported=Imported(folder, description["architecture"], model, tokenizer, reading, labels),
    )
