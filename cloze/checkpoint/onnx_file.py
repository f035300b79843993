"""`cloze export --to onnx`: a network that reads texts, with the head of its task, in one file for other runtimes.

The file is opened by onnxruntime before it appears, and its numbers are compared with the network's.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, isinf
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.atomic import require_new, require_parent, whole_file, whole_folder
from cloze.batch import Batch
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.open_folder import open_folder
from cloze.checkpoint.share import write_copy
from cloze.errors import CheckpointError, MissingExtra
from cloze.interop import Card
from cloze.interop.onnx_folder import ABOUT, FILE, KEY, files_in, is_onnx
from cloze.networks.fast.switch import switched
from cloze.networks.transformer import Transformer
from cloze.objectives.classify import ClassifyMean
from cloze.objectives.summary import SummaryValues
from cloze.recipe.user_files import naming_files
from cloze.tasks.mixture import ENTRY as MIXTURE
from cloze.tasks.tuned_folder import TASK_FILE, find_task_json, head_name, read_task_entries

MOST = 1e-4  # the largest difference from the network that a file may have, of numbers above 1 as a share of them
OPSET = 17
FILES = ("onnx", "onnx-int8")  # formats that onnxruntime computes from a file
SENTENCES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")  # of sentence-transformers
HEADS = ("classify", "relation_prediction", "soft_classification", "regress", "several")  # which can score whole texts


class OnnxReport(NamedTuple):
    """What was written: the names of inputs and outputs, the largest difference from the network, and remarks."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    difference: float
    remarks: Sequence[str]


class OnnxGraph(nn.Module):
    """`input_ids`, `attention_mask` and, where the network has segments, `token_type_ids`, all (B, L), to the states (B, L, D)
    and the scores of a head: (B, C) of one that scores texts, (B, L, C) of a labeller."""

    def __init__(self, loaded: Loaded, head: Any | None) -> None:
        super().__init__()
        self.network, self.order, self.summary = loaded.network, loaded.order, loaded.reading.summary
        self.mask = loaded.tokenizer.roles.get("[MASK]", -1)
        self.segments = bool(loaded.network_arguments.get("segments"))
        self.head = head
        self.of_words = head is not None and not scores_texts(head)

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return ["input_ids", "attention_mask", *(["token_type_ids"] if self.segments else [])]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return ["last_hidden_state", *(["logits"] if self.head is not None else [])]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> tuple[Tensor, ...]:
        """The outputs. The head reads what it reads in cloze, so a mean is that of the tokens whose mask is 1."""
        further = {"segments": token_type_ids} if self.segments else {}
        rows = torch.arange(input_ids.shape[0], device=input_ids.device)
        columns: Any = 0
        if self.summary == "last":
            columns = (attention_mask.sum(1) - 1).clamp(min=0)
        elif self.summary == "mask":  # the last one of a row
            columns = ((input_ids == self.mask) * torch.arange(input_ids.shape[1], device=input_ids.device)).amax(1)
        states = self.network(
            want=frozenset({"hidden"} if self.head is None else {"hidden", *self.head.reads}), order=self.order,
            tokens=input_ids, block=attention_mask, summaries=rows * input_ids.shape[1] + columns, **further,
        )  # fmt: skip
        hidden: Tensor = states["hidden"]
        if self.head is None:
            return (hidden,)
        if self.of_words:
            return hidden, self.head.head(hidden, attention_mask)
        batch = Batch({"tokens": input_ids, "block": attention_mask, f"positions/{self.head.set}": rows}, checked=True)
        scores: Tensor = self.head.predict(states, batch)
        return hidden, scores if scores.dim() > 1 else scores[:, None]


def scores_texts(head: Any) -> bool:
    """Whether a head gives scores of whole texts: by their summary, or by the mean of their tokens."""
    of_means = isinstance(head, ClassifyMean) or (isinstance(head, SummaryValues) and head.reading == "mean")
    return of_means or tuple(head.reads) == ("summary",)


def write_onnx(
    source: Path, out: Path, *, int8: bool = False, task: str | None = None, heads: bool = True, opened_as: Path | None = None
) -> OnnxReport:
    """Write the network of a checkpoint, with the head of its task if it has one and `heads` are wanted, to a new file.

    With `int8`, linear maps multiply in int8 (onnxruntime's dynamic quantisation). With `heads`, the metadata hold the tokenizer,
    the task and the other files of the checkpoint, so that cloze predicts with the file alone. Raises a `MissingExtra` without
    the packages, and a `CheckpointError` for a network that the format cannot hold; `out` appears whole or not at all. Remarks
    name `opened_as`, the folder in which the file will be, instead of `out`.
    """
    onnx, runtime = _packages("--to onnx")
    if is_onnx(source):
        raise CheckpointError(f"{source}: is an ONNX file, expected a checkpoint. Export the folder that it was exported from.")
    loaded = load_checkpoint(source)
    _require(loaded)
    head, remarks, labels = _head(loaded, source, task) if heads else (None, [], ())
    if find_task_json(source) is not None and MIXTURE in read_task_entries(source, task):
        remarks = [*remarks, "it holds the network alone, without the linear model that its answers are mixed with in cloze"]
    graph = OnnxGraph(loaded, head).eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), switched(False):
        path = Path(folder) / "model.onnx"
        inputs = example(loaded, graph, 2, 7)
        axes = {name: {0: "batch", 1: "length"} for name in [*graph.inputs, *graph.outputs]}
        if "logits" in axes and not graph.of_words:
            axes["logits"] = {0: "batch"}
        with _quiet():
            torch.onnx.export(
                graph, inputs, str(path), input_names=graph.inputs, output_names=graph.outputs, dynamic_axes=axes,
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
        difference = _difference(runtime, path, graph, loaded)
        if not difference <= MOST:
            raise CheckpointError(
                f"{source}: its ONNX file computes other numbers (largest difference {difference:.1e}); nothing was written.\n"
                "  Use the folder with cloze or transformers."
            )
        if int8:
            path = _in_int8(path)
            difference = _difference(runtime, path, graph, loaded)
            if isinf(difference):
                raise CheckpointError(
                    f"{source}: in int8 its ONNX file computes no numbers (NaN); nothing was written.\n  Leave out --int8."
                )
            to_measure = "" if head is None else f" To measure the quality: cloze evaluate {opened_as or out} FILE"
            remarks.append(f"int8: the largest difference from the network is {difference:.2g}.{to_measure}")
            remarks.append(
                "int8: all rows of a batch are rounded on one scale, so in other programs the scores of a row depend on its "
                "batch; cloze runs row by row"
            )
        if loaded.imported.model.order == "left_to_right":
            remarks.append("pad the texts of a batch at their end: positions are counted from the first column")
        model = onnx.load(str(path))
        props = {"labels": json.dumps(list(labels), ensure_ascii=False)} if labels else {}
        if heads:
            name = next((name for name, candidate in loaded.heads.items() if candidate is head), None)
            files = companions(source, Path(folder), task, about={"version": 1, "head": name, "int8": int8})
            props[KEY] = json.dumps(files, ensure_ascii=False)
        onnx.helper.set_model_props(model, props)
        with whole_file(out) as fresh:
            onnx.save(model, str(fresh))
    return OnnxReport(graph.inputs, graph.outputs, difference, remarks)


def companions(source: Path, folder: Path, task: str | None, *, about: Mapping[str, Any]) -> dict[str, str]:
    """The files of a checkpoint with the head of the ONNX file that are not weights, by name, and `about` as what cloze knows of
    the file; `folder` is a place for them."""
    with naming_files(source):
        imported = open_folder(source)
    plain = imported.model.plain
    model = replace(plain, heads={name: head for name, head in plain.heads.items() if name == about["head"]})
    description = read_task_entries(source, task) if find_task_json(source) is not None else None
    if description is not None:
        description.pop(MIXTURE, None)  # the file holds the network alone
    if description is not None and about["head"]:
        description["head"] = about["head"]
    labels = imported.labels if description is None else tuple(description.get("labels") or ())
    copy = replace(imported, model=model, labels=labels)
    write_copy(source, folder / "published", copy, Card(source.name), description=description)
    published = folder / "published"
    names = [path.name for path in sorted(published.iterdir()) if path.suffix in (".json", ".txt")]
    extra = [name for name in ("cloze/network.json", TASK_FILE) if (published / name).is_file()]
    texts = {name: (published / name).read_text(encoding="utf-8") for name in (*names, *extra) if name not in SENTENCES}
    return {**texts, ABOUT: json.dumps(dict(about))}


def write_onnx_folder(source: Path, out: Path, *, int8: bool = False, task: str | None = None) -> OnnxReport:
    """Write `model.onnx` into the new folder `out`, next to the files that optimum needs to open it; see `write_onnx`."""
    require_new(out)
    require_parent(out)
    with whole_folder(out) as stage:
        result = write_onnx(source, stage / FILE, int8=int8, task=task, opened_as=out)
        for name, text in files_in(stage / FILE).items():
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_text(text, encoding="utf-8")
    return result


def files_to_time(source: Path, folder: Path, formats: Sequence[str]) -> dict[str, Path | str]:
    """The network of a checkpoint, without heads, as files in `folder`: for each of the formats `onnx` and `onnx-int8`
    that is asked for, the file, or why the network cannot be written."""
    _packages("--as onnx")
    files: dict[str, Path | str] = {}
    for format in [name for name in FILES if name in formats]:
        file = folder / f"{format}.onnx"
        try:
            write_onnx(source, file, int8=format == "onnx-int8", heads=False)
            files[format] = file
        except CheckpointError:
            files[format] = "cloze export --to onnx does not write this network"
    return files


def example(loaded: Loaded, graph: OnnxGraph, batch: int, length: int) -> tuple[Tensor, ...]:
    """Inputs of a graph: random tokens, the last of the rows but the first padded."""
    generator = torch.Generator().manual_seed(batch * length)
    tokens = torch.randint(0, loaded.imported.vocab_size, (batch, length), generator=generator)
    mask = torch.ones_like(tokens)
    mask[1:, length - 2 :] = 0
    return (tokens, mask, torch.zeros_like(tokens))[: len(graph.inputs)]


def _require(loaded: Loaded) -> None:
    model = loaded.imported.model
    network: Any = loaded.network
    plain = type(network) is Transformer  # a subclass reads or computes more
    if not plain or model.input_edits or model.flat.get("embedding.inputs") or "characters" in network.needs:
        raise CheckpointError(
            f"{loaded.folder}: --to onnx writes Transformers that read tokens alone, with a classifier or a labeller; this is "
            f"{model.part.replace('_', ' ')}{' with further inputs' if plain else ''}.\n"
            "  Write a folder with --to huggingface; word vectors also with --to word2vec."
        )


def _head(loaded: Loaded, source: Path, task: str | None) -> tuple[Any | None, list[str], Sequence[str]]:
    """The head of the task, if the folder has one that the file can hold; remarks; the names of its classes."""
    name, labels = None, loaded.imported.labels
    if find_task_json(source) is not None:
        task_json = read_task_entries(source, task)
        name, labels = head_name(loaded, task_json), task_json.get("labels") or labels
        if name is None:  # a folder of transformers, whose heads are known by their parts
            parts = {head: model.part for head, model in loaded.imported.model.heads.items() if head in loaded.heads}
            fitting = [head for head, part in parts.items() if part in HEADS or part == "sequence_labelling"]
            name = fitting[0] if len(fitting) == 1 else None
    if name is None:
        left = ", ".join(loaded.heads)
        return None, [f"heads that are not in the file: {left}"] if left else [], ()
    head: Any = loaded.heads[name]
    part = loaded.imported.model.heads[name].part
    whole = part in HEADS and scores_texts(head)
    plain = part == "sequence_labelling" and tuple(head.reads) == ("hidden",) and head.head.encoder is None
    if not (whole or plain) or loaded.reads.get(name):
        remark = (
            f"the head {name} ({part}) is not in the file, which holds heads that give a text classes or numbers, and labellers: "
            f"to predict, use {source}"
        )
        return None, [remark], ()
    return head, [], labels


def _difference(runtime: Any, path: Path, graph: OnnxGraph, loaded: Loaded) -> float:
    """The largest difference between a file and the network, at other batches and lengths than it was written with. That of a
    number above 1, such as the price that a regression predicts, is a share of the number. Infinite if an output is no number."""
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest = 0.0
    for batch, length in ((1, 4), (3, 11)):
        inputs = example(loaded, graph, batch, length)
        expected = graph(*inputs)
        outputs = session.run(None, {name: tensor.numpy() for name, tensor in zip(graph.inputs, inputs, strict=True)})
        for name, reference, other in zip(graph.outputs, expected, outputs, strict=True):
            gap = (reference - torch.from_numpy(other)).abs() / reference.abs().clamp(min=1.0)
            if name == "last_hidden_state" or graph.of_words:
                gap = gap.masked_fill(inputs[1][..., None] == 0, 0.0)
            largest = max(largest, float(gap.nan_to_num(nan=inf, posinf=inf).max()))
    return largest


def _in_int8(path: Path) -> Path:
    """The file with linear maps in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantised = path.with_name("int8.onnx")
    with _quiet():
        quantize_dynamic(str(path), str(quantised), weight_type=QuantType.QInt8)
    return quantised


def _packages(purpose: str) -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "onnx", purpose) from None
    return onnx, onnxruntime


@contextmanager
def _quiet() -> Iterator[None]:
    """Without remarks of exporters on their own future, and of the tracer on sizes, which `_difference` checks."""
    import logging

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
