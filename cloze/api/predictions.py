"""The predictions of a model: a list that also gives their probabilities as an array and shows itself as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import html_parts
from cloze.errors import UserError
from cloze.tasks.prediction_files import flat_rows
from cloze.tasks.task import Prediction

SHOWN = 20  # rows in a notebook
LONGEST = 100  # characters of a cell there


class Predictions(list[Any]):
    """Predictions in the order of the texts."""

    def __init__(self, predictions: Sequence[Prediction], labels: Sequence[str]) -> None:
        super().__init__(predictions)
        self.labels = tuple(labels)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each of `labels` for every text: (N, C), as scikit-learn's `predict_proba`.

        Raises:
            UserError: The predictions have no probability for every class.
        """
        every = [prediction.record().get("probabilities") for prediction in self]
        rows = [shares for shares in every if isinstance(shares, Mapping)]
        if not self.labels or len(rows) < len(every):
            raise UserError("probabilities: these predictions have none for every class. See cloze.frame(predictions).")
        return np.array([[shares[label] for label in self.labels] for shares in rows], np.float64).reshape(-1, len(self.labels))

    def _repr_html_(self) -> str:
        """A table of the first ones, for notebooks."""
        rows = list(flat_rows(self[:SHOWN]))[:SHOWN]
        names = list(dict.fromkeys(name for row in rows for name in row))
        more = f"{len(self):,} predictions, the first {SHOWN} rows are shown." if len(self) > SHOWN else ""
        return html_parts.table([{name: _short(row.get(name, "")) for name in names} for row in rows]) + html_parts.line(more)


def _short(value: Any) -> Any:
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
