"""Three stacks of layers: one of text, one of items in their order, and one that reads both as one row (CBT, UniVL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, OptionalDepth, Width
from cloze.errors import RecipeError
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.cross import LayerSettings
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.inputs.embeddings import Embeddings, to_residual_dtype
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.projections import Across
from cloze.networks.blocks.visibility import Visibility, visibility
from cloze.networks.cost import Operations, SequenceSize, size_of, size_of_items
from cloze.networks.encoder_decoder import SequenceCache
from cloze.networks.network import StateKind, TokenSequence, named_sizes, require_order
from cloze.networks.transformer import Transformer
from cloze.registry import register

_JOINT = frozenset({"decoder_hidden", "hidden", "item_hidden", "layers", "pooled", "summary"})  # what the joint layers give
_PAIRS_HELD = 1 << 14  # positions of texts paired with items that pass the joint layers together


class _Side(NamedTuple):
    """One side of a joint row: its states (B, N, D), and which of them are `real` (B, N)."""

    x: Tensor
    real: Tensor

    def mean(self, *, first: int = 0) -> Tensor:
        """The mean of the real states from position `first` on (B, D)."""
        mask = self.real.clone()
        mask[:, :first] = False
        return (self.x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


@register("network", "joint_modal")
class JointModal(Bert):
    """A stack for text, a stack for items, such as the frames of a film, and joint layers above both (CBT; Sun et al., 2019, §3;
    UniVL; Luo et al., 2020, §3.2).

    `layers` are those of the text. Features of items, with a norm of their own if `items.normed`, are mapped, get a learned
    position each, and pass `items.layers`. `joint_layers` read the states of both, text first, with learned segments for text and
    items and learned positions, those of items from `items.after` on. The fields of items are those of `visual`, without boxes.

    **States.** `hidden` (B, L, D) of the text and `item_hidden` (B, R, D) after the joint layers; `item_tower` (B, R, D) before
    them; `text_mean` and `item_mean` (B, D), the means of both before them, of the text without its first token; `pooled` (B, D),
    a dense map and tanh of the `summary`; `pair_pooled` (B, B, D), the same of every text (first axis) with the items of every
    row; with `decoder_layers` `decoder_hidden` (B, T, D) of the view `decoder`, which reads the joint states from left to right;
    `layers` (N+1, B, L, D) of the text, the joint ones last, and the states of attention of its own layers.

    The depth groups are the embeddings of the text, its layers, and one more with everything above: `train: [-1]` trains that
    one alone.

    Parameters: those of `transformer`, `items.*`, `item_layers.<n>.*`, `joint_layers.<n>.*`, `joint_positions.weight`,
    `joint_segments.weight`, `joint_norm.*`, `pooler.*`, with a decoder `decoder.norm.*` and `decoder.layers.<n>.*`; it reads the
    text's tables of tokens and positions.
    """

    may_be_missing: tuple[str, ...] = (
        *Bert.may_be_missing, "items", "item_layers", "joint_layers", "joint_positions", "joint_segments", "joint_norm", "pooler",
        "decoder",
    )
    sizes = named_sizes(
        "layers width heads items.layers joint_layers", tiny=(2, 128, 2, 1, 1), mini=(4, 256, 4, 2, 1), small=(4, 512, 8, 2, 1),
        medium=(8, 512, 8, 4, 2), base=(12, 768, 12, 6, 2), large=(24, 1024, 16, 12, 4),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        items: choices.OrderedItems = choices.OrderedItems(),
        joint_layers: Depth = 2,
        decoder_layers: OptionalDepth = 0,
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        factory = self.made
        self.items = OrderedVectors(items, width, epsilon=factory.epsilon, dropout=Dropout(factory.rates.hidden, factory.clock))
        self.item_layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            factory.layer() for _ in range(items.layers)
        )
        self.joint_positions = nn.Embedding(self.max_length + items.most, width)
        self.after = self.max_length if items.after is None else min(items.after, self.max_length)
        self.joint_segments = nn.Embedding(2, width)
        self.joint_norm = nn.LayerNorm(width, eps=factory.epsilon)
        self.joint_dropout = Dropout(factory.rates.hidden, factory.clock)
        self.joint_layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            factory.layer() for _ in range(joint_layers)
        )
        self.pooler = nn.Linear(width, width)
        self.decoder = JointDecoder(factory, decoder_layers) if decoder_layers else None
        self.take_items(items, {
            "item_hidden": "B R D", "item_tower": "B R D", "text_mean": "B D", "item_mean": "B D", "pair_pooled": "B B D",
            "pooled": "B D",
        })
        if decoder_layers:
            self.takes = self.takes | {"decoder.tokens", "decoder.block"}
            self.gives = {**self.gives, "decoder_hidden": StateKind("B T D", "left_to_right")}
            self.writes = "decoder_hidden"
        self.reset_parameters()
        name_dropouts(self)

    @property
    def maps(self) -> Mapping[str, nn.Linear]:
        """The map of features, by the name of the set."""
        return {self.items.items.set: self.items.features}

    @property
    def layer_state_count(self) -> int:
        """The embeddings, the layers of the text, and the joint layers."""
        return 1 + len(self.layers) + len(self.joint_layers)

    def cache(self) -> SequenceCache | None:
        return None if self.decoder is None else SequenceCache(len(self.decoder.layers))

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings and the layers of the text, then all above it as one group."""
        decoder = [] if self.decoder is None else [self.decoder]
        joint = [self.joint_positions, self.joint_segments, self.joint_norm, *self.joint_layers, self.pooler, *decoder]
        return [self.embeddings, *self.layers, nn.ModuleList([self.items, *self.item_layers, *joint])]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L), of their items (B, R) and of the `decoder` (B, T)."""
        require_order("joint_modal", inputs.order, "open")
        if isinstance(inputs.cache, SequenceCache):
            return {"decoder_hidden": self._write(inputs, inputs.cache)}
        want, tokens, block = inputs.want, inputs.tokens, inputs.block
        of_text = Transformer.gives.keys() - {"hidden", "summary"}
        states = super().read(inputs._replace(want=(want & of_text) | {"hidden"}, positions=None))
        text = _Side(states["hidden"], _real(tokens, block))
        rows = inputs.item_rows(self.items.items.set)
        if rows is None:
            film = _Side(text.x[:, :0], text.real[:, :0])  # R is 0
        else:
            x, seen = to_residual_dtype(self.items(rows.features)), AttentionInputs(rows.among())
            for layer in self.item_layers:
                x = layer(x, seen)
            film = _Side(x, rows.real)
        outputs = {**states, "item_tower": film.x, "text_mean": text.mean(first=1), "item_mean": film.mean()}
        if want & _JOINT:
            passed = self._joint(text, film)  # (B, L + R, D) each, to be cut after the text
            outputs |= {"hidden": passed[-1][:, : tokens.shape[1]], "item_hidden": passed[-1][:, tokens.shape[1] :]}
            if "layers" in want:
                outputs["layers"] = torch.cat([states["layers"], torch.stack([x[:, : tokens.shape[1]] for x in passed])])
            flat = inputs.summaries
            outputs["summary"] = passed[-1][:, 0] if flat is None else outputs["hidden"].flatten(0, 1)[flat]
            if "decoder_hidden" in want and self.decoder is not None and inputs.decoder is not None:
                outputs["decoder_hidden"] = self.decoder(
                    self.embeddings, inputs.decoder, passed[-1], torch.cat([text.real, film.real], 1)
                )
            if "pooled" in want:
                outputs["pooled"] = torch.tanh(self.pooler(outputs["summary"]))
        if "pair_pooled" in want:
            outputs["pair_pooled"] = self._pairs(text, film)
        return {name: state for name, state in outputs.items() if name in want}

    def _write(self, inputs: BertInputs, cache: SequenceCache) -> Tensor:
        """The states (B, T, D) of tokens that continue those of earlier calls; text and items are read once."""
        assert self.decoder is not None and inputs.decoder is not None
        if cache.encoded is None:
            read = self.read(inputs._replace(want=frozenset({"hidden", "item_hidden"}), cache=None, decoder=None))
            cache.encoded = torch.cat([read["hidden"], read["item_hidden"]], 1)
        rows, real = inputs.item_rows(self.items.items.set), _real(inputs.tokens, inputs.block)
        real = real if rows is None else torch.cat([real, rows.real], 1)
        return self.decoder(self.embeddings, inputs.decoder, cache.encoded, real, cache)

    def _joint(self, text: _Side, film: _Side) -> list[Tensor]:
        """Texts and items (B, L + R, D) after each of the joint layers."""
        x, real = torch.cat([text.x, film.x.to(text.x.dtype)], 1), torch.cat([text.real, film.real], 1)
        positions, (text_segment, film_segment) = self.joint_positions.weight, self.joint_segments.weight
        of_text = positions[: text.x.shape[1]] + text_segment
        of_film = positions[self.after : self.after + film.x.shape[1]] + film_segment
        x = self.joint_dropout(self.joint_norm(x + torch.cat([of_text, of_film])))
        seen = AttentionInputs(visibility("open", real.long(), length=x.shape[1], past=0, device=x.device))
        passed = [to_residual_dtype(x)]
        for layer in self.joint_layers:
            passed.append(layer(passed[-1], seen))
        return passed[1:]

    def _pairs(self, text: _Side, film: _Side) -> Tensor:
        """What is pooled of every text with the items of every row (B, B, D), some texts at a time.

        Pairs are rows of the joint layers, (c·B, L + R, D) for c texts: row t·B + r is text t with the items of row r.
        """
        rows, width = len(text.x), text.x.shape[1] + film.x.shape[1]
        together = max(1, _PAIRS_HELD // max(1, rows * width))
        pooled = []
        for low in range(0, rows, together):
            texts = _Side(*(side[low : low + together].repeat_interleave(rows, 0) for side in text))
            count = len(texts.x) // rows
            every = _Side(*(side.repeat(count, *(1,) * (side.dim() - 1)) for side in film))
            pooled.append(torch.tanh(self.pooler(self._joint(texts, every)[-1][:, 0])).view(count, rows, -1))
        return torch.cat(pooled)

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The way of the text and of the items through their layers, and of both, or of all pairs, through the joint ones."""
        want = counted.want
        items = size_of_items(counted.fields, self.items.items.set) or SequenceSize(size.rows, 0, 0)
        joint = SequenceSize(size.rows, size.tokens + items.tokens, size.length + items.length)
        film = counted.side("items")
        super().count_operations(counted, size)
        film.pass_through(self.items)
        film.add(items, self.items, *self.item_layers)
        counted.join(film)
        pairs = size.rows if "pair_pooled" in want else 0
        counted.add(joint._replace(tokens=(pairs + bool(want & _JOINT)) * joint.tokens), *self.joint_layers)
        if want & {"pair_pooled", "pooled"}:
            counted.add(pairs * size.rows + size.rows * ("pooled" in want), self.pooler)
        if self.decoder is not None and "decoder_hidden" in want and "decoder.tokens" in counted.fields:
            for layer in self.decoder.layers:
                layer.count_operations(counted, size_of(counted.fields, "decoder."), counted.source(joint))


class JointDecoder(nn.Module):
    """Layers that write a text from left to right and read the joint states (UniVL; Luo et al., 2020, §3.2).

    Parameters: `norm.*` of the embeddings, `layers.<n>.*`.
    """

    def __init__(self, settings: LayerSettings, layers: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width, eps=settings.epsilon)
        self.dropout = Dropout(settings.rates.hidden, settings.clock)
        self.layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            settings.layer(crossing=settings.attention(Across())) for _ in range(layers)
        )

    def forward(
        self, embeddings: Embeddings, read: TokenSequence, encoded: Tensor, real: Tensor, cache: SequenceCache | None = None
    ) -> Tensor:
        """The states (B, T, D) of what the decoder reads, next to joint states `encoded` (B, N, D), of which some are `real`
        (B, N). With a cache, its tokens follow those of earlier calls."""
        assert embeddings.tokens is not None and isinstance(embeddings.positions, nn.Embedding)  # those of the network
        past, length = 0 if cache is None else cache.length, read.tokens.shape[1]
        x = embeddings.tokens(read.tokens) + embeddings.positions.weight[past : past + length]
        x = to_residual_dtype(self.dropout(self.norm(x)))
        inputs = AttentionInputs(visibility("left_to_right", read.block, length=length, past=past, device=x.device))
        memory = AttentionInputs(Visibility("mask", real[:, None, None]), source=encoded)
        for number, layer in enumerate(self.layers):
            if cache is not None:
                inputs, memory = replace(inputs, cache=cache.layers[number]), replace(memory, cache=cache.source[number])
            x = layer(x, inputs, memory)
        return x


def _real(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Which tokens (B, L) are not padding."""
    return torch.ones_like(tokens, dtype=torch.bool) if block is None else block > 0


class OrderedVectors(nn.Module):
    """Features of items in their order as vectors of the network's width: mapped, with learned positions, normed.

    Parameters: `features.*`, `positions.weight`, `norm.*`, with `normed` `features_norm.*`.
    """

    def __init__(self, items: choices.OrderedItems, width: int, *, epsilon: float, dropout: Dropout) -> None:
        super().__init__()
        self.items, self.dropout = items, dropout
        self.features_norm = nn.LayerNorm(items.width, eps=epsilon) if items.normed else None
        self.features = nn.Linear(items.width, width)
        self.positions = nn.Embedding(items.most, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, R, F) to (B, R, D). Raises `RecipeError` for more items than there are positions."""
        if features.shape[1] > self.items.most:
            raise RecipeError(
                f"a row has {features.shape[1]} items {self.items.set!r}, and the network has positions for {self.items.most}.\n"
                f"  Write items.most: {features.shape[1]} in the section items of the network, or build a store of shorter films."
            )
        x = features.to(self.features.weight.dtype)
        x = self.features(x if self.features_norm is None else self.features_norm(x))
        return self.dropout(self.norm(x + self.positions.weight[: x.shape[1]]))
