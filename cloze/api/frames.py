"""Results as a data frame. pandas is imported only here, and only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol, runtime_checkable

from cloze.decoding.filling import Filled
from cloze.errors import UserError
from cloze.tasks.task import Evaluation


def frame(results: Any) -> Any:
    """A pandas `DataFrame` of the results of a model's method, with one row per result.

    Results of `fill` have one row per candidate (text, mask, rank, word, probability), those of `evaluate` one per metric, and
    lists of neighbours one per neighbour, with the number of the word (`item`). Probabilities of labels become the columns
    `probabilities.LABEL`. A comparison or a sweep has the rows of its `table()`; dictionaries are rows as they are.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("cloze.frame makes data frames of pandas, which is not installed: pip install pandas") from None
    if isinstance(results, Tabular):
        results = results.table()
    several = isinstance(results, Sequence) and not isinstance(results, Record)
    return pandas.DataFrame(list(rows_of(results if several else [results])))


@runtime_checkable
class Tabular(Protocol):
    """A result of many rows: a comparison or a sweep."""

    def table(self) -> list[dict[str, Any]]: ...


@runtime_checkable
class Recorded(Protocol):
    """A result that says what its row holds."""

    def record(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Record(Protocol):
    """A result that is a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def rows_of(results: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows of results, as dictionaries by column."""
    for number, one in enumerate(results):
        if isinstance(one, Filled):
            yield from (
                {"text": one.given, "mask": mask, "rank": rank, "word": found.word, "probability": found.probability}
                for mask, candidates in enumerate(one.masks, start=1)
                for rank, found in enumerate(candidates, start=1)
            )
        elif isinstance(one, Evaluation):
            for name, value in one.metrics.items():
                low, high = one.intervals.get(name, (None, None))
                yield {"metric": name, "value": value, "low": low, "high": high, "constant": (one.baseline or {}).get(name)}
        elif isinstance(one, list):
            yield from ({"item": number, **row} for row in rows_of(one))
        else:
            yield dict(_flat(_record(one)))


def _record(one: Any) -> Mapping[str, Any]:
    if isinstance(one, Recorded):
        return one.record()
    if isinstance(one, Record):
        return one._asdict()
    if isinstance(one, Mapping):
        return one
    if is_dataclass(one) and not isinstance(one, type):
        return asdict(one)
    raise UserError(f"cloze.frame: {type(one).__name__} is no result of a model's method.")


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in value.items())
        else:
            yield name, value
