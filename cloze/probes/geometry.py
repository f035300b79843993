"""How contextual the vectors of words are at every layer (Ethayarajh, 2019): self-similarity, similarity within a sentence, and
variance explained by one direction, each against random words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.distance import is_punctuation
from cloze.probes.measures import ESTIMATORS, Floats, explained, intra_sentence, self_similarity
from cloze.probes.words import WordRow, word_rows, word_states, words_of

Unit = Literal["words", "pieces"]


@dataclass(frozen=True)
class Sampled:
    """What is measured: words with at least `least` occurrences, at most `words` of them and `occurrences` of each (None: all);
    and so many `sentences` for the similarity within a sentence and the random words. `seed` chooses.

    `unit`: words without punctuation, each the mean of its pieces; or pieces, as the published code measures BERT.
    """

    words: int | None = 200
    least: int = 5
    occurrences: int | None = 30
    sentences: int = 1000
    seed: int = 0
    unit: Unit = "words"


@dataclass(frozen=True)
class Geometry:
    """The measures of one network, each (N + 1,), by name; `words` are those that were measured, with their self-similarity by
    layer."""

    measures: Mapping[str, NDArray[np.float64]]
    words: Mapping[str, Sequence[float]]
    sentences: int


@dataclass(frozen=True)
class _Spelled:
    """Rows with the columns of their words or pieces, and how each is spelled, None for one that is not measured itself."""

    rows: Sequence[WordRow]
    spellings: Sequence[Sequence[str | None]]


@dataclass(frozen=True)
class _Chosen:
    """Occurrences as (text, word) pairs: of each word; and one of each of some texts."""

    words: Mapping[str, Sequence[tuple[int, int]]]
    texts: Sequence[int]
    random: Sequence[tuple[int, int]]


def geometry(
    loaded: Checkpoint, texts: Sequence[str], sampled: Sampled = Sampled(), *, length: int | None = None, size: int = 32
) -> Geometry:
    """Measure the vectors of the words of some sentences, one text each; a word of several pieces is their mean.

    The baseline of a cosine is the mean over all pairs of random words, one from each sentence; that of variance explained is as
    many random words as the word has occurrences (undefined if there are fewer), or of pieces all random ones. Pieces are
    measured as in kawine/contextual (preprocess.py, analyze.py): punctuation counts in sentences and among random pieces, but is
    not itself measured.
    `standardised` measures come after each dimension was brought to mean 0 and deviation 1 over the random words, because a few
    dimensions may dominate all cosines.

    Raises:
        UserError: No word occurs often enough.
    """
    reader = Reader.of(loaded)
    spelled = (_pieces if sampled.unit == "pieces" else _words)(reader, texts, length)
    rows, chosen = spelled.rows, _choose(spelled, sampled)
    needed = sorted({text for occurrences in chosen.words.values() for text, _ in occurrences} | set(chosen.texts))
    words_by_text = _wanted(chosen)
    text_numbers = set(chosen.texts)
    vectors: dict[tuple[int, int], NDArray[np.float32]] = {}
    sentences: dict[int, NDArray[np.float32]] = {}
    for index, states in word_states(reader, [rows[i] for i in needed], size=size):
        number = needed[index]
        read = rows[number].columns[:, 0] >= 0
        if number in text_numbers:
            sentences[number] = states[:, read]
        for word in words_by_text[number]:
            vectors[number, word] = states[:, word]
    return _measured(chosen, vectors, sentences, sampled)


def _words(reader: Reader, texts: Sequence[str], length: int | None) -> _Spelled:
    """Texts by their words, spelled as the vocabulary reads them."""
    spans = [words_of(text) for text in texts]
    lower = reader.tokenizer.lower
    spellings = [
        [text[begin:end].lower() if lower else text[begin:end] for begin, end in places]
        for text, places in zip(texts, spans, strict=True)
    ]
    return _Spelled(word_rows(reader, texts, spans, length=length), spellings)


def _pieces(reader: Reader, texts: Sequence[str], length: int | None) -> _Spelled:
    """Texts by their tokens; punctuation has no spelling."""
    tokenizer, rows, spellings = reader.tokenizer, [], []
    for row in reader.encode(texts, max_length=length):
        columns = np.flatnonzero(row.part == 0)
        rows.append(WordRow(row, np.stack([columns, columns + 1], axis=1)))
        ids = row.ids[columns].tolist()
        spellings.append([None if is_punctuation(tokenizer.decode([i]).strip("# ")) else tokenizer.piece(i) for i in ids])
    return _Spelled(rows, spellings)


def _wanted(chosen: _Chosen) -> dict[int, set[int]]:
    words_by_text: dict[int, set[int]] = defaultdict(set)
    for text, word in [*chosen.random, *(pair for occurrences in chosen.words.values() for pair in occurrences)]:
        words_by_text[text].add(word)
    return words_by_text


def _choose(spelled: _Spelled, sampled: Sampled) -> _Chosen:
    """Words, sentences and random words, drawn by the seed."""
    draw, rows = np.random.default_rng(sampled.seed), spelled.rows
    occurrences: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (row, spellings) in enumerate(zip(rows, spelled.spellings, strict=True)):
        for word in np.flatnonzero(row.columns[:, 0] >= 0).tolist():
            if (spelling := spellings[word]) is not None:
                occurrences[spelling].append((number, word))
    frequent = sorted(word for word, pairs in occurrences.items() if len(pairs) >= sampled.least)
    if not frequent:
        raise UserError(
            f"no word occurs {sampled.least} times in these {len(rows):,} sentences.\n  Give more text, or a smaller --least."
        )
    picked = sorted(draw.permutation(len(frequent))[: sampled.words].tolist())
    words = {
        frequent[n]: [
            occurrences[frequent[n]][i]
            for i in sorted(draw.permutation(len(occurrences[frequent[n]]))[: sampled.occurrences])
        ]
        for n in picked
    }
    full = [n for n, row in enumerate(rows) if (row.columns[:, 0] >= 0).any()]
    chosen = [full[i] for i in sorted(draw.permutation(len(full))[: sampled.sentences])]
    random = [(n, int(draw.choice(np.flatnonzero(rows[n].columns[:, 0] >= 0)))) for n in chosen]
    return _Chosen(words, chosen, random)


def _measured(
    chosen: _Chosen, vectors: Mapping[tuple[int, int], NDArray[np.float32]], sentences: Mapping[int, NDArray[np.float32]],
    sampled: Sampled,
) -> Geometry:
    """The measures of every layer."""
    layers = len(next(iter(vectors.values())))
    measures: dict[str, list[float]] = defaultdict(list)
    by_word: dict[str, list[float]] = defaultdict(list)
    for layer in range(layers):
        draw = np.random.default_rng(sampled.seed)
        random = np.stack([vectors[pair][layer] for pair in chosen.random]).astype(np.float64)
        occurrences = {word: np.stack([vectors[pair][layer] for pair in pairs]) for word, pairs in chosen.words.items()}
        mean, deviation = random.mean(0), np.maximum(random.std(0), 1e-9)
        similarities = {word: self_similarity(x) for word, x in occurrences.items()}
        for word, value in similarities.items():
            by_word[word].append(value)
        inside = [states[layer] for states in sentences.values()]
        _add(measures, "", _cosines(random, list(similarities.values()), inside))
        moved = [self_similarity((x - mean) / deviation) for x in occurrences.values()]
        _add(measures, "standardised ", _cosines((random - mean) / deviation, moved, [(x - mean) / deviation for x in inside]))
        shares = {word: explained(x) for word, x in occurrences.items()}
        whole = explained(random)
        baselines = {
            word: whole if sampled.unit == "pieces" else _drawn(random, len(x), draw) for word, x in occurrences.items()
        }
        for name in ESTIMATORS:
            pairs = [(share[name], baselines[word][name]) for word, share in shares.items()]
            measures[name].append(_mean([share for share, _ in pairs]))
            measures[f"{name} baseline"].append(_mean([base for _, base in pairs]))
            measures[f"{name} adjusted"].append(_mean([share - base for share, base in pairs]))
    return Geometry({name: np.array(values) for name, values in measures.items()}, dict(by_word), len(sentences))


def _drawn(random: Floats, count: int, draw: np.random.Generator) -> dict[str, float]:
    """The variance explained of `count` random words; NaN if there are fewer, because fewer vectors always look more alike."""
    if count > len(random):
        return dict.fromkeys(ESTIMATORS, float("nan"))
    return explained(random[draw.choice(len(random), count, replace=False)])


def _cosines(random: Floats, similarities: Sequence[float], sentences: Sequence[Floats]) -> dict[str, float]:
    """The measures of cosines, from random vectors, the self-similarities of words and the words of sentences."""
    base, alike = self_similarity(random), float(np.mean(similarities))
    inside = float(np.mean([intra_sentence(states) for states in sentences]))
    return {
        "self-similarity": alike, "baseline": base, "adjusted": alike - base, "intra-sentence": inside,
        "intra-sentence adjusted": inside - base,
    }  # fmt: skip


def _add(measures: dict[str, list[float]], prefix: str, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        measures[prefix + name].append(value)


def _mean(values: Sequence[float]) -> float:
    """The mean of those that are defined; NaN if none is."""
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else float("nan")
