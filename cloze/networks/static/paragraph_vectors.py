"""Vectors of paragraphs, learned with vectors of words or without: PV-DM and PV-DBOW."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import on_host
from cloze.bounds import NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.computed import own_weight, resize_table
from cloze.networks.clock import Clock
from cloze.networks.network import StateKind, reading_kinds
from cloze.networks.static.word_vectors import Scaled, WordVectors
from cloze.registry import Given, register

#: Finds the vectors (B, D) of new texts from their tokens (B, L), and the block that says which of these are padding.
Inference = Callable[[Tensor, "Tensor | None"], Tensor]


@register("network", "paragraph_vectors")
class ParagraphVectors(WordVectors):
    """One vector per paragraph of the text, and, with `words`, one per word (Le and Mikolov, 2014, §2.2 and 2.3).

    **States.** `hidden` (B, L, D): the vector of the row's `paragraph` (B,) at each of its tokens; `summary` (E, D): the same
    once. `context` (B, L, D): the mean of the paragraph's vector and those of the words at `contexts` of each of the `centers`;
    without those fields, of all other words of the row. A text that is no paragraph of the corpus has no vector: a checkpoint
    finds one by training it while words and output rows stay (`engines/paragraphs.py`).

    **Gradient.** Of a mean of n rows each is due 1/n of the gradient: `divided`. `full` gives each the whole (gensim).

    **Start.** All rows are uniform in ±`spread` / width.

    Parameters: `embeddings.weight` (V + N, D): the words, then the N paragraphs; without `words` (N, D).

    Differs: the paper also describes a concatenation of the paragraph's and the words' vectors; here they are averaged.

    >>> network = ParagraphVectors(width=4, vocab_size=9, documents=3)
    >>> states = network(want=frozenset({"hidden"}), tokens=torch.tensor([[1, 2]]), paragraph=torch.tensor([2]))
    >>> tuple(states["hidden"].shape), tuple(network.paragraphs.shape)
    ((1, 2, 4), (3, 4))
    """

    of_documents = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType({
        "hidden": "the vector of its paragraph, which was learned from all words of the paragraph",
        "context": "the vector of its paragraph and the words around it in its window",
    })  # fmt: skip

    def __init__(
        self, *,
        width: Width,
        words: bool = True,
        gradient: Literal["full", "divided"] = "divided",
        spread: NonNegative = 1.0,
        vocab_size: Given[int], documents: Given[int | None] = None, spellings: Given[Sequence[str] | None] = None,
        clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__(
            width=width, gradient=gradient, spread=spread, vocab_size=vocab_size, spellings=spellings, clock=clock
        )
        self.words, self.documents = words, documents
        self.first = vocab_size if words else 0  # the row of the first paragraph
        self.embeddings = nn.Embedding(self.first + (1 if documents is None else documents), width)
        self.needs = frozenset({"tokens", "paragraph"})
        self.takes = self.needs | {"block", "centers", "contexts"}
        self.gives = {**reading_kinds("paragraph"), **({"context": StateKind("B L D", "all_but_itself")} if words else {})}
        self.inference: Inference | None = None
        self.reset_parameters()

    @property
    def token_tables(self) -> dict[str, nn.Embedding]:
        """None: the table also has the paragraphs."""
        return {}

    @property
    def paragraphs(self) -> Tensor:
        """The vectors of the paragraphs of the corpus, in the order of the store, (N, D)."""
        return self.embeddings.weight.detach()[self.first :]

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, centers: Tensor | None = None,
        contexts: Tensor | None = None, cell: Tensor | None = None, paragraph: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L)."""
        vectors = self._own(tokens, block, paragraph)
        return self.states(vectors, want, tokens=tokens, block=block, centers=centers, contexts=contexts)

    def states(
        self, vectors: Tensor, want: frozenset[str], *, tokens: Tensor, block: Tensor | None = None,
        centers: Tensor | None = None, contexts: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) whose paragraphs have these `vectors` (B, D)."""
        hidden = vectors[:, None].expand(*tokens.shape, self.width)
        outputs = {"hidden": hidden, "layers": hidden[None], "summary": vectors}
        if "context" in want:
            outputs["context"] = self._context(vectors, tokens, block, centers, contexts).view(*tokens.shape, self.width)
        return {name: state for name, state in outputs.items() if name in want}

    def _own(self, tokens: Tensor, block: Tensor | None, paragraph: Tensor | None) -> Tensor:
        """The vectors of the paragraphs (B, D), or those of new texts."""
        if paragraph is not None:
            count = len(own_weight(self.embeddings)) - self.first
            highest = int(on_host(paragraph).max()) if paragraph.numel() else 0
            if highest >= count:
                raise RecipeError(
                    f"paragraph_vectors: the paragraph {highest:,} of {count:,}; the table has the documents of one "
                    "whole store.\n  Build the store in one piece: `cloze corpus build`."
                )
            return F.embedding(paragraph.long() + self.first, self.embeddings.weight)
        if self.inference is None:
            raise RecipeError(
                "paragraph_vectors: a new text has no vector until one is trained for it. Open the run with "
                "`load_checkpoint`, or add the edit `paragraph` to the exercise."
            )
        return self.inference(tokens, block)

    def _context(
        self, vectors: Tensor, tokens: Tensor, block: Tensor | None, centers: Tensor | None, contexts: Tensor | None
    ) -> Tensor:
        """The means of paragraph and words (B * L, D)."""
        words = F.embedding(tokens.flatten(), self.embeddings.weight[: self.first])
        spread = vectors.repeat_interleave(tokens.shape[1], 0)
        if centers is None or contexts is None:
            example, real = self._examples(tokens, block)
            real_words = torch.where(real[:, None], words, 0.0)
            total = torch.zeros_like(vectors).index_add(0, example, real_words)[example] - real_words
            ones = real.to(vectors.dtype)
            number = torch.zeros_like(vectors[:, 0]).index_add(0, example, ones)[example] - ones
        else:
            total = torch.zeros_like(words).index_add(0, centers, words.index_select(0, contexts))
            number = torch.zeros_like(words[:, 0]).index_add(0, centers, torch.ones_like(contexts, dtype=words.dtype))
        mean = (total + spread) / (number + 1)[:, None]
        return Scaled.apply(mean, number + 1) if self.gradient == "full" else mean

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """A network that is opened for use has as many paragraphs as were saved."""
        table = state.get(f"{prefix}embeddings.weight")
        if self.documents is None and table is not None and len(table) >= self.first:
            resize_table(self.embeddings, len(table))
        super()._load_from_state_dict(state, prefix, *rest)
