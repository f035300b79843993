"""Initialises new heads: from layers of the checkpoint (its pooler, or the dense map and norm of its head that predicts tokens),
and by scaling their first map to the rows of the task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from cloze.batching import Data
from cloze.checkpoint.build import Loaded
from cloze.objectives import Classify
from cloze.objectives.classify import means
from cloze.objectives.distances.embedding import Embedding
from cloze.objectives.heads import ClassHead, VocabularyHead
from cloze.objectives.labels.sequence_labelling import LabellingHead
from cloze.training.step import StepModule

ROWS = 256  # that the first map of a new head is scaled to
MOST_GAIN = 50.0  # for one output; one that needs more is mostly noise


def plain_head(loaded: Loaded) -> Any:
    """The layers of the checkpoint's head with a dense map and a norm without offsets; None if it has none. A labeller's head may
    be the only one of a folder, so that a tagger which is trained further keeps the form of its head."""
    kinds = VocabularyHead, ClassHead, LabellingHead
    heads = [head.module for head in loaded.heads.values() if isinstance(head.module, kinds)]
    return next((head for head in heads if head.norm is not None and head.norm.bias is None), None)


def is_sentence_encoder(loaded: Loaded) -> bool:
    """Whether a checkpoint was trained for the mean of a text's tokens."""
    return any(isinstance(head, Embedding) and head.pool is means for head in loaded.heads.values())


def start_head(head: Any, loaded: Loaded, *, pooler: bool = True) -> bool:
    """Start the layers of a new head from those of the checkpoint: its `pooler`, or a dense map and a norm. Returns whether it
    has them."""
    return isinstance(head.module, ClassHead) and ((pooler and copy_pool(head, loaded)) or copy_transform(head, loaded))


def copy_transform(head: Any, loaded: Loaded) -> bool:
    """Copy the dense map and norm of a head of the same form, first of one that predicts tokens: as transformers does for
    ModernBERT, and the authors for the answers of VL-BERT (jackroos/VL-BERT, `cfgs/vqa/base_4x16G_fp32.yaml`) and LXMERT
    (airsplay/lxmert, `src/pretrain/qa_answer_table.py`)."""
    new = head.head
    if not isinstance(new, ClassHead) or new.dense is None or new.norm is None:
        return False
    modules = [other.module for other in loaded.heads.values() if isinstance(other.module, (VocabularyHead, ClassHead))]
    heads = sorted(modules, key=lambda module: isinstance(module, ClassHead))
    other = next((other for other in [*heads, plain_head(loaded)] if other is not None and _form(other) == _form(new)), None)
    if other is None:
        return False
    for name in ("dense", "norm"):
        new.get_submodule(name).load_state_dict(other.get_submodule(name).state_dict())
    return True


def _form(head: Any) -> tuple[Any, ...]:
    """What the dense map of a head and the norm behind it compute, without their numbers."""
    layers = [layer for layer in (head.dense, head.norm) if layer is not None]
    shapes = [{name: tensor.shape for name, tensor in layer.named_parameters()} for layer in layers]
    return head.transform, None if head.norm is None else head.norm.eps, shapes


def copy_pool(head: Classify, loaded: Loaded) -> bool:
    """Copy the pooler that was pre-trained with a relation objective into the dense layer of a head, as BERT does.

    If the folder keeps BERT's pooler without such an objective, that one is copied; without a pooler, the layer stays random.
    """
    pool = head.head.pool if isinstance(head.head, ClassHead) else None
    if pool is None:
        return False
    heads = [other.module for other in loaded.heads.values()]
    states = [other.pool.state_dict() for other in heads if isinstance(other, ClassHead) and other.pool is not None]
    if loaded.imported.architecture == "bert":
        spare = loaded.imported.model.spare
        states.append({key: spare[f"pooler.dense.{key}"] for key in ("weight", "bias") if f"pooler.dense.{key}" in spare})
    for state in states:
        if "weight" in state and state["weight"].shape == pool.weight.shape:
            pool.load_state_dict(state)
            return True
    return False


@torch.no_grad()
def scale_heads(step: StepModule, data: Data, keys: Collection[str]) -> None:
    """Scale the first map of the heads `keys`: over the first rows, each of its outputs has mean 0 and standard deviation 1.

    Maps with a norm behind them stay as they are drawn. The gain of an output is at most `MOST_GAIN`. The weights stay ordinary
    ones, the same for any number of processes.

    The states of a network that was trained for a short time differ little from text to text, and a map drawn with a standard
    deviation of 0.02 makes them differ even less. Initial weights that depend on the data come from Mishkin and Matas (2016),
    "All You Need Is a Good Init", where the variance is scaled but the mean is not removed.
    """
    heads = [step.objectives[key].module for key in keys]
    maps = [head.first for head in heads if isinstance(head, ClassHead) and head.norm is None]
    outputs: dict[nn.Linear, list[Tensor]] = {linear: [] for linear in maps if linear is not None}
    if not outputs:
        return

    def keep(linear: Any, _: Any, output: Tensor) -> None:
        outputs[linear].append(output.flatten(0, -2).float())

    hooks = [linear.register_forward_hook(keep) for linear in outputs]
    training = step.training
    step.eval()
    for entry in step.entries:
        step(entry, data.sample(entry, min(ROWS, data.rows_in_epoch(entry))).batch)
    step.train(training)
    for hook in hooks:
        hook.remove()
    for linear, batches in outputs.items():
        states = torch.cat(batches)
        gain = (1 / states.std(0, correction=0)).clamp(max=MOST_GAIN)
        linear.weight.mul_(gain[:, None])
        if linear.bias is not None:
            linear.bias.sub_(states.mean(0)).mul_(gain)
