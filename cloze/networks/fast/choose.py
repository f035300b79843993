"""Chooses the fast function that replaces a plain part of a layer, if one supports the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from cloze.networks.blocks.attention import AttentionCall
from cloze.networks.blocks.computed import untouched
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.feed_forward import FeedForwardCall
from cloze.networks.blocks.norm import NormPlace, Post, Pre
from cloze.networks.blocks.recurrence.locked import LockedDropout
from cloze.networks.fast import fast_attention as attention
from cloze.networks.fast import fast_feed_forward as feed_forward
from cloze.networks.fast.switch import usable


class Fast(NamedTuple):
    """A function for the residual connection around a part, and a test whether it supports the call."""

    function: Callable[..., Tensor]
    fits: Callable[[Any, nn.Module, NormPlace, Tensor], bool]


#: By the type of the plain part, which defines what is computed.
FAST: dict[type, Fast] = {
    AttentionCall: Fast(attention.attention, attention.fits),
    FeedForwardCall: Fast(feed_forward.feed_forward, feed_forward.fits),
}
#: The dropouts whose masks the functions apply themselves.
DROPOUTS = (Dropout, LockedDropout)
#: The places of norms that the functions know; an adapter in a residual connection is another one.
PLACES = (Post, Pre)


def choose(
    x: Tensor, part: AttentionCall | FeedForwardCall, norm: nn.Module, dropout: Dropout, norm_place: NormPlace
) -> Callable[..., Tensor] | None:
    """The fast function for the residual connection around `part`; None: call the plain modules.

    Fast functions need states on a CPU, in the dtype of matrix products and outside of torch.compile. A hook, a replaced module,
    a cache, gates, recorded states, an adapter or an unknown norm need the plain modules.
    """
    if type(norm_place) not in PLACES or not usable(x):
        return None
    if any(type(module) not in DROPOUTS or not untouched(module) for module in (dropout, part.dropout)):
        return None
    fast = FAST[type(part)]
    return fast.function if fast.fits(part, norm, norm_place, x) else None
