"""Recordings of texts with the times of their words → one item for each word: frames of the energies of mel bands, or what
another `WordMeasure` makes of them; and lines of JSON with the texts, which name their recordings."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import require_output, whole_file
from cloze.corpus.items.item_store import FEATURES, TIMES
from cloze.corpus.items.recordings import Floats, Recording, RecordingReader, as_line
from cloze.errors import CorpusError

_SMALLEST = 1e-10  # energy, before its logarithm
_LEAST = 1e-2  # deviation of a band: less is no speech
_OF_LINES = RecordingReader()


class WordMeasure(ABC):
    """Makes features of the words of a recording: `frames`, one after another, of `width` numbers each. `name` says what they
    depend on."""

    frames: int

    @property
    @abstractmethod
    def name(self) -> str:
        """What the features depend on."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The numbers of a frame."""

    @abstractmethod
    def measure(self, spoken: Recording) -> NDArray[np.floating[Any]]:
        """The features of the words of a recording, (W, frames · width)."""


@dataclass(frozen=True)
class Bands(WordMeasure):
    """The logarithms of the energies of mel bands; of each band, the mean over the words of a recording is 0 and the deviation 1.

    `frames` are evenly spaced in each word, of `window` seconds each, with `bands` up to `highest` Hz. A recording without such
    frequencies is a `CorpusError`.
    """

    frames: int = 30
    bands: int = 40
    highest: float = 8000.0
    window: float = 0.025

    @property
    def name(self) -> str:
        return f"mel frames={self.frames} bands={self.bands} highest={self.highest:g} window={self.window:g} normed=recording"

    @property
    def width(self) -> int:
        return self.bands

    def measure(self, spoken: Recording) -> NDArray[np.floating[Any]]:
        if spoken.rate < 2 * self.highest:
            raise CorpusError(
                f"{spoken.key}: has {spoken.rate} samples per second, so nothing above {spoken.rate / 2:g} Hz, and bands reach "
                f"up to {self.highest:g} Hz.\n  Use bands that all recordings have: --highest {spoken.rate // 2}"
            )
        energies = np.array([word_energies(spoken, start, stop, self) for start, stop in spoken.words])
        flat = energies.reshape(-1, self.bands)
        if len(flat):
            flat = (flat - flat.mean(0)) / np.maximum(flat.std(0), _LEAST)
        return flat.astype(np.float32).reshape(len(spoken.words), self.frames * self.bands)


class RecordingCounts(NamedTuple):
    """How many recordings and words were written, and the files of their texts."""

    recordings: int
    words: int
    texts: tuple[Path, ...]


def write_sounds(
    sources: Sequence[Path], out: Path, measure: WordMeasure, *, reader: RecordingReader = _OF_LINES,
    overwrite: bool = False, report: Callable[[int], None] = lambda done: None,
) -> RecordingCounts:
    """Write an item for each word of the recordings of `sources` to a new `.npz`: its features, with the name of the `measure`,
    and its times in seconds.

    The texts of a source, or the questions about it, become JSON lines next to `out`: `OUT.SOURCE.jsonl`. `report` gets the
    number of recordings just done. Errors are those of `RecordingReader`.
    """
    texts = tuple(out.with_name(f"{out.stem}.{source.resolve().stem}.jsonl") for source in sources)
    if len(set(texts)) < len(texts):
        raise CorpusError(
            f"{', '.join(map(str, sources))}: two of them have the same name, and so would the files of their texts.\n"
            "  Rename one, or write them to two files."
        )
    for path in (out, *texts):
        require_output(path, overwrite=overwrite)
    keys: dict[str, None] = {}
    counts: list[int] = []
    times: list[tuple[float, float]] = []
    with ExitStack() as stack:
        features = stack.enter_context(tempfile.TemporaryFile(dir=out.absolute().parent))
        for source, path in zip(sources, texts, strict=True):
            lines = stack.enter_context(stack.enter_context(whole_file(path)).open("w", encoding="utf-8"))
            for recording, texts_of_recording in reader.read(source):
                if recording.key in keys:
                    raise CorpusError(f"{source}: {recording.key} is there twice; expected each recording once.")
                keys[recording.key] = None
                counts.append(_write_features(features, measure, recording, source))
                times += recording.words
                lines.writelines(map(as_line, texts_of_recording))
                report(1)
        stage = stack.enter_context(stack.enter_context(whole_file(out)).open("wb"))
        _save(stage, features, measure, keys, counts, times)
    return RecordingCounts(len(keys), len(times), texts)


def _write_features(file: IO[bytes], measure: WordMeasure, recording: Recording, source: Path) -> int:
    """Append the features of the words of a recording. Returns how many words it has."""
    vectors = measure.measure(recording)
    largest = np.abs(vectors).max(initial=0)
    if largest > np.finfo(np.float16).max:
        raise CorpusError(f"{source}: {recording.key}: a feature of {largest:g}, which float16 cannot hold.")
    file.write(vectors.astype(np.float16).tobytes())
    return len(vectors)


def _save(
    stage: IO[bytes], features: IO[bytes], measure: WordMeasure, keys: Iterable[str], counts: Sequence[int],
    times: Sequence[tuple[float, float]],
) -> None:
    features.flush()
    shape = (len(times), measure.frames * measure.width)
    every: NDArray[np.float16] = np.memmap(features, np.float16, "r", shape=shape) if len(times) else np.zeros(shape, np.float16)
    arrays: dict[str, Any] = {
        "extractor": np.array(measure.name), FEATURES: every, TIMES: np.array(times, np.float32).reshape(-1, 2),
    }
    np.savez(stage, keys=np.array(list(keys), np.str_), offsets=np.cumsum([0, *counts], dtype=np.int64), **arrays)


def word_energies(spoken: Recording, start: float, stop: float, bands: Bands) -> Floats:
    """The logarithms of the energies of a word, (frames, bands)."""
    size = max(2, round(bands.window * spoken.rate))
    low, high = start * spoken.rate, max(stop * spoken.rate - size, start * spoken.rate)
    begins = np.rint(np.linspace(low, high, bands.frames)).astype(np.int64)
    index = np.clip(begins[:, None] + np.arange(size), 0, len(spoken.samples) - 1)
    power = np.square(np.abs(np.fft.rfft(spoken.samples[index] * np.hanning(size), axis=1)))
    energies: Floats = np.log(power @ mel_filters(bands.bands, size, spoken.rate, bands.highest).T + _SMALLEST)
    return energies


@lru_cache(maxsize=8)
def mel_filters(bands: int, size: int, rate: int, highest: float) -> Floats:
    """(bands, size // 2 + 1) triangles over the frequencies of a window of `size` samples, with centres that are equally far
    apart in mel, 2595 · log10(1 + f / 700), from 0 Hz to the `highest`."""
    top = 2595 * np.log10(1 + highest / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters: Floats = np.maximum(np.minimum(rising, falling), 0.0)
    return filters
