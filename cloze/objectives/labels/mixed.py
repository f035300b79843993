"""Classify texts from the mixed layers of a frozen network: ELMo at the input and at the output of a task model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, Depth, NonNegative, OptionalWidth
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.mix import Combine, LayerConcatenation, LayerSum, ScalarMix, chosen_layers, combination
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.clock import Clock
from cloze.objectives.objective import SEQUENCES, Loss
from cloze.objectives.pooled import Pool, PooledClassification, PooledHead
from cloze.registry import Given, register

Where = Literal["input", "output", "both"]


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """How layers are mixed, and where the mix enters the task's model.

    The mix is concatenated with a table of the task's own words (`embedding_width`; by default 100 wide, none with `mix: input`)
    at the `input` of the LSTMs, with their states at their `output`, or at `both`, each with weights of its own (Peters et al.,
    2018, §3.2, §3.3). `use` chooses layers, counted from 0, the embeddings, or from the top if negative: `use: [-1]` reads the
    top layer, `use: [-4, -3, -2, -1]` with `combine: concatenate` the last four (Devlin et al., 2019, §5.3). `penalty` and
    `norm` as in `ScalarMix`.
    """

    use: tuple[int, ...] | None = None
    combine: Combine = "mix"
    mix: Where = "input"
    embedding_width: OptionalWidth | None = None
    penalty: NonNegative = 0.001
    norm: bool = False

    @property
    def words(self) -> int:
        """The width of the table of the task's own words, 0 without one."""
        if self.embedding_width is not None:
            return self.embedding_width
        return 0 if self.mix == "input" else 100


@dataclass(frozen=True, kw_only=True)
class MixedLayers(Mixing):
    """`Mixing` of so many `layers`, embeddings included."""

    layers: Depth

    def combination(self) -> ScalarMix | LayerSum | LayerConcatenation:
        """A new module that mixes the chosen layers."""
        used = chosen_layers(self.use, self.layers)
        count = self.layers if used is None else len(used)
        return combination(self.combine, count, penalty=self.penalty, norm=self.norm)


class BidirectionalLSTM(nn.Module):
    """One LSTM in each direction over tokens: (B, L, D) to (B, L, 2 · cell)."""

    def __init__(self, input_width: int, cell: int, clock: Clock) -> None:
        super().__init__()
        self.forwards = LSTMLayer(input_width=input_width, cell=cell, clock=clock)
        self.backwards = LSTMLayer(input_width=input_width, cell=cell, reverse=True, clock=clock)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Tokens, of which each row has `lengths` (B,)."""
        return torch.cat([self.forwards(x, None, lengths)[0], self.backwards(x, None, lengths)[0]], dim=2)


class MixedReader(nn.Module):
    """[table; mix] → [LSTMs] → [h; mix']: layers (N, B, L, D) to what a task reads of each token, (B, L, `read`).

    The mix at the input and the mix at the output have weights of their own. Parameters, where present: `mix_in.*`, `mix_out.*`,
    `table.weight`, `encoder.*`. Only the table reads `tokens` (B, L).
    """

    def __init__(
        self, mixed: MixedLayers, *, width: int, encoder: int, vocab_size: int, dropout: float, clock: Clock
    ) -> None:
        super().__init__()
        own_words = mixed.words
        if mixed.mix != "input" and not encoder or mixed.mix == "output" and not own_words:
            raise RecipeError(
                f"mixed layers: mix: {mixed.mix} with encoder {encoder} and embedding_width {own_words}; the output is that "
                "of an encoder, which has to read something: write both, or `mix: input`."
            )
        self.use = chosen_layers(mixed.use, mixed.layers)
        self.mix_in = mixed.combination() if mixed.mix != "output" else None
        self.mix_out = mixed.combination() if mixed.mix != "input" else None
        self.table = nn.Embedding(vocab_size, own_words) if own_words else None
        read = own_words + (0 if self.mix_in is None else self.mix_in.width(width))
        self.encoder = BidirectionalLSTM(read, encoder, clock) if encoder else None
        self.read = (2 * encoder if encoder else read) + (0 if self.mix_out is None else self.mix_out.width(width))
        self.in_dropout, self.out_dropout = Dropout(dropout, clock), Dropout(dropout, clock)
        if self.table is not None:
            nn.init.uniform_(self.table.weight, -0.1, 0.1)

    @property
    def mixes(self) -> list[ScalarMix | LayerSum | LayerConcatenation]:
        """The mixes, that of the input first."""
        return [mix for mix in (self.mix_in, self.mix_out) if mix is not None]

    def cost(self) -> Tensor:
        """The penalty on the mixes' weights."""
        costs = [mix.cost() for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack(costs).sum() if costs else torch.zeros(())

    @property
    def takes(self) -> frozenset[str]:
        """The fields that it needs besides the states."""
        return frozenset() if self.table is None else frozenset({"tokens"})

    def mixed(self, layers: Tensor, tokens: Tensor | None, block: Tensor | None) -> tuple[Tensor, Tensor]:
        """The vectors of the tokens, and which tokens are real (B, L): not those of block 0."""
        real = torch.ones(layers.shape[1:3], dtype=torch.bool, device=layers.device) if block is None else block > 0
        layers = layers if self.use is None else layers[list(self.use)]
        parts = [] if self.table is None else [self.table(tokens)]
        if self.mix_in is not None:
            parts.append(self.in_dropout(self.mix_in(layers, real)))
        x = torch.cat(parts, dim=2)
        if self.encoder is not None:
            x = self.encoder(x, None if block is None else real.sum(1))
        if self.mix_out is not None:
            x = torch.cat([x, self.out_dropout(self.mix_out(layers, real))], dim=2)
        return x, real


class MixedHead(MixedReader):
    """`MixedReader` → pooling → output: layers (N, B, L, D) to scores (B, classes). Parameters: also `pooling.*`."""

    def __init__(
        self, mixed: MixedLayers, *, classes: int, pool: Pool, width: int, encoder: int, vocab_size: int, dropout: float,
        clock: Clock,
    ) -> None:
        super().__init__(mixed, width=width, encoder=encoder, vocab_size=vocab_size, dropout=dropout, clock=clock)
        self.pooling = PooledHead(
            width=self.read, classes=classes, pool=pool, hidden=None, norm=False, recurrent=0, dropouts=(0.0, 0.0, dropout),
            clock=clock,
        )

    @property
    def after_pooling(self) -> list[nn.Module | None]:
        """The maps after the pooling."""
        return self.pooling.after_pooling

    def forward(self, layers: Tensor, tokens: Tensor | None, block: Tensor | None) -> Tensor:
        """Scores (B, classes)."""
        scores: Tensor = self.pooling(*self.mixed(layers, tokens, block))
        return scores


class MixedClassification(PooledClassification):
    """`PooledClassification` of mixed layers; the penalty on the mixes is added for each target, hence once to the mean.

    Reads `layers` (N, B, L, D), and the field `tokens` for a table of the task's own words.
    """

    head: MixedHead

    def __init__(self, head: MixedHead, *, set: str) -> None:
        super().__init__(head, set=set)
        self.reads = ("layers",)
        self.takes |= head.takes
        self.optional |= SEQUENCES

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        scored: Tensor = self.head(states["layers"], batch.get("tokens"), batch.get("block"))
        return scored.index_select(0, batch[self.positions_field].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        loss = super().loss(scores, batch)
        device = loss.total.device
        return loss._replace(total=loss.total + self.count(batch).to(device) * self.head.cost().to(device))


@register("objective", "mixed_classification")
def mixed_classification(
    *,
    mixed: MixedLayers,
    classes: Count = 2,
    set: str = "label",
    encoder: OptionalWidth = 256,
    pool: Pool = "max",
    dropout: BelowOne = 0.5,
    width: Given[int],
    vocab_size: Given[int],
    clock: Given[Clock],
) -> MixedClassification:
    """The class of a text from `mixed` layers (Peters et al., 2018, §3.2, §3.3), by an LSTM in each direction and pooling.

    The LSTMs are `encoder` cells wide; with `encoder: 0` the mix itself is pooled. `dropout` acts on mixes and on pooled states.

    Differs: the task's words are a randomly initialised table over the network's vocabulary; the paper's models read GloVe.
    """
    head = MixedHead(
        mixed, classes=classes, pool=pool, width=width, encoder=encoder, vocab_size=vocab_size, dropout=dropout, clock=clock
    )
    return MixedClassification(head, set=set)
