"""`cloze retrieve`: the passages of a file that belong to queries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Encoding, Overwrite, Precision, WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A folder fine-tuned for retrieval, or any checkpoint.")],
    queries: Annotated[
        list[str] | None, typer.Argument(help="Queries, or a file: one per line, TSV, CSV, JSON lines or Parquet; none: stdin.")
    ] = None,
    passages: Annotated[str, typer.Option(help="The file to search: one passage per line, TSV, CSV, JSON lines, Parquet.")] = "",
    top: Annotated[int | None, typer.Option(min=1, help="Passages for each query; default: 100.")] = None,
    rerank: Annotated[Path | None, typer.Option(help="A folder fine-tuned for reranking, which ranks what is found.")] = None,
    rerank_top: Annotated[int | None, typer.Option(min=1, help="Passages that it ranks; default: 100 or --top.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON-lines file; default: standard output.")] = None,
    task: Annotated[str | None, typer.Option(help="The task to use, if the folder has several.")] = None,
    query_column: Annotated[str, typer.Option("--text", help="In tables, the column with the query.")] = "query",
    passage_column: Annotated[str, typer.Option("--text-b", help="In tables, the column with the passage.")] = "passage",
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "auto",
    precision: Precision = "fp32",
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    with_files: WithFiles = None,
) -> None:
    """Find the best passages for each query by exact search: one JSON object per query, best passage first.

    Example: cloze retrieve FINDER "who wrote it?" --passages P.txt

    Memory use grows with the number of queries and --top, not with the number of passages. A checkpoint that was not fine-tuned
    for retrieval compares texts by the mean of their token vectors. With --rerank, the best passages are read again, each
    with its query, and ranked by the log-odds that they are relevant.
    """
    import json

    from cloze.atomic import require_output, whole_file
    from cloze.corpus.readers.text_files import require_files
    from cloze.decoding.texts import gather, named_file
    from cloze.errors import TaskError

    if not passages:
        raise TaskError("--passages FILE is missing: name the file to search.")
    require_files([passages])
    if out is not None:
        require_output(out, overwrite=overwrite)
    file = named_file(queries or [], tables=True)
    typed = gather(queries or [], None, field=query_column) if file is None else []
    all_queries = enumerate(typed, start=1) if file is None else _texts(file, query_column, "text")
    numbered = [(line, text) for line, text in all_queries if text.strip()]
    query_texts = [text for _, text in numbered]
    if not query_texts:
        raise TaskError("no query. Write queries, or the name of a file of queries, after the checkpoint.")

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.progress import DecodingProgress
    from cloze.tasks.search import depth_of, remarks_on, reranker_of, retriever_of, search
    from cloze.tasks.search import rerank as ranked_again

    read = partial(_texts, passages, passage_column, "text_b")
    count = sum(bool(text.strip()) for _, text in read())
    if not count:
        raise TaskError(f"{passages}: holds no passage; expected one per line, or a table with a column {passage_column!r}.")
    shown, depth = depth_of(top, rerank_top, again=rerank is not None)
    learner = retriever_of(load_checkpoint(checkpoint, device, precision=precision), task)
    second = None if rerank is None else reranker_of(load_checkpoint(rerank, device, precision=precision))
    with DecodingProgress(count, "passages") as progress:
        rankings = search(learner, query_texts, read, top=depth, size=batch, report=progress)
    if second is not None:
        with DecodingProgress(sum(map(len, rankings)), "pairs") as progress:
            rankings = ranked_again(second, query_texts, rankings, top=shown, size=batch, report=progress)
    for remark in remarks_on(learner, second):
        typer.echo(f"note: {remark}", err=True)
    lines = (
        json.dumps({"line": number, "query": query, "passages": [
            {"line": hit.passage, "score": round(hit.score, 6), "text": hit.text} for hit in ranking
        ]}, ensure_ascii=False) + "\n"
        for (number, query), ranking in zip(numbered, rankings, strict=True)
    )  # fmt: skip
    if out is None:
        for line in lines:
            print(line, end="")
        return
    with whole_file(out) as stage, stage.open("w", encoding="utf-8") as stream:
        stream.writelines(lines)
    typer.echo(f"{out}: {len(query_texts)} queries")


def _texts(path: str, column: str, parameter: str) -> Iterator[tuple[int, str]]:
    """The texts of a file with their lines, in constant memory: a column of a table, which `parameter` chooses, or its lines."""
    from cloze.corpus.readers.text_files import lines
    from cloze.decoding.texts import column_texts, holds_rows
    from cloze.errors import Parameter

    if holds_rows(path):
        yield from column_texts(path, column, Parameter(parameter, "NAME", "option"))
    else:
        yield from ((line.number, line.text) for line in lines(path))
