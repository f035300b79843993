"""Search in two stages: a retriever compares vectors, and a reranker reads the best passages once more with their query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cloze.decoding.lengths import cut_remark
from cloze.decoding.reader import Checkpoint
from cloze.errors import TaskError
from cloze.tasks.kinds.reranking import Reranker, Reranking
from cloze.tasks.kinds.retrieval import Retriever, untuned
from cloze.tasks.task import Report, silent
from cloze.tasks.tuned_folder import has_own_task, load_tuned

TOP = 100  # passages of a query


class Hit(NamedTuple):
    """A passage that was found for a query: its number, its score, and its text. The score is the product of the vectors, or the
    log-odds of the reranker."""

    passage: int
    score: float
    text: str


def retriever_of(loaded: Checkpoint, task: str | None = None) -> Retriever:
    """What finds passages: a folder fine-tuned for retrieval, or a checkpoint that was not fine-tuned, by its own vectors of
    texts. A `TaskError` for a folder of another task."""
    folder = Path(loaded.folder)
    learner = load_tuned(loaded, name=task)[0] if has_own_task(folder) else untuned(loaded)
    if not isinstance(learner, Retriever):
        raise TaskError(
            f"{folder}: was fine-tuned for {learner.task.name}, not for retrieval.\n"
            "  Give a folder of cloze finetune --task retrieval, or a checkpoint that was not fine-tuned."
        )
    return learner


def reranker_of(loaded: Checkpoint) -> Reranker:
    """What scores pairs: a folder fine-tuned for reranking, or one of transformers with a classifier of one output or two, such
    as a CrossEncoder of sentence-transformers. A `TaskError` for other folders."""
    folder = Path(loaded.folder)
    tuned_here = has_own_task(folder)
    learner = load_tuned(loaded, None if tuned_here else Reranking())[0]
    fault = f"was fine-tuned for {learner.task.name}"
    if isinstance(learner, Reranker):
        outputs = learner.all_scores(learner.reader.encode(["a"], ["a"])).shape[1]
        if outputs <= 2:
            return learner
        fault = f"its classifier has {outputs} classes"
    raise TaskError(
        f"{folder}: {fault}, not for reranking.\n"
        "  Give a folder of cloze finetune --task reranking, or a CrossEncoder of sentence-transformers."
    )


def remarks_on(retriever: Retriever, reranker: Reranker | None = None) -> list[str]:
    """Sentences on texts that a search has read in part."""
    of_pairs = None if reranker is None else cut_remark(reranker.lost_tokens, what="pairs of a query and a passage")
    return [remark for remark in (cut_remark(retriever.lost_tokens), of_pairs) if remark is not None]


def depth_of(top: int | None, rerank_top: int | None, *, again: bool) -> tuple[int, int]:
    """How many passages are given for each query, and how many the first stage finds; the same unless they are read `again`. A
    `TaskError` if no passage is wanted, if fewer are found than given, or if the second stage has a depth and is missing."""
    if not again and rerank_top is not None:
        raise TaskError(f"--rerank-top {rerank_top}: there is no second stage. Name one, --rerank FOLDER, or leave it out.")
    shown = min(TOP, rerank_top or TOP) if top is None else top
    depth = (max(shown, TOP) if again else shown) if rerank_top is None else rerank_top
    if shown < 1:
        raise TaskError(f"--top {shown}: expected at least one passage for each query.")
    if depth < shown:
        raise TaskError(
            f"--top {shown}: only {depth} passages are read again (--rerank-top).\n"
            "  Give a smaller --top or a larger --rerank-top."
        )
    return shown, depth


def search(
    retriever: Retriever, queries: Sequence[str], passages: Callable[[], Iterable[tuple[int, str]]], *, top: int = TOP,
    size: int = 64, report: Report = silent,
) -> list[list[Hit]]:
    """The `top` best numbered passages of every query by exact search, the best first; `passages` is read twice, and those
    without text are no passages."""
    worded = ((number, text) for number, text in passages() if text.strip())
    rankings = retriever.retrieve(queries, worded, most=top, size=size, report=report)
    numbers = {hit.passage for hit in chain(*rankings)}
    texts = {number: text for number, text in passages() if number in numbers}
    return [[Hit(*hit, texts[hit.passage]) for hit in ranking] for ranking in rankings]


def rerank(
    reranker: Reranker, queries: Sequence[str], rankings: Sequence[Sequence[Hit]], *, top: int = TOP, size: int = 64,
    report: Report = silent,
) -> list[list[Hit]]:
    """The `top` best of the passages that were found for every query, by the reranker; of equals the one that was before."""
    pairs = [(query, hit) for query, ranking in zip(queries, rankings, strict=True) for hit in ranking]
    scores = reranker.scores_of([query for query, _ in pairs], [hit.text for _, hit in pairs], size=size, report=report)
    scored = iter([hit._replace(score=float(score)) for (_, hit), score in zip(pairs, scores, strict=True)])
    return [sorted((next(scored) for _ in ranking), key=lambda hit: -hit.score)[:top] for ranking in rankings]
