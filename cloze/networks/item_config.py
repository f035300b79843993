"""The parts and sections of networks that read items with a text, such as regions of a picture; see `config.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cloze.bounds import Count, Depth, Natural, NonNegative, Width
from cloze.errors import RecipeError
from cloze.registry import register


@dataclass(frozen=True, kw_only=True)
class Items:
    """Items of a text, such as the regions of a picture: the name of their `set`, the `width` of their features, the numbers
    that describe a box, and where norms stand.

    `boxes`: 0 for none, 4 for the corners, 5 with the area, 7 for corners, width, height and area; all are shares of the picture.
    `norm`: `sum` norms the sum of the mapped features and boxes (ViLBERT), `terms` each of them and takes their mean (LXMERT),
    `both` each and the sum (UNITER). With `hidden` a trained vector is added to the features of hidden items.
    """

    set: str = "regions"
    width: Width = 2048
    boxes: Literal[0, 4, 5, 7] = 5
    norm: Literal["sum", "terms", "both"] = "sum"
    hidden: bool = False

    def __post_init__(self) -> None:
        if self.norm != "sum" and not self.boxes:
            raise RecipeError(f"items.norm: {self.norm} norms features and boxes apart, and boxes is 0. Write boxes: 4, 5 or 7.")


@dataclass(frozen=True, kw_only=True)
class TransformedItems(Items):
    """With `transform`, heads read items through a dense map, GELU and a norm that they share, as the state `item_transformed`
    (LXMERT's code)."""

    boxes: Literal[0, 4, 5, 7] = 4
    norm: Literal["sum", "terms", "both"] = "terms"
    transform: bool = False


@register("items", "appended")
@dataclass(frozen=True, kw_only=True)
class Appended(Items):
    """Items follow the text as further positions of the row, with a norm of their own.

    With `segment` they read the second segment of the text's table, and those of a second picture the third one, if there is one.
    """

    segment: bool = False

    @property
    def segments(self) -> int:
        """The number of segments that the text's table must have."""
        return 2 if self.segment else 0


@register("items", "with_tables")
@dataclass(frozen=True, kw_only=True)
class WithTables:
    """Items follow the text; features, a position and a segment from tables of their own are summed and share the norm of the
    text (VisualBERT). All items have position 0 and segment 0, those of a second picture segment 1; to these is added the mean
    position, in the text's table, of the tokens that are linked with an item. Both tables begin as copies of the text's, if the
    network starts from a BERT.
    """

    segments: ClassVar[int] = 2
    set: str = "regions"
    width: Width = 2048


@register("items", "elements")
@dataclass(frozen=True, kw_only=True)
class Elements:
    """Tokens and items are elements of one kind: each has a linguistic and a visual vector, a segment and a position (VL-BERT).

    The visual vector of an item is made of its features and of `waves` sines and cosines of each of four numbers of its box, that
    of a token of the whole picture: the mean of the features of all items that are not hidden. The whole picture and a vector for
    the end follow the items. `gain` is the initial gain of the norms of visual vectors.
    """

    segments: ClassVar[int] = 3
    set: str = "regions"
    width: Width = 2048
    waves: Width = 256
    gain: NonNegative = 0.0


@register("items", "added")
@dataclass(frozen=True, kw_only=True)
class Added:
    """Items are added to the tokens that are linked with them, and are no positions of their own (B2T2).

    Each edge of a box has one of `places` vectors along its axis, which is added to the features; the mean of the items is added
    to the first token.
    """

    segments: ClassVar[int] = 0
    set: str = "regions"
    width: Width = 2048
    places: Width = 56

    def __post_init__(self) -> None:
        if self.width % 4:
            raise RecipeError(f"items.width: {self.width} is not a multiple of 4, and the four edges of a box share it.")


@dataclass(frozen=True, kw_only=True)
class ItemStack:
    """The stack of items: its layers, its width, its heads, and the inner numbers of its feed-forward."""

    layers: Depth = 6
    width: Width = 1024
    heads: Width = 8
    inner: Width = 1024


@dataclass(frozen=True, kw_only=True)
class CoAttention:
    """The inner width and the heads of attention between two stacks; `width` is also that of the pooled states."""

    width: Width = 1024
    heads: Width = 8

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RecipeError(f"crossing.heads: {self.heads} heads do not divide the width {self.width}.")


@dataclass(frozen=True, kw_only=True)
class OrderedItems:
    """Items that have an order, such as the frames of a film: the name of their `set`, the `width` of their features, the
    `layers` of their stack, and the most items of a row, `most`. With `normed`, features pass a norm first (UniVL).

    In joint layers the first item has the position `after`, or the one behind the longest text (`max_length`), whichever comes
    first, so that positions do not depend on the other rows of a batch."""

    set: str = "frames"
    width: Width = 1024
    layers: Depth = 6
    most: Count = 512
    normed: bool = False
    after: Natural | None = None


@dataclass(frozen=True, kw_only=True)
class Sounds:
    """Recordings of words: the name of their `set`, the `width` of an item, and how many `frames` it consists of, one after
    another. A recurrent encoder of so many `layers` reads them."""

    set: str = "sounds"
    width: Width = 1200
    frames: Count = 30
    layers: Depth = 1
