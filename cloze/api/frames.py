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
    several = isinstance(results, Sequence) and not isinstance(results, NamedTupleResult)
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
class NamedTupleResult(Protocol):
    """A result that is a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def rows_of(results: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows of results, as dictionaries by column."""
    for number, result in enumerate(results):
        if isinstance(result, Filled):
            yield from (
                {"text": result.given, "mask": mask, "rank": rank, "word": candidate.word, "probability": candidate.probability}
                for mask, candidates in enumerate(result.masks, start=1)
                for rank, candidate in enumerate(candidates, start=1)
            )
        elif isinstance(result, Evaluation):
            for name, value in result.metrics.items():
                low, high = result.intervals.get(name, (None, None))
                yield {"metric": name, "value": value, "low": low, "high": high, "constant": (result.baseline or {}).get(name)}
        elif isinstance(result, list):
            yield from ({"item": number, **row} for row in rows_of(result))
        else:
            yield dict(_flat(_record(result)))


def _record(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Recorded):
        return result.record()
    if isinstance(result, NamedTupleResult):
        return result._asdict()
    if isinstance(result, Mapping):
        return result
    if is_dataclass(result) and not isinstance(result, type):
        return asdict(result)
    raise UserError(f"cloze.frame: {type(result).__name__} is no result of a model's method.")


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", entry) for inner, entry in value.items())
        else:
            yield name, value
