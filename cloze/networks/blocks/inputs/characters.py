"""Vectors of words from their characters: ELMo's convolutions, and the letter trigrams of DSSM.

A part of kind `embedding` maps `tokens` (B, L) to (B, L, `width`). It knows how every id of the vocabulary is spelled;
`characters` (B, L, C), where given, spell tokens that the vocabulary lacks (see `cloze.networks.spelling`). Words are computed
once each, however often they stand in a batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import on_host, send
from cloze.bounds import Count, OptionalDepth, Width
from cloze.errors import RecipeError
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.spelling import MASKED, NOTHING, PADDING, spell_vocabulary, trigrams
from cloze.registry import Given, register


class Highway(nn.Module):
    """y = g relu(W_H x + b_H) + (1 - g) x with g = σ(W_T x + b_T), (…, D) to (…, D) (Srivastava et al., 2015).

    The gate's bias begins at `gate_bias`: at -2 most of the input passes unchanged. Parameters: `change.*`, `gate.*`.
    """

    def __init__(self, width: int, *, gate_bias: float = -2.0) -> None:
        super().__init__()
        self.gate_bias = gate_bias
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw both maps from a normal distribution of deviation 1 / √D, or all from ±`bound`; the gate begins at its bias."""
        if bound is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)
            with torch.no_grad():
                self.gate.bias.add_(self.gate_bias)
            return
        for linear in (self.change, self.gate):
            nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
        nn.init.zeros_(self.change.bias)
        nn.init.constant_(self.gate.bias, self.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        return torch.lerp(x, F.relu(self.change(x)).to(x.dtype), torch.sigmoid(self.gate(x)).to(x.dtype))


class Characters(nn.Module, ABC):
    """What both parts share: the spelled vocabulary, and each distinct word computed once.

    `spelled` (V, C) is made of the tokenizer's spellings and is no part of a checkpoint; without spellings, as while a recipe is
    only checked, it is zero.
    """

    width: int

    def __init__(self, *, per_word: int, vocab_size: int, spellings: Sequence[str] | None) -> None:
        super().__init__()
        self.per_word = per_word
        spelled = np.zeros((vocab_size, per_word), np.int16)
        if spellings is not None:
            rows = spell_vocabulary(spellings[:vocab_size], per_word)
            spelled[: len(rows)] = rows
        self.spelled = torch.from_numpy(spelled)  # stays on the CPU, where the number of distinct words is known without a wait

    def forward(self, tokens: Tensor, characters: Tensor | None = None) -> Tensor:
        """(B, L) ids, and characters (B, L, C) where a token has its own, zeros elsewhere, to (B, L, width)."""
        spelled, index = self._distinct(tokens, characters)
        return self.vectors(spelled)[index]

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The products; distinct words count once."""
        words = self._distinct(counted.fields["tokens"], counted.fields.get("characters"))[0]
        counted.pass_through(self)
        self.count_words(counted, words)

    def _distinct(self, tokens: Tensor, characters: Tensor | None) -> tuple[Tensor, Tensor]:
        """The characters of all distinct words (N, C), and which of them each token is (B, L)."""
        distinct, index = torch.unique(on_host(tokens), return_inverse=True)
        spelled = self.spelled[distinct]
        if characters is not None:
            characters = on_host(characters)
            has_characters = (characters != NOTHING).any(-1)
            rows, again = torch.unique(characters[has_characters], dim=0, return_inverse=True)
            spelled = torch.cat([spelled, rows.to(spelled.dtype)])
            index = index.masked_scatter(has_characters, again + len(distinct))
        return send(spelled, tokens.device), send(index, tokens.device)

    def count_words(self, counted: Operations, words: Tensor) -> None:
        """Count the products for words (N, C)."""
        counted.add(len(words), *self.children())

    @abstractmethod
    def vectors(self, spelled: Tensor) -> Tensor:
        """Characters (N, C) of words to their vectors (N, width)."""

    @abstractmethod
    def reset_parameters(self, bound: float | None = None) -> None:
        """Redraw every weight from torch's generator; between ±`bound` if it is given."""


@register("embedding", "char_cnn")
class CharCNN(Characters):
    """Convolutions over a word's characters, max-pooling, and highway layers (Kim et al., 2016, §2; ELMo).

    `filters` are pairs (characters that a filter spans, number of filters); convolutions are valid ones over `per_word`
    characters, padding included: `per_word` is part of the model, and a word is at least as long as the widest filter. The vector
    of `padding` is `trained`, as in ELMo's code, or always `zero`, as in Kim's (yoonkim/lstm-char-cnn, `main.lua`). The numbers
    of characters are those of ELMo's released models, `mask` adds a row for [MASK] (CharacterBERT). The output is as wide as
    there are filters; a network that reads it maps it to its own width if the two differ.

    Kim et al.: `embedding_width: 15`, `activation: tanh`, one or two highways. Parameters: `table.weight`, `filters.n.*`
    (H, E, span), `highways.n.*`. Tables begin between ±1, filters between ±0.05 (relu) or with deviation 1/√(span · E) (tanh).

    Differs: the windows that hold nothing but padding are computed once per filter and not for each place, which gives the
    same maximum.
    """

    sizes: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "tiny": {"filters": [[1, 16], [2, 32], [3, 80]]},
            "mini": {"filters": [[1, 32], [2, 32], [3, 64], [4, 128]]},
            "small": {"filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]]},
            "medium": {"filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]},
        }
    )

    def __init__(
        self, *,
        embedding_width: Width = 16,
        filters: list[tuple[int, int]] = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)],  # noqa: B006
        highways: OptionalDepth = 2,
        activation: Literal["relu", "tanh"] = "relu",
        per_word: Count = 50,
        mask: bool = False,
        padding: Literal["trained", "zero"] = "trained",
        vocab_size: Given[int], spellings: Given[Sequence[str] | None] = None,
    ) -> None:
        widest = max((span for span, _ in filters), default=0)
        if not filters or min(min(pair) for pair in filters) < 1 or widest > per_word:
            raise RecipeError(
                f"char_cnn.filters: {[list(pair) for pair in filters]}; expected pairs [characters spanned, number of filters], "
                f"spanning at most {per_word} characters (`per_word`)."
            )
        super().__init__(per_word=per_word, vocab_size=vocab_size, spellings=spellings)
        self.width = sum(number for _, number in filters)
        self.activation, self.padding = activation, padding
        self.table = nn.Embedding(MASKED + int(mask), embedding_width, padding_idx=NOTHING)
        self.filters: Sequence[nn.Conv1d] = nn.ModuleList(  # type: ignore[assignment]
            nn.Conv1d(embedding_width, number, span) for span, number in filters
        )
        self.highways: Sequence[Highway] = nn.ModuleList(Highway(self.width) for _ in range(highways))  # type: ignore[assignment]
        if not mask and self.spelled.numel() and bool((self.spelled == MASKED).any()):
            raise RecipeError("char_cnn: there is a [MASK], and the table of characters has no row for it; write `mask: true`.")
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Redraw every weight from torch's generator; with a `bound` everything from ±`bound`, biases too (Kim et al.)."""
        nn.init.uniform_(self.table.weight, *((-1.0, 1.0) if bound is None else (-bound, bound)))
        with torch.no_grad():
            self.table.weight[NOTHING] = 0.0
        for conv in self.filters:
            assert conv.bias is not None
            if bound is not None:
                nn.init.uniform_(conv.weight, -bound, bound)
                nn.init.uniform_(conv.bias, -bound, bound)
                continue
            if self.activation == "relu":
                nn.init.uniform_(conv.weight, -0.05, 0.05)
            else:
                nn.init.normal_(conv.weight, std=1 / math.sqrt(conv.weight[0].numel()))
            nn.init.zeros_(conv.bias)
        for highway in self.highways:
            highway.reset_parameters(bound)

    def count_words(self, counted: Operations, words: Tensor) -> None:
        """Count the products for words (N, C); a filter is applied at every place of a word."""
        longest = self._longest(words)
        for conv in self.filters:
            counted.add(len(words) * (self._shown(words, longest, conv) - conv.kernel_size[0] + 1), conv)
        counted.add(len(words), *self.highways)

    def _longest(self, spelled: Tensor) -> int:
        """How many characters the longest of words (N, C) has."""
        if spelled.is_meta:
            return spelled.shape[1]
        spelled = on_host(spelled)
        columns = torch.arange(1, spelled.shape[1] + 1, device=spelled.device)
        return int(torch.where(spelled != PADDING, columns, 0).amax()) if len(spelled) else 0

    def _shown(self, spelled: Tensor, longest: int, conv: nn.Conv1d) -> int:
        """How many characters a filter reads of words (N, C): those of the `longest`, and one window of padding alone."""
        return min(longest + conv.kernel_size[0], spelled.shape[1])

    def vectors(self, spelled: Tensor) -> Tensor:
        """Characters (N, C) of words to their vectors (N, width)."""
        longest = self._longest(spelled)
        if self.padding == "zero":
            spelled = spelled.masked_fill(spelled == PADDING, NOTHING)
        x = F.embedding(spelled.long(), self.table.weight, padding_idx=NOTHING).transpose(1, 2)  # (N, E, C)
        vectors = torch.cat([conv(x[:, :, : self._shown(spelled, longest, conv)]).amax(2) for conv in self.filters], dim=1)
        vectors = F.relu(vectors) if self.activation == "relu" else torch.tanh(vectors)
        for highway in self.highways:
            vectors = highway(vectors)
        return vectors


@register("embedding", "letter_trigrams")
class LetterTrigrams(Characters):
    """A word as the sum of the vectors of its letter trigrams, each counted once (DSSM: Huang et al., 2013, §3.2).

    Trigrams run over the word with its two marks, `#cat#` → #ca, cat, at#, as bytes of UTF-8. The `size` - 1 trigrams that most
    words of the vocabulary hold have a vector of their own, all others share the last. A word is known only by the trigrams
    that it holds: `collisions` counts the words that cannot be distinguished. Parameters: `table.weight` (size, width);
    the checkpoint holds the trigrams as `known` (size - 1,).

    Differs: letters outside ASCII are several bytes; the paper removes them.
    """

    sizes: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({"tiny": {"width": 128}, "mini": {"width": 256}})

    def __init__(
        self, *, width: Width = 300, size: Count = 30000, per_word: Count = 50, vocab_size: Given[int],
        spellings: Given[Sequence[str] | None] = None,
    ) -> None:
        if size < 2:
            raise RecipeError(f"letter_trigrams.size: {size}; expected 2 or more, one of them for all other trigrams.")
        super().__init__(per_word=per_word, vocab_size=vocab_size, spellings=spellings)
        self.width = width
        self.known: Tensor
        numbers = self._most_frequent(size - 1) if spellings is not None else np.full(size - 1, -2, np.int64)
        self.register_buffer("known", torch.from_numpy(numbers))
        self.table = nn.Embedding(size, width)
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Redraw every weight from torch's generator."""
        if bound is None:
            nn.init.normal_(self.table.weight, std=1 / math.sqrt(self.width))
        else:
            nn.init.uniform_(self.table.weight, -bound, bound)

    def _most_frequent(self, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The trigrams of most words, ascending; -2 where there are fewer."""
        numbers, counts = np.unique(self._sets(self.spelled.cpu().numpy()), return_counts=True)
        numbers, counts = numbers[numbers >= 0], counts[numbers >= 0]
        frequent = numbers[np.argsort(-counts, kind="stable")[:most]]
        return np.sort(np.concatenate([frequent, np.full(most - len(frequent), -2)])).astype(np.int64)

    @staticmethod
    def _sets(spelled: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The trigrams of each word, ascending and once each (N, C - 2); -1 for none."""
        codes = np.sort(trigrams(spelled), axis=1)
        codes[:, 1:][codes[:, 1:] == codes[:, :-1]] = -1
        return np.sort(codes, axis=1)

    @property
    def collisions(self) -> int:
        """How many words of the vocabulary hold the very trigrams of an earlier one."""
        sets = self._sets(self.spelled.cpu().numpy())
        sets = sets[(sets >= 0).any(1)]
        return len(sets) - len(np.unique(sets, axis=0))

    def vectors(self, spelled: Tensor) -> Tensor:
        """Characters (N, C) of words to their vectors (N, width)."""
        sets = torch.from_numpy(self._sets(spelled.cpu().numpy())).to(spelled.device)
        index = torch.searchsorted(self.known, sets).clamp_(max=len(self.known) - 1)
        rows = torch.where(self.known[index] == sets, index, len(self.known))
        real = sets >= 0
        number, at = rows[real], torch.cumsum(real.sum(1), 0)
        begins = torch.cat([at.new_zeros(1), at[:-1]])
        return F.embedding_bag(number, self.table.weight, begins, mode="sum")

    def extra_repr(self) -> str:
        """The collisions, for `print(network)`."""
        return f"collisions={self.collisions}"


class CharacterTable(nn.Module):
    """Characters as a network reads them, at its own width: `project.*` maps to it where the part is not as wide.

    With several trigrams or filters per number of the network this is ELMo's last linear map.
    """

    def __init__(self, characters: Characters, width: int) -> None:
        super().__init__()
        self.part = characters
        self.project = nn.Linear(characters.width, width) if characters.width != width else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator."""
        self.part.reset_parameters()
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=1 / math.sqrt(self.project.in_features))
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens: Tensor, characters: Tensor | None = None) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        x: Tensor = self.part(tokens, characters)
        return x if self.project is None else self.project(x)
