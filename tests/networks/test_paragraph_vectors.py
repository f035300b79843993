"""Vectors of paragraphs: which rows a state reads, and what a table keeps on its way to another text."""

from __future__ import annotations

import pytest
import torch

from cloze.errors import RecipeError
from cloze.networks import ParagraphVectors

TOKENS = torch.tensor([[1, 2, 3, 2], [4, 1, 0, 0]])
BLOCK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
PARAGRAPH = torch.tensor([2, 0])


def network(documents: int | None = 3, **given: object) -> ParagraphVectors:
    torch.manual_seed(0)
    return ParagraphVectors(width=4, vocab_size=6, documents=documents, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [True, False])
def test_a_text_has_the_vector_of_its_paragraph_at_every_token(words: bool) -> None:
    own = network(words=words)
    states = own(want=frozenset({"hidden", "summary"}), tokens=TOKENS, block=BLOCK, paragraph=PARAGRAPH)
    rows = own.embeddings.weight[PARAGRAPH + (6 if words else 0)]
    assert torch.equal(states["summary"], rows) and torch.equal(own.paragraphs, own.embeddings.weight[6 if words else 0 :])
    assert torch.equal(states["hidden"], rows[:, None].expand(2, 4, 4))
    assert len(own.embeddings.weight) == (9 if words else 3)


def test_a_context_is_the_mean_of_the_paragraph_and_the_words_around() -> None:
    own = network()
    centers, contexts = torch.tensor([1, 1, 4]), torch.tensor([0, 2, 5])  # flat positions
    context = own(
        want=frozenset({"context"}), tokens=TOKENS, block=BLOCK, paragraph=PARAGRAPH, centers=centers, contexts=contexts
    )["context"]
    table = own.embeddings.weight
    assert torch.allclose(context[0, 1], (table[1] + table[3] + table[6 + 2]) / 3)
    assert torch.allclose(context[1, 0], (table[1] + table[6]) / 2)
    whole = own(want=frozenset({"context"}), tokens=TOKENS, block=BLOCK, paragraph=PARAGRAPH)["context"]
    assert torch.allclose(whole[0, 1], (table[1] + table[3] + table[2] + table[6 + 2]) / 4)
    assert torch.allclose(whole[1, 0], (table[1] + table[6]) / 2)


@pytest.mark.parametrize(("gradient", "share"), [("full", 1.0), ("divided", 1 / 3)])
def test_the_paragraph_gets_the_gradient_of_a_mean_as_its_words_do(gradient: str, share: float) -> None:
    own = network(gradient=gradient)
    centers, contexts = torch.tensor([1, 1]), torch.tensor([0, 2])
    own(
        want=frozenset({"context"}), tokens=TOKENS, paragraph=PARAGRAPH, centers=centers, contexts=contexts
    )["context"][0, 1].sum().backward()
    slopes = own.embeddings.weight.grad
    assert slopes is not None
    assert torch.allclose(slopes[[1, 3, 8]], torch.full((3, 4), share)) and int((slopes != 0).any(1).sum()) == 3


def test_an_opened_table_has_the_size_that_was_saved() -> None:
    trained, opened = network(documents=5), network(documents=None)
    opened.load_state_dict(trained.state_dict())
    assert torch.equal(opened.embeddings.weight, trained.embeddings.weight) and opened.paragraphs.shape == (5, 4)


def test_a_text_without_a_vector_is_refused_in_words() -> None:
    with pytest.raises(RecipeError, match="a new text has no vector until one is trained for it"):
        network()(want=frozenset({"hidden"}), tokens=TOKENS)
    with pytest.raises(RecipeError, match="the paragraph 3 of 3"):
        network()(want=frozenset({"hidden"}), tokens=TOKENS, paragraph=torch.tensor([3, 0]))
