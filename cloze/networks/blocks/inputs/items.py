"""Items of a text, such as the regions of a picture: what a network is given of them, and how they become vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks import item_config as choices
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.inputs.embeddings import Embeddings
from cloze.networks.blocks.visibility import Visibility, visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize


@dataclass(frozen=True)
class ItemRows:
    """The items of each row: features (B, R, F), boxes (B, R, 4 or more) with the corners first, which items are `real` and which
    of them are `hidden` (B, R), `links` (N, 2), the flat positions of a token and of its item, and `picture` (B, R), which of the
    pictures of its row an item is of, counted from 0; None: all are of one.

    Hidden are items that `mask_items` has chosen and whose features are zero.
    """

    features: Tensor
    boxes: Tensor | None
    real: Tensor
    hidden: Tensor
    links: Tensor | None
    picture: Tensor | None = None

    @property
    def count(self) -> int:
        """R."""
        return self.features.shape[1]

    def whole(self, *, of_shown: bool) -> Tensor:
        """The mean of the features (B, F): of the items that are shown, or the sum of these by the number of all real items."""
        counted = self.real & ~self.hidden if of_shown else self.real
        return self.features.sum(1) / counted.sum(1, keepdim=True).clamp(min=1)

    def segment(self, table: Tensor, first: int) -> Tensor:
        """The rows of a table of segments (S, D): row `first` for items of the first picture and the one after it, if there is
        one, for those of a second: (D,) or (B, R, D)."""
        if self.picture is None:
            return table[first]
        return table[(first + self.picture.clamp(min=0)).clamp(max=len(table) - 1).long()]

    def among(self) -> Visibility:
        """Who sees whom among the items."""
        return visibility("open", self.real.long(), length=self.count, past=0, device=self.real.device)


def fields_of(name: str) -> frozenset[str]:
    """The batch fields about the items of a set."""
    return frozenset({f"item_vectors/{name}", f"item_vectors/{name}/boxes", f"items/{name}/masked", f"item_length/{name}"})


def first_tokens(links: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """For each of so many items the flat position of its first token, 0 without any, and whether it has one: (count,) each.

    `links` (N, 2) are the flat positions of a token and of its item.
    """
    spare = torch.iinfo(torch.int64).max
    first = torch.full((count,), spare, device=links.device).scatter_reduce(0, links[:, 1], links[:, 0], "amin")
    linked = first < spare
    return first.where(linked, 0), linked


def box_numbers(boxes: Tensor | None, numbers: int, name: str) -> Tensor:
    """The description (B, R, `numbers`) of boxes whose first four numbers are the corners x1, y1, x2, y2 as shares of a picture.

    Raises `RecipeError` if the batch has no boxes.
    """
    if boxes is None:
        raise RecipeError(
            f"the network reads boxes of the items {name!r}, and the corpus has none.\n"
            "  Build the corpus from features with boxes, or write boxes: 0 in the section items of the network."
        )
    corners = boxes[..., :4]
    size = corners[..., 2:] - corners[..., :2]
    area = size.prod(-1, keepdim=True)
    return {4: corners, 5: torch.cat([corners, area], -1), 7: torch.cat([corners, size, area], -1)}[numbers]


class ItemVectors(nn.Module):
    """Features and boxes of items as vectors of the network's width.

    Parameters: `features.*`, with boxes `boxes.*`, the norms of the terms `features_norm.*` and `boxes_norm.*`, that of the sum
    `norm.*`, and `hidden.weight` (2, F), whose second row is added to the features of hidden items.
    """

    def __init__(self, items: choices.Items, width: int, *, epsilon: float, dropout: Dropout) -> None:
        super().__init__()
        self.items, self.dropout = items, dropout
        self.features = nn.Linear(items.width, width)
        self.boxes = nn.Linear(items.boxes, width) if items.boxes else None
        apart, together = items.norm in ("terms", "both"), items.norm in ("sum", "both")
        self.features_norm = nn.LayerNorm(width, eps=epsilon) if apart else None
        self.boxes_norm = nn.LayerNorm(width, eps=epsilon) if apart else None
        self.norm = nn.LayerNorm(width, eps=epsilon) if together else None
        self.hidden = nn.Embedding(2, items.width, padding_idx=0) if items.hidden else None

    def padding(self, batch: int, count: int) -> ItemRows:
        """Rows of so many items that are padding, in place of the items that a batch lacks."""
        weight = self.features.weight
        nothing = torch.zeros(batch, count, dtype=torch.bool, device=weight.device)
        features, boxes = weight.new_zeros(batch, count, self.items.width), weight.new_zeros(batch, count, 4)
        return ItemRows(features, boxes, nothing, nothing, None)

    def reset_parameters(self) -> None:
        """The row of what is not hidden is zero."""
        if self.hidden is not None and not self.hidden.weight.is_meta:
            with torch.no_grad():
                self.hidden.weight[0] = 0.0

    def forward(self, rows: ItemRows, added: Tensor | None = None) -> Tensor:
        """(B, R, D); `added` joins the sum before its norm."""
        features = rows.features.to(self.features.weight.dtype)
        if self.hidden is not None:
            features = features + self.hidden(rows.hidden.long())
        x = self.features(features)
        x = x if self.features_norm is None else self.features_norm(x)
        if self.boxes is not None:
            y = self.boxes(box_numbers(rows.boxes, self.items.boxes, self.items.set).to(x.dtype))
            y = y if self.boxes_norm is None else self.boxes_norm(y)
            x = (x + y) / 2 if self.norm is None else x + y
        x = x if added is None else x + added
        return self.dropout(x if self.norm is None else self.norm(x))

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The maps; boxes need no gradient."""
        boxes = counted.branch(needs_grad=False)
        boxes.add(size, self.boxes)
        counted.pass_through(self.hidden)
        counted.add(size, self.features)
        counted.add_branches(boxes)
        counted.pass_through(self)


class ItemInputs(NamedTuple):
    """What items do to a row: `vectors` (B, L, D) replace those of the tokens, `summed` (B, L, D) is added to the embeddings, and
    `appended` (B, S, D) follow the tokens, as far as they are `real` (B, S)."""

    vectors: Tensor | None = None
    summed: Tensor | None = None
    appended: Tensor | None = None
    real: Tensor | None = None


class ItemEmbeddings(nn.Module, ABC):
    """How the items of a set enter the row of a text."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.set = name

    def reset_parameters(self) -> None:
        """What the network's law of initial weights does not say."""

    @property
    def feature_map(self) -> nn.Linear | None:
        """The map whose inputs are the features; None if there is none that reads them alone."""
        return None

    def initial_values(self, checkpoint: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The values of own parameters, by name, that a checkpoint without items gives; the others are random."""
        return {}

    def appended(self, items: int, rows: int) -> int:
        """How many positions follow the texts of so many rows, which have so many items together."""
        return items

    @abstractmethod
    def join(
        self, embeddings: Embeddings, tokens: Tensor, vectors: Tensor | None, block: Tensor | None, rows: ItemRows | None
    ) -> ItemInputs:
        """What the items do to the rows of tokens (B, L); `vectors` (B, L, D) replace those of the tokens."""

    def meets(self, items: int, size: SequenceSize) -> int:
        """How many rows its maps meet, with so many items next to a text of this size."""
        return items


class AppendedItems(ItemEmbeddings):
    """Items behind the text (`choices.Appended`). Parameters: those of `ItemVectors`, under `vectors`."""

    def __init__(self, items: choices.Appended, width: int, *, epsilon: float, dropout: Dropout) -> None:
        super().__init__(items.set)
        self.segment = items.segment
        self.vectors = ItemVectors(items, width, epsilon=epsilon, dropout=dropout)

    def reset_parameters(self) -> None:
        self.vectors.reset_parameters()

    @property
    def feature_map(self) -> nn.Linear:
        return self.vectors.features

    def join(
        self, embeddings: Embeddings, tokens: Tensor, vectors: Tensor | None, block: Tensor | None, rows: ItemRows | None
    ) -> ItemInputs:
        if rows is None:
            return ItemInputs(vectors)
        assert embeddings.segments is not None or not self.segment  # the network requires it
        added = rows.segment(embeddings.segments.weight, 1) if self.segment and embeddings.segments is not None else None
        return ItemInputs(vectors, None, self.vectors(rows, added), rows.real)


class ItemsWithTables(ItemEmbeddings):
    """Items behind the text that share its norm (`choices.WithTables`).

    Parameters: `features.*`, `positions.weight`, `segments.weight`.
    """

    def __init__(self, items: choices.WithTables, width: int, *, positions: int, segments: int, dropout: Dropout) -> None:
        super().__init__(items.set)
        self.features = nn.Linear(items.width, width)
        self.positions, self.segments = nn.Embedding(positions, width), nn.Embedding(segments, width)
        self.dropout = dropout

    def initial_values(self, checkpoint: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {
            f"{name}.weight": checkpoint[f"embeddings.{name}.weight"] for name in ("positions", "segments")
            if f"embeddings.{name}.weight" in checkpoint
        }

    @property
    def feature_map(self) -> nn.Linear:
        return self.features

    def join(
        self, embeddings: Embeddings, tokens: Tensor, vectors: Tensor | None, block: Tensor | None, rows: ItemRows | None
    ) -> ItemInputs:
        if rows is None:
            return ItemInputs(vectors)
        x = self.features(rows.features.to(self.features.weight.dtype))
        x = x + self.positions.weight[0] + rows.segment(self.segments.weight, 0)
        if rows.links is not None:
            x = x + self._aligned(embeddings, rows.links, tokens, rows).view_as(x)
        assert embeddings.norm is not None  # the network's is `post`, with one
        return ItemInputs(vectors, None, self.dropout(embeddings.norm(x)), rows.real)

    def _aligned(self, embeddings: Any, links: Tensor, tokens: Tensor, rows: ItemRows) -> Tensor:
        """The mean position of the tokens that are linked with each item (B·R, D), in the text's table; zero without any."""
        token, item = links[:, 0], links[:, 1]
        where = embeddings.positions.weight[token % tokens.shape[1]]
        sums = where.new_zeros(rows.real.numel(), where.shape[1]).index_add(0, item, where)
        return sums / torch.bincount(item, minlength=len(sums)).clamp(min=1)[:, None]


class ElementItems(ItemEmbeddings):
    """Tokens and items as elements with linguistic and visual vectors (`choices.Elements`).

    Parameters: `map.*` (features and waves to D), `text_norm.*` and `item_norm.*` of visual vectors, `item.weight` (the
    linguistic vector of an item), `hidden.weight` (that of a hidden one), `hidden_features.weight`, `no_picture.weight` (the
    visual vector of texts without items), `end.weight`.
    """

    def __init__(self, items: choices.Elements, width: int, *, epsilon: float, dropout: Dropout, clock: Clock) -> None:
        super().__init__(items.set)
        self.waves, self.gain, self.dropout = items.waves, items.gain, dropout
        self.input_dropout = Dropout(dropout.rate, clock)
        self.map = nn.Linear(items.width + 8 * items.waves, width)
        self.text_norm, self.item_norm = nn.LayerNorm(width, eps=epsilon), nn.LayerNorm(width, eps=epsilon)
        self.item, self.hidden, self.no_picture, self.end = (nn.Embedding(1, width) for _ in range(4))
        self.hidden_features = nn.Embedding(1, items.width)

    def reset_parameters(self) -> None:
        """Norms of visual vectors begin with the gain, and the features of a hidden item at zero."""
        for norm in (self.text_norm, self.item_norm):
            nn.init.constant_(norm.weight, self.gain)
        nn.init.zeros_(self.hidden_features.weight)

    def appended(self, items: int, rows: int) -> int:
        return items + 2 * rows  # and the whole picture, and the vector for the end

    def join(
        self, embeddings: Embeddings, tokens: Tensor, vectors: Tensor | None, block: Tensor | None, rows: ItemRows | None
    ) -> ItemInputs:
        assert embeddings.tokens is not None and embeddings.segments is not None  # the network requires them
        words = embeddings.tokens(tokens) if vectors is None else vectors
        none = self.no_picture.weight
        if rows is None:
            return ItemInputs(words + self.text_norm(none))
        dtype = self.map.weight.dtype
        features = rows.features.to(dtype) + rows.hidden[..., None] * self.hidden_features.weight
        corners = box_numbers(rows.boxes, 4, self.set).to(dtype)
        picture = torch.cat([corners.new_zeros(2), corners.new_ones(2)]).expand(len(corners), 1, 4)
        visual = self._mapped(
            torch.cat([rows.whole(of_shown=True).to(dtype)[:, None], features], 1), torch.cat([picture, corners], 1)
        )
        has_items = rows.real.any(1)[:, None, None]
        words = words + self.text_norm(torch.where(has_items, visual[:, :1], none))
        hidden = torch.cat([rows.hidden, torch.zeros_like(rows.hidden[:, :1])], 1)  # the whole picture, behind the items, is not
        kind_vectors = torch.where(hidden[..., None], self.hidden.weight, self.item.weight)
        x = torch.cat([kind_vectors + self.item_norm(visual.roll(-1, 1)), self.end.weight.expand(len(words), 1, -1)], 1)
        length = torch.full_like(tokens[:, 0], tokens.shape[1]) if block is None else (block > 0).sum(1)
        places = length[:, None].repeat(1, rows.count + 2)
        places[:, -1] += 1
        assert isinstance(embeddings.positions, nn.Embedding) and embeddings.norm is not None
        x = x + embeddings.positions(places) + embeddings.segments.weight[-1]
        real = torch.cat([rows.real, rows.real.any(1)[:, None].expand(-1, 2)], 1)
        return ItemInputs(words, None, self.dropout(embeddings.norm(x)), real)

    def _mapped(self, features: Tensor, corners: Tensor) -> Tensor:
        """(B, R, F) and corners (B, R, 4) to (B, R, D): features, with sines and cosines of centres and sizes in hundredths."""
        centre, size = (corners[..., :2] + corners[..., 2:]) / 2, corners[..., 2:] - corners[..., :2]
        numbers = 100 * torch.cat([centre, size], -1)
        rates = 1000 ** (torch.arange(self.waves, device=corners.device, dtype=corners.dtype) / self.waves)
        angles = numbers[..., None] / rates
        waves = torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)
        return self.map(self.input_dropout(torch.cat([waves, features], -1))).relu()

    def meets(self, items: int, size: SequenceSize) -> int:
        return items + size.rows if items else 0  # and the whole picture

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The map, which reads what stands for hidden features."""
        counted.pass_through(self.hidden_features)
        counted.add(size, *self.children())


class AddedItems(ItemEmbeddings):
    """Items added to tokens (`choices.Added`). Parameters: `map.*`, `across.weight` and `down.weight`, the vectors of edges."""

    def __init__(self, items: choices.Added, width: int) -> None:
        super().__init__(items.set)
        self.map = nn.Linear(items.width, width)
        self.across, self.down = (nn.Embedding(items.places, items.width // 4) for _ in range(2))

    @property
    def feature_map(self) -> nn.Linear:
        return self.map

    def appended(self, items: int, rows: int) -> int:
        return 0

    def join(
        self, embeddings: Embeddings, tokens: Tensor, vectors: Tensor | None, block: Tensor | None, rows: ItemRows | None
    ) -> ItemInputs:
        if rows is None:
            return ItemInputs(vectors)
        dtype = self.map.weight.dtype
        cells = (box_numbers(rows.boxes, 4, self.set) * self.across.num_embeddings).long()
        cells = cells.clamp(0, self.across.num_embeddings - 1)
        where = torch.cat([self.across(cells[..., 0::2]).flatten(-2), self.down(cells[..., 1::2]).flatten(-2)], -1)
        placed = rows.features.to(dtype) + where
        mask = (rows.real & ~rows.hidden)[..., None].to(dtype)
        mean = (placed * mask).sum(1) / mask.sum(1).clamp(min=1)
        read = torch.cat([mean[:, None], mean.new_zeros(len(tokens), tokens.shape[1] - 1, mean.shape[1])], 1)
        if rows.links is not None:
            of_tokens = placed.flatten(0, 1)[rows.links[:, 1]]
            read = read.flatten(0, 1).index_add(0, rows.links[:, 0], of_tokens).view_as(read)
        return ItemInputs(vectors, torch.tanh(self.map(read)) * rows.real.any(1)[:, None, None])

    def meets(self, items: int, size: SequenceSize) -> int:
        return size.tokens


def item_embeddings(
    items: Any, width: int, *, positions: int, segments: int, epsilon: float, rate: float, clock: Clock
) -> ItemEmbeddings:
    """The module of a part `items`. Raises `RecipeError` if it needs more segments than the network has."""
    if segments < items.segments:
        raise RecipeError(f"segments: got {segments}; these items have a segment of their own. Write segments: {items.segments}.")
    dropout = Dropout(rate, clock)
    if isinstance(items, choices.WithTables):
        return ItemsWithTables(items, width, positions=positions, segments=segments, dropout=dropout)
    if isinstance(items, choices.Elements):
        return ElementItems(items, width, epsilon=epsilon, dropout=dropout, clock=clock)
    return AddedItems(items, width) if isinstance(items, choices.Added) else AppendedItems(
        items, width, epsilon=epsilon, dropout=dropout
    )
