"""A table of word vectors: word2vec, fastText, GloVe and their kin, told apart by arguments, exercise and objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import on_host, send
from cloze.bounds import Count, NonNegative, Width
from cloze.errors import RecipeError
from cloze.hashed import count_roles, ngram_rows, rows_of_words
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds
from cloze.registry import Given, register


@register("network", "word_vectors")
class WordVectors(Network):
    """One vector per word, read by itself, as part of its neighbours' context, or as part of its row.

    **States.** `hidden` (B, L, D): each token's own vector; `layers` (1, B, L, D) has nothing else. `context` (B, L, D): the mean
    of the vectors at the positions `contexts` (P,) of each of the `centers` (P,); without those fields, of all other words of the
    example; zero where there is none. `summary` (E, D): the mean over the words of the example, roles such as [UNK] left out.
    With `both_sides` `association` (P,): w_i · c_j, plus b_i + c_j's bias with `biases`, for every `cell` (P, 2) (GloVe).

    **Subwords** (Bojanowski et al., 2017, §3.2; fastText's code): the vector of a word is the mean of its own row and those of
    its character n-grams of `subwords: [3, 6]` letters, hashed into `buckets` rows; of an unseen word of its n-grams alone.
    `summary` counts a word once, whatever the number of its n-grams. fastText's classifier, which counts rows and has runs of
    words, is `bag_of_ngrams`.

    **Gradient.** Of a mean of n rows each row is due 1/n of the gradient: `divided`. `full` gives each the whole, as word2vec,
    gensim and fastText do for CBOW's contexts and for n-grams (`model.cc`; their classifier divides, and so does `summary`).

    **Start.** All rows are uniform in ±`spread` / width: 0.5 is word2vec's and GloVe's, 1 fastText's and gensim's.

    Parameters: `embeddings.weight` (V + buckets, D), the words first; with `both_sides` `contexts.weight` (V, D); with `biases`
    `bias` and `context_bias` (V,).

    >>> network = WordVectors(width=4, vocab_size=9)
    >>> tuple(network(want=frozenset({"context"}), tokens=torch.tensor([[1, 2, 3]]))["context"].shape)
    (1, 3, 4)
    """

    of_words = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType({
        "hidden": "a word sees nothing but itself: it has one vector, whatever stands around it",
        "context": "the words around it in its window, not itself",
    })  # fmt: skip
    sizes = named_sizes(
        "width buckets", tiny=(32, 5000), mini=(50, 50_000), small=(100, 200_000), medium=(200, 2_000_000), base=(300, 2_000_000),
        large=(640, 2_000_000),
    )

    def __init__(
        self, *,
        width: Width,
        subwords: tuple[int, int] | None = None,
        buckets: Count = 2_000_000,
        both_sides: bool = False,
        biases: bool = False,
        gradient: Literal["full", "divided"] = "divided",
        spread: NonNegative = 0.5,
        vocab_size: Given[int], spellings: Given[Sequence[str] | None] = None, clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        _check(subwords, buckets, both_sides, biases)
        self.width, self.vocab_size, self.clock = width, vocab_size, Clock() if clock is None else clock
        self.subwords, self.both_sides = subwords, both_sides
        self.buckets = buckets if subwords is not None else 0
        self.gradient, self.spread = gradient, spread
        self.spellings = None if spellings is None else tuple(spellings)
        self.roles = 0 if spellings is None else count_roles(spellings)
        self.embeddings = nn.Embedding(vocab_size + self.buckets, width)
        self.contexts = nn.Embedding(vocab_size, width) if both_sides else None
        self.bias = nn.Parameter(torch.empty(vocab_size)) if biases else None
        self.context_bias = nn.Parameter(torch.empty(vocab_size)) if biases else None
        # They stay on the CPU, where the number of rows is known without waiting for a GPU.
        self._table_rows: tuple[Tensor, Tensor] | None = None
        if self.spellings is not None and subwords is not None:
            starts, rows = rows_of_words(self.spellings, subwords, buckets)
            self._table_rows = torch.from_numpy(starts), torch.from_numpy(rows)
        self.takes = self.needs | {"block", "centers", "contexts"} | ({"cell"} if both_sides else frozenset())
        pairs = {"association": StateKind("P", "cell")} if both_sides else {}
        context = {"context": StateKind("B L D", "all_but_itself"), "summary": StateKind("E D", "all")}
        self.gives = {**reading_kinds("itself"), **context, **pairs}
        self.reset_parameters()

    @property
    def token_tables(self) -> dict[str, nn.Embedding]:
        """The token table, for heads that tie to it; none where a word has further rows."""
        return {} if self.buckets else {"tokens": self.embeddings}

    @property
    def compressible(self) -> list[nn.Embedding]:
        """The rows of words and n-grams, and those of the contexts."""
        return [self.embeddings] if self.contexts is None else [self.embeddings, self.contexts]

    @property
    def layer_state_count(self) -> int:
        """The vectors."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """The table, and that of the contexts."""
        return [*self.compressible]

    def reset_parameters(self) -> None:
        """Redraw every number from torch's generator: all rows, buckets too."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -self.spread / self.width, self.spread / self.width)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, centers: Tensor | None = None,
        contexts: Tensor | None = None, cell: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L)."""
        outputs: dict[str, Tensor] = {}
        if want & {"hidden", "layers", "context", "summary"}:
            sums, sizes = self._sums(tokens)  # (B·L, D), (B·L): flat until a state is given
            hidden = sums if sizes is None else sums / sizes[:, None].to(sums.dtype)
        if want & {"hidden", "layers"}:
            full = self.gradient == "full" and sizes is not None
            states = (Scaled.apply(hidden, sizes) if full else hidden).view(*tokens.shape, self.width)
            outputs |= {name: state for name, state in (("hidden", states), ("layers", states[None])) if name in want}
        if "context" in want:
            if centers is not None and contexts is not None:
                context = self._of_pairs(sums, sizes, centers, contexts)
            else:
                context = self._of_others(hidden, tokens, block)
            outputs["context"] = context.view(*tokens.shape, self.width)
        if "summary" in want:
            outputs["summary"] = self._summary(hidden, tokens, block)
        if "association" in want:
            outputs["association"] = self._association(cell)
        return outputs

    def vectors(self) -> Tensor:
        """The vector of every word (V, D): its table row, the mean with its n-grams, or, `both_sides`, w + c."""
        with torch.no_grad():
            if self.contexts is not None:
                return self.embeddings.weight[: self.vocab_size] + self.contexts.weight
            if self.subwords is None:
                return self.embeddings.weight[: self.vocab_size].clone()
            ids = torch.arange(self.vocab_size, device=self.embeddings.weight.device)
            return torch.cat([self._means(part) for part in ids.split(16384)])

    def vector_of(self, word: str) -> Tensor | None:
        """The vector (D,) of any word: an unseen one is the mean of its n-grams, zero if it has none; None without subwords."""
        number = self._ids.get(word)
        with torch.no_grad():
            if number is not None:
                if self.contexts is not None:
                    return self.embeddings.weight[number] + self.contexts.weight[number]
                return self._means(torch.tensor([number], device=self.embeddings.weight.device))[0]
            if self.subwords is None:
                return None
            rows = ngram_rows(word, self.subwords, self.buckets, self.vocab_size)
            if not rows:
                return torch.zeros(self.width, device=self.embeddings.weight.device)
            return self.embeddings.weight[torch.tensor(rows, device=self.embeddings.weight.device)].mean(0)

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """In every cell two vectors meet."""
        counted.pass_through(self)
        if "association" in counted.want and "cell" in counted.fields:
            counted.add_row_products(self.width * len(counted.fields["cell"]))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {spelling: number for number, spelling in enumerate(self.spellings or ())}

    def _means(self, ids: Tensor) -> Tensor:
        sums, sizes = self._sums(ids)
        return sums if sizes is None else sums / sizes[:, None].to(sums.dtype)

    def _sums(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """The sum of the rows of each of M ids, of any shape, (M, D), and how many rows it has (M,), None for one each."""
        if self.subwords is None:
            return F.embedding(ids.flatten(), self.embeddings.weight), None
        # The rows of the U distinct ids stand one behind another in `table_rows` (S,), each id's from its offset on; their sums
        # (U, D) go back to the M ids.
        starts, rows = self.table_rows()
        distinct, index = torch.unique(on_host(ids).flatten(), return_inverse=True)
        sizes = starts[distinct + 1] - starts[distinct]
        offsets = sizes.cumsum(0) - sizes
        number = torch.arange(int(sizes.sum()))
        table_rows = rows[number + (starts[distinct] - offsets).repeat_interleave(sizes)]
        table_rows, offsets, index, sizes = (send(part, ids.device) for part in (table_rows, offsets, index, sizes[index]))
        sums = F.embedding_bag(table_rows, self.embeddings.weight, offsets, mode="sum")
        return sums.index_select(0, index), sizes

    def _of_pairs(self, sums: Tensor, sizes: Tensor | None, centers: Tensor, contexts: Tensor) -> Tensor:
        """The mean of all rows of the words at `contexts`, by centre, (B*L, D)."""
        # Pairs (P,) are flat positions of (B, L): a centre receives the sums (D,) and the numbers of rows of its contexts.
        row_counts = sums.new_ones(len(sums)) if sizes is None else sizes.to(sums.dtype)
        total = torch.zeros_like(sums).index_add(0, centers, sums.index_select(0, contexts))
        number = torch.zeros_like(row_counts).index_add(0, centers, row_counts.index_select(0, contexts)).clamp(min=1)
        mean = total / number[:, None]
        return Scaled.apply(mean, number) if self.gradient == "full" else mean

    def _of_others(self, hidden: Tensor, tokens: Tensor, block: Tensor | None) -> Tensor:
        """The mean of the other words of each token's example, (B*L, D)."""
        example, words = self._examples(tokens, block)
        total, number, vectors = _by_example(hidden, example, words, int(example.max()) + 1 if len(example) else 1)
        other_count = (number[example] - words.to(hidden.dtype)).clamp(min=1)
        return (total[example] - vectors) / other_count[:, None]

    def _summary(self, hidden: Tensor, tokens: Tensor, block: Tensor | None) -> Tensor:
        """The mean over the words of each example, (E, D), examples row by row."""
        example, words = self._examples(tokens, block)
        inside = torch.ones_like(tokens, dtype=torch.bool) if block is None else block > 0
        several = 1 if block is None else max(int(on_host(block).max()), 1) if block.numel() else 1
        # Numbers are left for as many examples in every row as the fullest has, (B · several); those that exist are the E.
        exists = torch.zeros(len(tokens) * several, dtype=torch.bool, device=tokens.device)
        exists[torch.arange(len(tokens), device=tokens.device) * several] = True  # a row has an example, be it empty
        exists[example[inside.flatten()]] = True
        total, number, _ = _by_example(hidden, example, words, len(exists))
        return (total / number.clamp(min=1)[:, None])[exists]

    def _examples(self, tokens: Tensor, block: Tensor | None) -> tuple[Tensor, Tensor]:
        """The number of each token's example (B*L,), counted row by row, and whether the token is a word of it."""
        row = torch.arange(len(tokens), device=tokens.device)[:, None].expand(tokens.shape)
        words = tokens >= self.roles
        if block is None:
            return row.flatten(), words.flatten()
        several = max(int(on_host(block).max()), 1) if block.numel() else 1
        return (row * several + (block - 1).clamp(min=0)).flatten(), (words & (block > 0)).flatten()

    def _association(self, cell: Tensor | None) -> Tensor:
        if cell is None or self.contexts is None:
            raise RecipeError("word_vectors: `association` needs cells. Write `corpus: {cooccurrences: {}}` as the source.")
        word, other = cell.unbind(1)  # (P,) each
        score = (F.embedding(word, self.embeddings.weight) * F.embedding(other, self.contexts.weight)).sum(1)
        if self.bias is not None and self.context_bias is not None:
            score = score + self.bias[word] + self.context_bias[other]
        return score

    def table_rows(self) -> tuple[Tensor, Tensor]:
        """Starts (V + 1,) and rows: word i has the table rows `rows[starts[i] : starts[i + 1]]`. Raises `RecipeError` without
        spellings."""
        if self._table_rows is None:
            raise RecipeError(
                "word_vectors: n-grams need the words' spellings, and none were given. Give `spellings`, the word behind each id."
            )
        return self._table_rows


def _by_example(hidden: Tensor, example: Tensor, words: Tensor, examples: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the words' vectors by example, their number, and the vectors with zeros for what is no word."""
    vectors = torch.where(words[:, None], hidden, 0.0)
    total = hidden.new_zeros(examples, hidden.shape[1]).index_add(0, example, vectors)
    return total, hidden.new_zeros(examples).index_add(0, example, words.to(hidden.dtype)), vectors


class Scaled(torch.autograd.Function):
    """The rows as they are; on the way back row i is multiplied by `factor[i]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return gradient * factor[:, None].to(gradient.dtype), None


def _check(
    subwords: tuple[int, int] | None, buckets: int, both_sides: bool, biases: bool
) -> None:
    if subwords is not None and not 1 <= subwords[0] <= subwords[1]:
        raise RecipeError(f"word_vectors: subwords {list(subwords)}; expected the shortest and the longest, such as [3, 6].")
    if subwords is not None and buckets < 1:
        raise RecipeError(f"word_vectors: buckets {buckets}; hashed n-grams need at least one row, fastText has 2000000.")
    if both_sides and subwords is not None:
        raise RecipeError("word_vectors: `both_sides` is for cells of words, which have no subwords. Leave out one of the two.")
    if biases and not both_sides:
        raise RecipeError("word_vectors: `biases` belong to cells; write `both_sides: true` too.")
