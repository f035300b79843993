"""Judgments of relevance with their collection, as BEIR and TREC have them.

    corpus.jsonl      a passage per line: {"_id": …, "title": …, "text": …}
    queries.jsonl     a query per line: {"_id": …, "text": …}
    qrels/test.tsv    query-id, corpus-id and score under a header (BEIR), or query, iteration, passage and grade (TREC)
    runs/test.run     optional, the candidates of a first stage: query, Q0, passage, rank, score, name (TREC)

The user names the file of judgments; the collection is in its folder or in the folder above. A grade of 1 or more means that the
passage is relevant (Thakur et al., 2021, "BEIR"; trec_eval's default level).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cloze import rng
from cloze.corpus.readers.text_files import json_lines, lines, string_field
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError

COLUMNS = ("query", "passage", "label")
_HEADER = ["query-id", "corpus-id", "score"]
_PACKED = ("", ".gz", ".xz")


class JudgedPassage(NamedTuple):
    """A passage that may be relevant to a query: texts, grade and ids. `missing` holds the grades of the relevant passages of the
    query that are no candidates, `run_score` is that of the run."""

    line: int
    query: str
    passage: str
    grade: int
    query_id: str
    passage_id: str
    missing: tuple[int, ...] = ()
    run_score: float = 0.0


class _Judged(NamedTuple):
    line: int
    grade: int


def grade_of(cell: str) -> int:
    """A cell as a grade of relevance; one that is no whole number is a `ValueError` with the reason."""
    try:
        return int(cell)
    except ValueError:
        raise ValueError(
            f"{cell[:40]!r}; expected a whole number: 0 for a passage that is not relevant, 1 or more for one that is."
        ) from None


def is_qrels(path: Path | str) -> bool:
    """Whether a file holds judgments and has its collection next to it."""
    if _collection(path) is None:
        return False
    first = next(lines(path), None)
    cells = [] if first is None else first.text.split()
    return cells == _HEADER or len(cells) == 4 and cells[1] in ("0", "Q0") and cells[3].lstrip("-").isdigit()


def require_no_folder(path: Path | str) -> None:
    """Raise a `TaskError` for the folder of a collection, which has several files of judgments."""
    files = sorted(Path(path).glob("qrels/*")) if Path(path).is_dir() else []
    if files:
        raise TaskError(f"{path}: a folder with judgments of several parts. Name the judgments of one, such as {files[0]}")


def relevant_rows(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """The `COLUMNS` of the relevant pairs, each with its line, for readers of tables."""
    for pair in candidates(path, negatives=0):
        if pair.grade >= 1:
            yield pair.line, [pair.query, pair.passage, str(pair.grade)]


def candidates(
    path: Path | str, *, negatives: int, top: int | None = None, whole_run: bool = False, fault: Fault | None = None
) -> Iterator[JudgedPassage]:
    """The candidates of every judged query, query by query.

    They are the judged passages and `negatives` others, drawn at random from the passages that the run names for the query (of
    those that are not judged, from the `top` with the highest scores), or from the corpus if there is no run. With `whole_run`
    they are the passages of the run, if there is one, as trec_eval measures it: a query that the run lacks is left out. What is
    drawn depends only on the query's id. Of the corpus, only the texts of candidates are held in memory.
    """
    folder = _collection(path)
    if folder is None:
        raise TaskError(f"{path}: no corpus.jsonl and queries.jsonl in its folder or in the one above it.")
    corpus, query_file = _file(folder, "corpus.jsonl"), _file(folder, "queries.jsonl")
    assert corpus is not None and query_file is not None  # see `_collection`
    judged = _judgments(path, fault)
    queries = {name: text for _, name, text in _texts(query_file, judged)}
    run_file = run_of(path)
    run = None if run_file is None else _read_run(run_file)
    positions: dict[str, int] = {}
    drawn: dict[str, list[int]] = {}
    if run is None and negatives:
        ids = {passage for passages in judged.values() for passage in passages}
        count = 0
        for count, (_, record) in enumerate(json_lines(corpus), start=1):
            if (name := str(record.get("_id"))) in ids:
                positions[name] = count - 1
        for query, passages in judged.items():
            excluded = {positions[passage] for passage in passages if passage in positions}
            drawn[query] = drawn_numbers(count, excluded, negatives, query)
    chosen: dict[str, list[str]] = {}
    for query, passages in judged.items():
        retrieved = [] if run is None else list(run.get(query, ()))
        unjudged = [passage for passage in retrieved if passage not in passages]
        if run is not None and top is not None:
            unjudged = sorted(unjudged, key=lambda passage: -run[query][passage])[:top]
        numbers = drawn_numbers(len(unjudged), (), negatives, query)
        chosen[query] = retrieved if run is not None and whole_run else [*passages, *(unjudged[number] for number in numbers)]
    texts: dict[str, str] = {}
    id_at: dict[int, str] = {}
    for number, name, text in _texts(corpus, set(chain(*chosen.values())), chain(*drawn.values())):
        texts[name], id_at[number] = text, name
    for query, passages in judged.items():
        line = next(iter(passages.values())).line
        if query not in queries:
            unusable(path, line, f"the query {query!r} is not in {query_file}.", fault=fault)
            continue
        names = [*chosen[query], *(id_at[number] for number in drawn.get(query, ()))]
        missing = tuple(grade for name, (_, grade) in passages.items() if grade >= 1 and name not in names)
        for name in names:
            row = passages.get(name, _Judged(line, 0))
            if name in texts:
                score = 0.0 if run is None else run.get(query, {}).get(name, 0.0)
                yield JudgedPassage(row.line, queries[query], texts[name], row.grade, query, name, missing, score)
            elif name in passages:
                unusable(path, row.line, f"the passage {name!r} is not in {corpus}.", fault=fault)
            else:
                raise TaskError(f"{run_file}: names the passage {name!r} for the query {query!r}, which is not in {corpus}.")


def drawn_numbers(count: int, excluded: Collection[int], most: int, *address: int | str) -> list[int]:
    """At most `most` different numbers below `count`, none of them `excluded`: a pure function of these and the address."""
    free = count - len(excluded)
    if free <= most:
        return [number for number in range(count) if number not in excluded]
    generator = np.random.Generator(np.random.Philox(key=rng.fold("negatives", *address)))
    numbers: dict[int, None] = {}
    while len(numbers) < most:
        numbers.update((number, None) for number in generator.integers(0, count, most).tolist() if number not in excluded)
    return list(numbers)[:most]


def run_of(path: Path | str) -> Path | None:
    """The run with the candidates of a file of judgments, `runs/NAME.*` in the collection; a `TaskError` if there are several."""
    folder = _collection(path)
    name = Path(path).name.partition(".")[0]
    files = [] if folder is None else sorted(folder.glob(f"runs/{name}.*"))
    if len(files) > 1:
        raise TaskError(f"{path}: has several runs: {', '.join(map(str, files))}. Keep one of them there.")
    return files[0] if files else None


def _collection(path: Path | str) -> Path | None:
    if not Path(path).is_file():
        return None
    folders = Path(path).parent, Path(path).parent.parent
    return next((folder for folder in folders if _file(folder, "corpus.jsonl") and _file(folder, "queries.jsonl")), None)


def _file(folder: Path, name: str) -> Path | None:
    return next((file for ending in _PACKED if (file := folder / f"{name}{ending}").is_file()), None)


def _judgments(path: Path | str, fault: Fault | None) -> dict[str, dict[str, _Judged]]:
    """The judged passages of every query, in the order of the file."""
    judged: dict[str, dict[str, _Judged]] = {}
    for line in lines(path):
        cells = line.text.split()
        if not cells or cells == _HEADER:
            continue
        if len(cells) not in (3, 4):
            unusable(path, line.number, f"{len(cells)} cells; expected query-id, corpus-id, score, or TREC's four.", fault=fault)
            continue
        try:
            judged.setdefault(cells[0], {})[cells[-2]] = _Judged(line.number, grade_of(cells[-1]))
        except ValueError as error:
            unusable(path, line.number, f"the score is {error}", fault=fault)
    if not judged and fault is None:
        raise TaskError(f"{path}: no judgments; expected at least one.")
    return judged


def _read_run(path: Path) -> dict[str, dict[str, float]]:
    """The passages that a run names for every query, in the order of the file, with their scores."""
    run: dict[str, dict[str, float]] = {}
    for line in lines(path):
        cells = line.text.split()
        if not cells:
            continue
        try:
            query, _, passage, _, score, _ = cells
            run.setdefault(query, {})[passage] = float(score)
        except ValueError:
            raise TaskError(
                f"{path}:{line.number}: {line.text[:60]!r}; expected six cells: query, Q0, passage, rank, score, name."
            ) from None
    return run


def _texts(path: Path, ids: Collection[str], numbers: Iterable[int] = ()) -> Iterator[tuple[int, str, str]]:
    """The number, the id and the text of the objects with these ids or numbers; a title comes before the text, as in BEIR."""
    wanted = set(numbers)
    for number, (line, record) in enumerate(json_lines(path)):
        name = str(record.get("_id"))
        if name in ids or number in wanted:
            title, text = str(record.get("title") or ""), string_field(path, line, record, "text")
            yield number, name, f"{title} {text}".strip()
