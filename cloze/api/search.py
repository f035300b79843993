"""Search: the best passages for queries, by one model or in two stages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import overload

from cloze.api.model import Model
from cloze.arguments import check_arguments
from cloze.bounds import Count
from cloze.errors import TaskError
from cloze.tasks.in_memory import each_text
from cloze.tasks.search import Hit, depth_of, remarks_on, rerank, reranker_of, retriever_of, search


@overload  # a string is an iterable of strings, too, and comes first
def retrieve(  # type: ignore[overload-overlap]
    finder: Model, queries: str, passages: Iterable[str], *, top: int | None = None, reranker: Model | None = None,
    rerank_top: int | None = None, task: str | None = None, batch: int = 64,
) -> list[Hit]: ...
@overload
def retrieve(
    finder: Model, queries: Iterable[str], passages: Iterable[str], *, top: int | None = None, reranker: Model | None = None,
    rerank_top: int | None = None, task: str | None = None, batch: int = 64,
) -> list[list[Hit]]: ...
@check_arguments
def retrieve(
    finder: Model, queries: str | Iterable[str], passages: Iterable[str], *, top: Count | None = None,
    reranker: Model | None = None, rerank_top: Count | None = None, task: str | None = None, batch: Count = 64,
) -> list[Hit] | list[list[Hit]]:
    """The best passages for every query by exact search, the best first.

    Args:
        finder: A model that was fine-tuned for retrieval, or any other, which compares the means of token vectors.
        queries: One string or several.
        passages: The texts to search.
        top: Passages for each query; default: 100.
        reranker: A model that was fine-tuned for reranking, which reads the passages that are found again, each with its query,
            and ranks them.
        rerank_top: How many passages of each query it reads; default: 100, or `top` if that is more.
        task: The task of `finder` to use, if it has several.
        batch: Texts at once.

    Returns:
        For each query a list of hits `(passage, score, text)`; for one string, that list. `passage` counts from 0. The score is
        the product of the vectors, or with a reranker the log-odds that the passage is relevant.

    Raises:
        TaskError: no passage has text.
    """
    query_texts, passage_texts = [queries] if isinstance(queries, str) else list(each_text(queries)), list(each_text(passages))
    if not any(text.strip() for text in passage_texts):
        raise TaskError("retrieve: passages has no text; expected at least one passage to search.")
    shown, depth = depth_of(top, rerank_top, again=reranker is not None)
    retriever = retriever_of(finder.checkpoint, task)
    if not query_texts:
        return []
    rankings = search(retriever, query_texts, lambda: enumerate(passage_texts), top=depth, size=batch)
    second = None if reranker is None else reranker_of(reranker.checkpoint)
    if second is not None:
        rankings = rerank(second, query_texts, rankings, top=shown, size=batch)
    for remark in remarks_on(retriever, second):
        warnings.warn(remark, stacklevel=3)
    return rankings[0] if isinstance(queries, str) else rankings
