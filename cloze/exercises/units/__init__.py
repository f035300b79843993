"""The units that `mask` chooses: tokens, words, n-grams, spans, fragments, units of annotation layers.
May import: what `cloze.exercises` may, and nothing of it but this package.
To add a unit: a file with `choose(request) -> masked or marks`, and a line in `UNITS`.
Contract: tests/exercises/test_units.py and tests/contracts/test_edits.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from cloze.exercises.units import alternating, fragment, infill, ngram, partition, spaced, span, token, whole_word
from cloze.exercises.units.unit_request import Unit, UnitRequest

_SPAN = frozenset({"layers/span"})

UNITS: Mapping[str, Unit] = {
    "token": Unit(token.choose, independent=True),
    "whole_word": Unit(whole_word.choose, needs=frozenset({"word_start"}), independent=True),
    "ngram": Unit(ngram.choose, marks=_SPAN, words=True, lengths=True),
    "span": Unit(span.choose, marks=_SPAN, words=True, lengths=True),
    "spaced": Unit(spaced.choose, marks=_SPAN, words=True, lengths=True),
    "infill": Unit(infill.choose, marks=_SPAN | {"layers/insert"}, words=True, by_words=True, lengths=True, unframed=True),
    "alternating": Unit(alternating.choose, marks=_SPAN, unframed=True),
    "partition": Unit(partition.choose, marks=_SPAN, lengths=True),
    "fragment": Unit(fragment.choose, marks=_SPAN),
}


def unit_of(unit: str | list[str]) -> Unit:
    """The unit of a name, or of a list of annotation layers."""
    if isinstance(unit, str):
        return UNITS[unit]
    names = {"word_start"} if unit[0] == "whole_word" else set()
    layers = {f"layers/{name}" for name in unit[1:]}
    return Unit(whole_word.choose_layers, needs=frozenset(names | layers), independent=True)


__all__ = ["UNITS", "UnitRequest", "Unit", "unit_of"]
