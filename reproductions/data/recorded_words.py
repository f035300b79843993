"""Recorded prompts with the times of their words, for SpeechBERT: asterisk's English sounds, aligned by pocketsphinx.

    python reproductions/data/recorded_words.py OUT

OUT gets said.jsonl (the recording, its text, start and stop of each word in seconds) and the recordings as .wav; nothing of it
belongs in the repository. The recordings are those of Debian's packages asterisk-core-sounds-en-wav and asterisk-core-sounds-en
(Allison Smith, CC BY-SA 3.0): one speaker, 8 kHz. The script downloads them with `apt-get download`. It needs `dpkg` and, from
PyPI, `pocketsphinx`, which brings its acoustic model. Recordings with a word that its dictionary lacks are left out.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from debian import unpacked

PACKAGES = ("asterisk-core-sounds-en-wav", "asterisk-core-sounds-en")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 16_000  # of the acoustic model
PER_SECOND = 100  # frames of the aligner


def main(out: Path) -> None:
    """Download, align and write."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = unpacked(PACKAGES, Path(folder))
        lines = list(aligned(files, out))
    (out / "said.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    words = [word for line in lines for word in line["text"].split()]
    print(f"{out / 'said.jsonl'}: {len(lines)} recordings, {len(words)} words, {len(set(words))} of them different")


def aligned(files: Path, out: Path) -> Iterator[dict[str, Any]]:
    """A line for each recording whose words are found."""
    from pocketsphinx import Decoder

    texts = gzip.decompress(next(files.rglob("core-sounds-en.txt.gz")).read_bytes()).decode()
    said = dict(re.findall(r"^([\w/-]+): (.*)$", texts, re.MULTILINE))
    decoder = Decoder(samprate=RATE, lm=None, loglevel="FATAL")
    for path in sorted(files.rglob("*.wav")):
        speaker = next(parent for parent in path.parents if parent.name.startswith("en_"))
        key = path.relative_to(speaker).with_suffix("").as_posix()
        words = spelled(said.get(key, "["))
        if not words or any(decoder.lookup_word(word) is None for word in words):
            continue
        times = times_of(decoder, words, samples_of(path))
        if times is None:
            continue
        name = f"{key.replace('/', '-')}.wav"
        shutil.copyfile(path, out / name)
        yield {"audio": name, "text": " ".join(words), "words": times}


def spelled(text: str) -> list[str]:
    """The words of a prompt; none if it is no speech, such as [tone]."""
    if "[" in text:
        return []
    spoken = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit.group())]} ", text.lower())
    return re.findall(r"[a-z]+(?:'[a-z]+)?", spoken) if "'" not in spoken else []


def samples_of(path: Path) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The samples of a recording at the rate of the acoustic model."""
    with wave.open(str(path), "rb") as stream:
        rate, samples = stream.getframerate(), np.frombuffer(stream.readframes(stream.getnframes()), np.int16)
    places = np.arange(len(samples) * RATE // rate) * rate / RATE
    return np.interp(places, np.arange(len(samples)), samples).astype(np.int16)


def times_of(decoder: Any, words: list[str], samples: np.ndarray[Any, np.dtype[np.int16]]) -> list[list[float]] | None:
    """Start and stop of each word in seconds; None if the aligner does not find them all."""
    decoder.set_align_text(" ".join(words))
    decoder.start_utt()
    decoder.process_raw(samples.tobytes(), full_utt=True)
    decoder.end_utt()
    if decoder.hyp() is None:
        return None
    found = [(re.sub(r"\(\d+\)$", "", one.word), one.start_frame, one.end_frame + 1) for one in decoder.seg()]
    found = [one for one in found if not one[0].startswith(("<", "["))]
    if [word for word, _, _ in found] != words:
        return None
    length = len(samples) / RATE
    return [[start / PER_SECOND, min(stop / PER_SECOND, length)] for _, start, stop in found]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
