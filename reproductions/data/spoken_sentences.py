"""Sentences said by many voices with the times of their words, for SpeechBERT: eSpeak NG reads a text.

    python reproductions/data/spoken_sentences.py TEXT OUT [--voices N] [--held-out N]

OUT gets said.jsonl (the recording, its text, its voice, start and stop of each word in seconds) and the recordings as .wav;
nothing of it belongs in the repository. Every voice says every line of TEXT once, at a speed and a pitch drawn for the
recording. A voice is an accent with one of eSpeak's variants; `held-out` in a line says whether its voice is one of the last N,
which share no variant with the others. The times are those at which the synthesizer begins each word. Lines in which it runs
words together, such as "of the" without a border, are left out. It needs, from PyPI, `espeakng-loader`, which brings eSpeak NG.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ACCENTS = ("gmw/en-US", "gmw/en", "gmw/en-GB-scotland", "gmw/en-GB-x-rp")
VARIANTS = (
    "m1", "f1", "m2", "f2", "m3", "f3", "m4", "f4", "m5", "f5", "m6", "linda", "m7", "steph", "m8", "belinda", "adam", "shelby",
    "edward", "anika", "max", "aunty", "paul", "steph2",
)  # fmt: skip
_SYNCHRONOUS, _UTF8, _CHARACTERS = 2, 1, 1
_SPEED, _PITCH, _RANGE = 1, 3, 4  # parameters of eSpeak
_WORD, _END = 1, 5  # events


class Voice(NamedTuple):
    """An accent and a variant."""

    accent: str
    variant: str

    def __str__(self) -> str:
        return f"{self.accent}+{self.variant}"


def voices(count: int) -> list[Voice]:
    """So many voices, each with a variant of its own."""
    return [Voice(ACCENTS[n % len(ACCENTS)], variant) for n, variant in enumerate(VARIANTS[:count])]


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("unique", ctypes.c_uint), ("text_position", ctypes.c_int), ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int), ("sample", ctypes.c_int), ("user_data", ctypes.c_void_p), ("id", _Id),
    )  # fmt: skip


class Synthesizer:
    """eSpeak NG, as the library that `espeakng-loader` brings."""

    def __init__(self) -> None:
        import espeakng_loader

        self.library = ctypes.CDLL(espeakng_loader.get_library_path())
        self.rate = self.library.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        self.samples: list[bytes] = []
        self.events: list[tuple[int, int, int]] = []  # type, character, sample
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))
        self.callback = kind(self._take)  # kept alive
        self.library.espeak_SetSynthCallback(self.callback)

    def _take(self, samples: Any, count: int, events: Any) -> int:
        if samples and count:
            self.samples.append(ctypes.string_at(samples, 2 * count))
        number = 0
        while events[number].type:
            event = events[number]
            self.events.append((event.type, event.text_position - 1, event.sample))
            number += 1
        return 0

    def say(self, text: str, voice: Voice, *, speed: int, pitch: int) -> tuple[np.ndarray[Any, Any], list[list[float]] | None]:
        """The samples of a text, and start and stop of each of its words in seconds; None if some have no border."""
        self.samples, self.events = [], []
        if self.library.espeak_SetVoiceByName(str(voice).encode()):
            raise SystemExit(f"{voice}: eSpeak has no such voice.")
        for parameter, value in ((_SPEED, speed), (_PITCH, pitch), (_RANGE, 50)):
            self.library.espeak_SetParameter(parameter, value, 0)
        data = text.encode()
        self.library.espeak_Synth(data, len(data) + 1, 0, _CHARACTERS, 0, _UTF8, None, None)
        self.library.espeak_Synchronize()
        samples = np.frombuffer(b"".join(self.samples), np.int16)
        begins = [(character, sample) for kind, character, sample in self.events if kind == _WORD]
        words = [match.start() for match in re.finditer(r"\S+", text)]
        ends = [sample for kind, _, sample in self.events if kind == _END]
        starts = [sample for _, sample in begins]
        if [character for character, _ in begins] != words or not ends or sorted(set(starts)) != starts:
            return samples, None
        loud = np.flatnonzero(np.abs(samples) > 300)
        stops = [*starts[1:], min(ends[-1], int(loud[-1]) + 1)]
        return samples, [[start / self.rate, stop / self.rate] for start, stop in zip(starts, stops, strict=True)]


def sentences(path: Path) -> list[str]:
    """The lines of a text in lower case without punctuation, those of three words and more."""
    lines = [" ".join(re.findall(r"[a-z]+(?:'[a-z]+)?", line.lower())) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in dict.fromkeys(lines) if len(line.split()) >= 3]


def recorded(texts: list[str], out: Path, count: int, held_out: int) -> Iterator[dict[str, Any]]:
    """A line for each recording."""
    synthesizer, draw = Synthesizer(), np.random.default_rng(0)
    for number, voice in enumerate(voices(count)):
        for line, text in enumerate(texts):
            samples, times = synthesizer.say(text, voice, speed=int(draw.integers(140, 200)), pitch=int(draw.integers(30, 70)))
            if times is None:
                continue
            name = f"{number:02d}-{line:04d}.wav"
            with wave.open(str(out / name), "wb") as stream:
                stream.setnchannels(1)
                stream.setsampwidth(2)
                stream.setframerate(synthesizer.rate)
                stream.writeframes(samples.tobytes())
            yield {
                "audio": name, "text": text, "words": times, "voice": str(voice), "line": line,
                "held_out": number >= count - held_out,
            }  # fmt: skip


def main() -> None:
    """Say every line with every voice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--voices", type=int, default=len(VARIANTS))
    parser.add_argument("--held-out", type=int, default=6)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = list(recorded(sentences(options.text), options.out, options.voices, options.held_out))
    (options.out / "said.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    words = [word for line in lines for word in line["text"].split()]
    print(f"{options.out / 'said.jsonl'}: {len(lines)} recordings, {len(words)} words, {len(set(words))} of them different")


if __name__ == "__main__":
    main()
