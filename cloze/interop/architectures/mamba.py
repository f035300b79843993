"""Mamba ↔ transformers' `Mamba*`.

Source: Mamba: Linear-Time Sequence Modeling with Selective State Spaces (Gu and Dao, 2023). The decay rates are a matrix
(channels, state) there, here one dimension with the channels innermost. transformers has no bidirectional network of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cloze.interop.architecture import Architecture, ModelClass, Setting, add
from cloze.interop.architectures.gpt2 import next_token
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.reading import Reading


class Rates(Move):
    """The logarithms of the decay rates: (N·I,) here, (I, N) there."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours.view(sizes.letters["N"], -1).t(),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].t().flatten()


def _sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    inner, state = arguments["expand"] * arguments["width"], arguments["state"]
    rank = arguments["dt.rank"] or math.ceil(arguments["width"] / 16)
    return {"I": inner, "N": state, "NI": state * inner, "T": rank, "X": rank + 2 * state, "K": arguments["kernel"]}


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The biases that a network may have."""
    names = {"in_proj": ("in_proj", "2I"), "out_proj": ("out_proj", "D")} if arguments["bias"] else {}
    convolution = {"forwards.conv1d": ("conv1d", "I")} if arguments["conv_bias"] else {}
    return tuple(
        MappingLine(f"layers.{{i}}.{ours}.bias", f"{_MIXER}{theirs}.bias", shape)
        for ours, (theirs, shape) in {**names, **convolution}.items()
    )


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    rank = config.get("time_step_rank", "auto")
    if rank != "auto" and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 1):
        raise ValueError(f"time_step_rank is {rank!r}; expected 'auto' or a number of 1 or more.")
    return {"dt.rank": None if rank == "auto" else rank}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    rank = arguments["dt.rank"]
    # Where `rescale_prenorm_residual` is true, as it was when the weights were drawn, transformers 5 divides those that it loads.
    return {"time_step_rank": "auto" if rank is None else rank, "residual_in_fp32": True, "rescale_prenorm_residual": False}


_LAYER = "{base}layers.{i}."
_MIXER = _LAYER + "mixer."
_OURS = "layers.{i}.forwards."

MAMBA = add(Architecture(
    name="mamba",
    title="Mamba",
    settings=(
        Setting("layers", "num_hidden_layers", 32),
        Setting("width", "hidden_size", 768),
        Setting("state", "state_size", 16),
        Setting("expand", "expand", 2),
        Setting("kernel", "conv_kernel", 4),
        Setting("dt.min", "time_step_min", 0.001),
        Setting("dt.max", "time_step_max", 0.1),
        Setting("dt.floor", "time_step_floor", 1e-4),
        Setting("dt.scale", "time_step_scale", 1.0),
        Setting("dt.init", "time_step_init_scheme", "random"),
        Setting("bias", "use_bias", False),
        Setting("conv_bias", "use_conv_bias", True),
        Setting("norm_epsilon", "layer_norm_epsilon", 1e-5),
        Setting("init_std", "initializer_range", 0.1),
    ),
    fixed={"directions": "left_to_right"},
    assumed={"dropout": 0.0},
    legal={"hidden_act": ("silu",)},
    base="backbone.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.weight", "V D"),
        MappingLine("layers.{i}.norm.weight", _LAYER + "norm.weight", "D"),
        MappingLine("layers.{i}.in_proj.weight", _MIXER + "in_proj.weight", "2I D"),
        MappingLine(_OURS + "conv1d.weight", _MIXER + "conv1d.weight", "I 1 K"),
        MappingLine(_OURS + "x_proj.weight", _MIXER + "x_proj.weight", "X I"),
        MappingLine(_OURS + "dt_proj.*", _MIXER + "dt_proj.*", "I T"),
        MappingLine(_OURS + "A_log", _MIXER + "A_log", "NI", Rates()),
        MappingLine(_OURS + "D", _MIXER + "D", "I"),
        MappingLine("layers.{i}.out_proj.weight", _MIXER + "out_proj.weight", "D I"),
        MappingLine("norm.weight", "{base}norm_f.weight", "D"),
    ),
    further=_further,
    heads=(next_token("Mamba", "embeddings.weight"),),
    classes=(
        ModelClass("MambaForCausalLM", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("MambaModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "mamba",
    part="mamba",
    orders=("left_to_right",),
    from_config=_read,
    to_config=_write,
    tokens={"bos_token_id": ("[BOS]", "[CLS]", "[EOS]"), "eos_token_id": ("[EOS]", "[SEP]", "[BOS]")},
    sizes=_sizes,
    generates=True,
))
