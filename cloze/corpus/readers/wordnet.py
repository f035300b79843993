"""WordNet's index of senses, and the endings of English words by which it finds lemmas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cloze.errors import CorpusError

#: English endings and what a lemma has in their place, by part of speech: WordNet's rules of detachment (morphy).
ENDINGS: Mapping[str, Sequence[tuple[str, str]]] = {
    "noun": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ),
    "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
}

PARTS = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
SENSE = re.compile(r"(\S+)%([1-5]):\d\d:\d\d:\S*:\S* (\d{8}) \d+ (\d+)")
_CLOSED = re.compile(r"[^aeiou][aeiou][^aeiouwxy]$")


def is_sense_index(text: str) -> bool:
    """Whether a text begins as WordNet's `index.sense` does."""
    return SENSE.fullmatch(text.partition("\n")[0].strip()) is not None


def read_sense_index(text: str, file: str) -> dict[str, dict[str, float]]:
    """The synsets of every word form in WordNet's `index.sense`, with their counts + 1.

    Synsets are known by their offsets, such as 02084071, as in WN18RR. Lemmas of one word also have the forms that the rules of
    detachment trace back to them: *dogs* has the nouns of *dog*. Raises `CorpusError` with the line of anything else.
    """
    synsets: dict[str, dict[str, float]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        sense = SENSE.fullmatch(line.strip())
        if sense is None:
            raise CorpusError(f"{file}:{number}: {line[:60]!r}; expected a sense of WordNet: key, offset, number, count.")
        lemma, part, synset, count = sense.groups()
        for form in forms_of(lemma.replace("_", " "), PARTS[part]):
            counts = synsets.setdefault(form, {})
            counts[synset] = counts.get(synset, 0.0) + int(count) + 1
    return synsets


def forms_of(lemma: str, part: str) -> Iterator[str]:
    """A lemma and the regular forms that lead back to it, some of which no text has: the rules are about forms that exist.

    >>> sorted(forms_of("run", "verb"))
    ['run', 'runed', 'runes', 'runing', 'runned', 'running', 'runs']
    """
    forms = {lemma}
    if " " not in lemma:
        for ending, instead in ENDINGS.get(part, ()):
            if lemma.endswith(instead) and len(lemma) > len(instead):
                forms.add(lemma.removesuffix(instead) + ending)
            if not instead and ending[0] in "ei" and ending != "es" and _CLOSED.search(lemma):
                forms.add(lemma + lemma[-1] + ending)
    yield from forms
