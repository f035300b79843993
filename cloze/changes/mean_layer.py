"""`change: [mean_layer]`: the top layer starts again, as the mean of all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from cloze.bounds import Positive
from cloze.changes.change import Change, Shape, Tensors, Transition
from cloze.errors import CheckpointError
from cloze.interop.arguments import flat
from cloze.registry import register

#: Positions that add something of each distance to scores without queries, or to values.
DISTANCES = frozenset({"learned_with_buckets", "buckets", "relative", "functional"})
TIMES: Mapping[str, float] = {"top": 3.0, "above": 10.0}


@register("change", "mean_layer")
@dataclass(frozen=True)
class MeanLayer(Change):
    """Start the top layer as one that adds `times` the mean of all tokens to each token, the summary token included.

    It takes the place of the checkpoint's `top` layer and adds 3 times the mean, or stands `above` it and adds 10 times the mean.

    A summary token that little or no training has taught says little about its text; the mean of the tokens says more.
    transformers' classes for texts read the summary token, so the mean is brought there. The top layer forgets what it had
    learned, except for its keys and the first map of its feed-forward. Its queries are zero, so that every token sees all tokens
    equally; its values are the states themselves, its output is `times` these, and the second map of its feed-forward is zero.
    Positions that weigh tokens by their distance in every layer, or change values (MPNet, NEZHA, RoFormer's values), are refused.
    All of it can be trained. A layer `above` the others copies keys and first map, and nothing is forgotten: for checkpoints
    whose mean was trained, such as sentence encoders. The result is an ordinary network. This change is cloze's own; starting top
    layers again comes from Zhang et al. (2021), "Revisiting Few-sample BERT Fine-tuning", where they start at random.
    """

    place: Literal["top", "above"] = "top"
    times: Positive | None = None

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments."""
        if (why := why_not(shape.part, shape.arguments, above=self.place == "above")) is not None:
            raise CheckpointError(
                f"{shape.origin}: mean_layer: {why}.\n"
                "  Leave it out. To classify the mean of the tokens with a head of cloze's own: --set objectives.0.pool=mean"
            )
        return {**shape.arguments, "layers": shape.arguments["layers"] + 1} if self.place == "above" else shape.arguments

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The checkpoint's tensors, with those of the new top layer."""
        depth = transition.old_shape.arguments["layers"]
        top = f"layers.{depth - 1}."
        layer = {name.removeprefix(top): tensor.clone() for name, tensor in state.items() if name.startswith(top)}
        width = len(layer["attention.out.weight"])
        same = torch.eye(width)
        for name, values in (("weight", same), ("bias", torch.zeros(width))):
            stacked = layer.get(f"attention.projections.{name}")
            if stacked is not None:
                stacked[:width] = 0.0  # queries
                stacked[2 * width :] = values
        layer["attention.out.weight"].copy_((self.times or TIMES[self.place]) * same)
        for name in ("attention.out.bias", "outer.weight", "outer.bias"):
            if name in layer:
                layer[name].zero_()
        for name in ("attention_norm", "inner_norm"):
            layer[f"{name}.weight"].fill_(1.0)
            if f"{name}.bias" in layer:
                layer[f"{name}.bias"].zero_()
        prefix = f"layers.{depth}." if self.place == "above" else top
        return {**state, **{prefix + name: tensor for name, tensor in layer.items()}}


def why_not(part: str, arguments: Mapping[str, Any], *, above: bool = False) -> str | None:
    """Why the top layer of a network cannot start so; None if it can."""
    if part != "transformer":
        return f"{part} is not a plain Transformer encoder"
    full = flat(arguments, part)
    if full["norm"] != "post":
        return "its norms stand before attention and feed-forward, so its states have no common scale"
    if full.get("share", "some") is not None:
        return "its layers share their weights"
    if full.get("attention.band", "some") is not None or full["attention.gate"] or full["attention.norm"]:
        return "its attention is local, gated or normed"
    if full.get("attention.key_value_heads") or full.get("attention.query_key_norm") or full.get("attention.head_width"):
        return "its heads share keys and values, norm them, or have a width of their own"
    if full["feed_forward"] != "plain":
        return "its feed-forward is not one of two maps"
    if not sees_alike(part, arguments):
        return "its positions weigh tokens by their distance or change their values, so its attention gives no mean"
    if full["layers"] < 2 and not above:
        return "it has one layer only, which would forget all that it has learned"
    return None


def sees_alike(part: str, arguments: Mapping[str, Any]) -> bool:
    """Whether attention without queries sees all tokens alike, whatever their distance; of plain Transformers only it is known
    that it does not."""
    if part != "transformer":
        return True
    full = flat(arguments, part)
    return full["positions"] not in DISTANCES and not full.get("positions.values")
