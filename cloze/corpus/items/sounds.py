"""Recordings of texts with the times of their words → one item for each word: frames of the energies of mel bands, or what
another `WordMeasure` makes of them."""

from __future__ import annotations

import wave
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import require_output, whole_file
from cloze.corpus.items.item_store import FEATURES
from cloze.errors import CorpusError
from cloze.untrusted import parse_json

Floats = NDArray[np.float64]
#: The type of a sample of so many bytes, and its middle.
_SAMPLES = {1: ("u1", 128.0), 2: ("<i2", 0.0), 4: ("<i4", 0.0)}
_SMALLEST = 1e-10  # energy, before its logarithm


class Recording(NamedTuple):
    """A recording: its key, its samples, how many there are per second, and start and stop of each word in seconds."""

    key: str
    samples: Floats
    rate: int
    words: tuple[tuple[float, float], ...]


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
    """The logarithms of the energies of mel bands; of each word the mean is 0 and the deviation 1.

    `frames` are evenly spaced in the word, of `window` seconds each, with `bands` up to `highest` Hz.
    """

    frames: int = 30
    bands: int = 40
    window: float = 0.025
    highest: float = 4000.0

    @property
    def name(self) -> str:
        return f"mel frames={self.frames} bands={self.bands} window={self.window:g} highest={self.highest:g}"

    @property
    def width(self) -> int:
        return self.bands

    def measure(self, spoken: Recording) -> NDArray[np.floating[Any]]:
        vectors = [measured(spoken, start, stop, self) for start, stop in spoken.words]
        return np.array(vectors, np.float32).reshape(len(vectors), self.frames * self.bands)


class RecordingCounts(NamedTuple):
    """How many recordings and words were written."""

    recordings: int
    words: int


def write_sounds(
    path: Path, out: Path, measure: WordMeasure, *, audio: str = "audio", words: str = "words", overwrite: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> RecordingCounts:
    """Write an item for each word of the recordings of a JSON-lines file to a new `.npz`, with the name of the `measure`.

    Each line has the key `audio`, a .wav next to the file or below it, and `words`, a list of [start, stop] in seconds. `report`
    gets the number of recordings just done.
    """
    require_output(out, overwrite=overwrite)
    width = measure.frames * measure.width
    keys: list[str] = []
    features: list[NDArray[np.float16]] = []
    for spoken in _recordings(path, audio, words):
        keys.append(spoken.key)
        vectors = measure.measure(spoken)
        if np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
            raise CorpusError(f"{path}: {spoken.key}: a feature of {np.abs(vectors).max():g}, which float16 cannot hold.")
        features.append(vectors.astype(np.float16))
        report(1)
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CorpusError(f"{path}: {twice} is there twice; expected each recording once.")
    offsets = np.cumsum([0, *map(len, features)], dtype=np.int64)
    every = np.concatenate([np.zeros((0, width), np.float16), *features])
    arrays: dict[str, Any] = {"extractor": np.array(measure.name), FEATURES: every}
    with whole_file(out) as stage, stage.open("wb") as stream:
        np.savez(stream, keys=np.array(keys, np.str_), offsets=offsets, **arrays)
    return RecordingCounts(len(keys), len(every))


def measured(spoken: Recording, start: float, stop: float, bands: Bands) -> Floats:
    """The energies of a word as frames × bands numbers, with mean 0 and deviation 1."""
    size = max(2, round(bands.window * spoken.rate))
    low, high = start * spoken.rate, max(stop * spoken.rate - size, start * spoken.rate)
    begins = np.rint(np.linspace(low, high, bands.frames)).astype(np.int64)
    index = np.clip(begins[:, None] + np.arange(size), 0, len(spoken.samples) - 1)
    power = np.square(np.abs(np.fft.rfft(spoken.samples[index] * np.hanning(size), axis=1)))
    energies = np.log(power @ mel_filters(bands.bands, size, spoken.rate, bands.highest).T + _SMALLEST)
    features: Floats = ((energies - energies.mean()) / max(float(energies.std()), 1e-6)).ravel()
    return features


def mel_filters(bands: int, size: int, rate: int, highest: float) -> Floats:
    """(bands, size // 2 + 1) triangles over the frequencies of a window of `size` samples, with centres that are equally far
    apart in mel, 2595 · log10(1 + f / 700), from 0 Hz to the `highest`; no band is above half of the rate."""
    top = 2595 * np.log10(1 + min(highest, rate / 2) / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters: Floats = np.maximum(np.minimum(rising, falling), 0.0)
    return filters


def _recordings(path: Path, audio: str, words: str) -> Iterator[Recording]:
    if not path.is_file():
        raise CorpusError(f"{path}: no such file; expected JSON lines with the keys {audio!r} and {words!r}.")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = parse_json(line)
            key, times = str(record[audio]), tuple((float(start), float(stop)) for start, stop in record[words])
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{where}: cannot be read ({type(error).__name__}: {error}).\n"
                f'  Expected {{"{audio}": "a.wav", "text": "two words", "{words}": [[0.1, 0.4], [0.45, 0.9]]}}.'
            ) from None
        samples, rate = read_wav(path.parent / key, where)
        wrong = [pair for pair in times if not 0 <= pair[0] < pair[1] <= len(samples) / rate + 0.05]
        if wrong:
            raise CorpusError(
                f"{where}: a word from {wrong[0][0]:g} to {wrong[0][1]:g} s, in a recording of {len(samples) / rate:.2f} s.\n"
                "  Expected 0 <= start < stop <= its length."
            )
        yield Recording(key, samples, rate, times)


def read_wav(path: Path, where: str) -> tuple[Floats, int]:
    """The samples of a .wav of whole numbers, -1 to 1, the mean of its channels, and how many there are per second."""
    try:
        with wave.open(str(path), "rb") as stream:
            width, channels, rate = stream.getsampwidth(), stream.getnchannels(), stream.getframerate()
            data = stream.readframes(stream.getnframes())
    except FileNotFoundError:
        raise CorpusError(f"{where}: {path}: there is no such recording.") from None
    except (wave.Error, EOFError, OSError) as error:
        raise CorpusError(f"{where}: {path}: no .wav that can be read ({error}).") from None
    if width not in _SAMPLES:
        raise CorpusError(f"{where}: {path}: {8 * width} bits per sample; expected 8, 16 or 32.")
    kind, middle = _SAMPLES[width]
    values = (np.frombuffer(data, kind).astype(np.float64) - middle) / 2.0 ** (8 * width - 1)
    samples: Floats = values.reshape(-1, channels).mean(1)
    if not len(samples):
        raise CorpusError(f"{where}: {path}: has no samples.")
    return samples, rate
