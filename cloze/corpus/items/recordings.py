"""Recordings of texts with the times of their words: from JSON lines, folders as LibriSpeech has them, and questions about
spoken paragraphs."""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.alignments import AlignedWord, Alignments, same_word
from cloze.corpus.readers.questions import QuestionRecord, read_questions
from cloze.errors import CorpusError, MissingExtra
from cloze.untrusted import parse_json

Floats = NDArray[np.float64]
#: The type of a sample of so many bytes, and its middle.
_SAMPLES = {1: ("u1", 128.0), 2: ("<i2", 0.0), 4: ("<i4", 0.0)}
_WORD = re.compile(r"\S*\w\S*")
_PARAGRAPH = re.compile(r"data\[(\d+)\]\.paragraphs\[(\d+)\]")
_AUDIO = (".flac", ".wav", ".ogg", ".mp3")
_SLACK = 0.05  # seconds by which a word may end behind its recording: rounding of aligners
_SKIP = "Align the text again, correct it, or leave out what has no usable alignment: --skip"


class Recording(NamedTuple):
    """A recording: its key, its samples, how many there are per second, and start and stop of each word in seconds."""

    key: str
    samples: Floats
    rate: int
    words: tuple[tuple[float, float], ...]


class RecordedText(NamedTuple):
    """A recording, and the lines of JSON about it: its text or the questions about it, which name it as `audio`."""

    recording: Recording
    lines: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class RecordingReader:
    """Reads recordings: the keys of JSON lines, and the `alignments` of recordings whose source has no times.

    With `skip`, a recording whose words have no usable alignment is left out, and its name noted in `skipped`; else it is an
    error. Raises `CorpusError` for what cannot be read.
    """

    audio: str = "audio"
    words: str = "words"
    alignments: Alignments | None = None
    skip: bool = False
    skipped: list[str] | None = None

    def read(self, source: Path) -> Iterator[RecordedText]:
        """The recordings of a source.

        A folder as LibriSpeech has it: below it `*.trans.txt`, with `NAME TEXT` in each line, next to `NAME.flac` or `NAME.wav`.
        `.json`, questions in SQuAD's form as Spoken-SQuAD has them: the recordings of sentence S of paragraph P of article A,
        `A_P_S.wav` anywhere below the folder of the file, are read one after another as `STEM/A_P`. Other files: JSON lines with
        the keys `audio` and `text`, and with `words`, start and stop of each, where there are no alignments.
        """
        if source.is_dir():
            return self._read_transcripts(source)
        if not source.is_file():
            raise CorpusError(
                f"{source}: no such file; expected JSON lines with the keys {self.audio!r}, 'text' and {self.words!r}, questions "
                "(.json), or a folder as LibriSpeech has it."
            )
        return self._read_questions(source) if source.suffix == ".json" else self._read_json_lines(source)

    def count(self, source: Path) -> int:
        """About how many recordings a source has, for a display of progress."""
        if source.is_dir():
            return sum(file.read_bytes().count(b"\n") for file in source.rglob("*.trans.txt"))
        return source.read_bytes().count(b'"qas"' if source.suffix == ".json" else b"\n") if source.is_file() else 0

    def _read_json_lines(self, path: Path) -> Iterator[RecordedText]:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                record = parse_json(line)
                key, text = str(record[self.audio]), str(record["text"])
                times = None
                if self.alignments is None:
                    times = [AlignedWord("<unk>", float(start), float(stop)) for start, stop in record[self.words]]
            except (ValueError, KeyError, TypeError) as error:
                raise CorpusError(
                    f"{where}: cannot be read ({type(error).__name__}: {error}).\n"
                    f'  Expected {{"{self.audio}": "a.wav", "text": "two words", "{self.words}": [[0.1, 0.4], [0.45, 0.9]]}}; '
                    "or times from an aligner: --alignments FILE"
                ) from None
            yield from self._join(key, [path.parent / key], [times], text, where)

    def _read_transcripts(self, folder: Path) -> Iterator[RecordedText]:
        transcripts = sorted(folder.rglob("*.trans.txt"))
        if not transcripts:
            raise CorpusError(
                f"{folder}: no *.trans.txt below it; expected LibriSpeech's: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt"
            )
        for transcript in transcripts:
            for number, line in enumerate(transcript.read_text(encoding="utf-8").split("\n"), 1):
                name, _, text = line.strip().partition(" ")
                if name:
                    files = [transcript.parent / f"{name}{suffix}" for suffix in _AUDIO]
                    audio = next((file for file in files if file.is_file()), files[0])
                    yield from self._join(name, [audio], [None], text, f"{transcript}:{number}")

    def _read_questions(self, path: Path) -> Iterator[RecordedText]:
        sentences: dict[str, list[tuple[int, Path]]] = {}
        for file in sorted(path.parent.rglob("*_*_*.*")):
            paragraph, _, number = file.stem.rpartition("_")
            if file.suffix.lower() in _AUDIO and number.isdigit():
                sentences.setdefault(paragraph, []).append((int(number), file))
        paragraphs: dict[str, list[QuestionRecord]] = {}
        for question in read_questions(path).each:
            match = _PARAGRAPH.match(question.place)
            if match is None:
                raise CorpusError(f"{path}:{question.line}: expected questions about paragraphs, in SQuAD's form.")
            paragraphs.setdefault("_".join(match.groups()), []).append(question)
        for name, questions in paragraphs.items():
            where = f"{path}:{questions[0].line}"
            if name not in sentences:
                raise CorpusError(f"{where}: no recording {name}_0.wav below {path.parent}; expected one of every sentence.")
            key, files = f"{path.stem}/{name}", [file for _, file in sorted(sentences[name])]
            for spoken in self._join(key, files, [None] * len(files), questions[0].context, where):
                yield spoken._replace(lines=tuple(_line(question, self.audio, key) for question in questions))

    def _join(
        self, key: str, files: Sequence[Path], times: Sequence[Sequence[AlignedWord] | None], text: str, where: str
    ) -> Iterator[RecordedText]:
        """The recording in files that follow each other, with the links of its text; none if it is skipped."""
        pieces: list[Floats] = []
        words: list[AlignedWord] = []
        rates: set[int] = set()
        begin = 0.0
        for file, file_times in zip(files, times, strict=True):
            samples, rate = read_audio(file, where)
            file_words = self._align(file, where) if file_times is None else file_times
            if file_words is None:
                return
            length = len(samples) / rate
            for word, start, stop in file_words:
                if not 0 <= start < stop <= length + _SLACK:
                    raise CorpusError(
                        f"{where}: a word from {start:g} to {stop:g} s, in a recording of {length:.2f} s ({file.name}).\n"
                        "  Expected 0 <= start < stop <= its length."
                    )
                words.append(AlignedWord(word, begin + start, begin + stop))
            pieces.append(samples)
            rates.add(rate)
            begin += length
        if len(rates) > 1:
            raise CorpusError(f"{where}: recordings of one paragraph have {sorted(rates)} samples per second; expected one rate.")
        spans = spoken_words(text)
        problem = _mismatch(text, spans, words)
        if problem is not None and not self._skips(key):
            raise CorpusError(f"{where}: {key}: {problem}.\n  {_SKIP}")
        if problem is None:
            links = [[start, stop, number] for number, (start, stop) in enumerate(spans)]
            recording = Recording(key, np.concatenate(pieces), rates.pop(), tuple((word.start, word.stop) for word in words))
            yield RecordedText(recording, ({self.audio: key, "text": text, "links": links},))

    def _align(self, file: Path, where: str) -> Sequence[AlignedWord] | None:
        if self.alignments is None:
            raise CorpusError(f"{where}: has no times of words. Give those of an aligner, as CTM or TextGrids: --alignments PATH")
        words = self.alignments.words(file.stem)
        if words is None and not self._skips(file.stem):
            raise CorpusError(
                f"{where}: {self.alignments.path} has no alignment of {file.stem!r}. {self.alignments.propose(file.stem)}\n"
                f"  {_SKIP}"
            )
        return words

    def _skips(self, name: str) -> bool:
        if self.skip and self.skipped is not None:
            self.skipped.append(name)
        return self.skip


def _line(question: QuestionRecord, audio: str, key: str) -> dict[str, Any]:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in question.answers or ()]
    return {audio: key, "id": question.name, "question": question.question, "context": question.context, "answers": answers}


def spoken_words(text: str) -> list[tuple[int, int]]:
    """First character and the one after the last of each word of a text that is said: what stands between white space and has a
    letter or a digit.

    >>> spoken_words("Well - don't!")
    [(0, 4), (7, 13)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def _mismatch(text: str, spans: Sequence[tuple[int, int]], words: Sequence[AlignedWord]) -> str | None:
    """Where the words of a text and those of its alignment differ first; None if they agree."""
    for number, ((start, stop), word) in enumerate(zip(spans, words, strict=False), 1):
        if not same_word(text[start:stop], word.word):
            return f"word {number} of the text is {text[start:stop]!r}, and of the alignment {word.word!r} at {word.start:.2f} s"
    if len(spans) != len(words):
        return f"the text has {len(spans)} words, and the alignment {len(words)}"
    return None


def read_audio(path: Path, where: str) -> tuple[Floats, int]:
    """The samples of a recording, -1 to 1, the mean of its channels, and how many there are per second.

    A `.wav` of whole numbers of 8, 16 or 32 bits is read as it is, and all else, such as FLAC, by `soundfile` (extra `sounds`).
    """
    if not path.is_file():
        raise CorpusError(f"{where}: {path}: there is no such recording.")
    samples, rate = _read_wav(path) or _read_with_soundfile(path, where)
    if not len(samples):
        raise CorpusError(f"{where}: {path}: has no samples.")
    return samples.mean(1), rate


def _read_wav(path: Path) -> tuple[Floats, int] | None:
    """(samples, channels) and the rate; None for another kind of file."""
    try:
        with wave.open(str(path), "rb") as stream:
            width, channels, rate = stream.getsampwidth(), stream.getnchannels(), stream.getframerate()
            data = stream.readframes(stream.getnframes())
    except (wave.Error, EOFError):
        return None
    if width not in _SAMPLES:
        return None
    kind, middle = _SAMPLES[width]
    values = (np.frombuffer(data, kind).astype(np.float64) - middle) / 2.0 ** (8 * width - 1)
    return values.reshape(-1, channels), rate


def _read_with_soundfile(path: Path, where: str) -> tuple[Floats, int]:
    try:
        import soundfile
    except ImportError:
        purpose = f"{where}: reading {path.name}, which is no .wav of 8, 16 or 32 bits,"
        raise MissingExtra("soundfile", "sounds", purpose) from None
    try:
        samples, rate = soundfile.read(str(path), dtype="float64", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise CorpusError(f"{where}: {path}: no recording that can be read ({error}).") from None
    return samples, int(rate)


def as_line(record: Mapping[str, Any]) -> str:
    """A line of JSON."""
    return f"{json.dumps(record, ensure_ascii=False)}\n"
