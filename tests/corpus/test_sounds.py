"""Recorded words as items: mel bands of the frames of each word, and readable errors."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cloze.cli.text.corpus import app
from cloze.corpus.items.sounds import Bands, Recording, measured, mel_filters, read_wav, write_sounds
from cloze.errors import CorpusError

RATE = 8000
SMALL = Bands(frames=3, bands=5)


def tone(hertz: float, seconds: float = 0.5) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)


def write(path: Path, samples: np.ndarray, channels: int = 1, width: int = 2) -> None:
    kind, middle = {1: ("u1", 128), 2: ("<i2", 0), 4: ("<i4", 0)}[width]
    whole = np.rint(samples * (2.0 ** (8 * width - 1) - 1) + middle).astype(kind)
    with wave.open(str(path), "wb") as stream:
        stream.setnchannels(channels)
        stream.setsampwidth(width)
        stream.setframerate(RATE)
        stream.writeframes(np.repeat(whole, channels).tobytes())


def lines(folder: Path, *given: dict[str, Any]) -> Path:
    (folder / "said.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in given), encoding="utf-8")
    return folder / "said.jsonl"


def test_bands_are_triangles_with_centres_equally_far_apart_in_mel() -> None:
    found = mel_filters(4, 4000, RATE, 4000.0)
    assert found.shape == (4, 2001) and (found >= 0).all() and found[:, -1].max() < 1e-9
    centres = np.fft.rfftfreq(4000, 1 / RATE)[found.argmax(1)]
    mel = 2595 * np.log10(1 + centres / 700)
    top = 2595 * np.log10(1 + 4000 / 700)
    assert mel == pytest.approx(top * np.arange(1, 5) / 5, abs=2)
    inner = slice(int(centres[0] // 2) + 2, int(centres[-1] // 2))
    assert found[:, inner].sum(0) == pytest.approx(1.0, abs=1e-9)  # neighbours share each frequency


@pytest.mark.parametrize(("hertz", "band"), [(250, 0), (1100, 2), (2900, 4)])
def test_a_tone_is_loudest_in_its_band(hertz: float, band: int) -> None:
    found = measured(Recording("a", tone(hertz), RATE, ()), 0.1, 0.4, SMALL).reshape(3, 5)
    assert found.argmax(1).tolist() == [band] * 3
    assert found.mean() == pytest.approx(0) and found.std() == pytest.approx(1)


def test_frames_lie_inside_their_word_whatever_is_next_to_it(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", np.concatenate([tone(250, 0.3), tone(2900, 0.3)]))
    file = lines(tmp_path, {"audio": "a.wav", "words": [[0.0, 0.3], [0.3, 0.6]]})
    assert write_sounds(file, tmp_path / "s.npz", SMALL) == (1, 2)
    with np.load(tmp_path / "s.npz") as found:
        assert found["keys"].tolist() == ["a.wav"] and found["offsets"].tolist() == [0, 2]
        assert found["features"].reshape(2, 3, 5).argmax(2).tolist() == [[0, 0, 0], [4, 4, 4]]


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 2), (4, 1)])
def test_samples_are_read_at_every_usual_width(tmp_path: Path, width: int, channels: int) -> None:
    write(tmp_path / "a.wav", tone(250), channels, width)
    samples, rate = read_wav(tmp_path / "a.wav", "here")
    assert rate == RATE and samples == pytest.approx(tone(250), abs=0.01)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"audio": "b.wav", "words": [[0, 1]]}, r"said\.jsonl:1: .*b\.wav: there is no such recording"),
        ({"audio": "a.wav", "words": [[0, 9]]}, r"a word from 0 to 9 s, in a recording of 0\.50 s"),
        ({"audio": "a.wav"}, r"cannot be read \(KeyError: 'words'\)\.\n  Expected"),
        ({"audio": "said.jsonl", "words": []}, r"said\.jsonl: no \.wav that can be read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, line: dict[str, Any], said: str) -> None:
    write(tmp_path / "a.wav", tone(250))
    with pytest.raises(CorpusError, match=said):
        write_sounds(lines(tmp_path, line), tmp_path / "s.npz", SMALL)
    assert not (tmp_path / "s.npz").exists()


def test_one_command_writes_items_that_a_store_takes(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", tone(250))
    write(tmp_path / "b.wav", tone(900))
    file = lines(
        tmp_path, {"audio": "a.wav", "text": "one two", "words": [[0, 0.2], [0.2, 0.5]]},
        {"audio": "b.wav", "text": "three", "words": [[0, 0.5]]},
    )
    made = CliRunner().invoke(app, ["sounds", str(file), "--out", str(tmp_path / "s.npz"), "--frames", "2", "--bands", "3"])
    assert made.exit_code == 0 and "3 words of 2 recordings, 2 × 3 numbers each" in made.output
    given = ["--items", f"sounds={tmp_path / 's.npz'}", "--picture", "audio", "--size", "30", "--out", str(tmp_path / "store")]
    built = CliRunner().invoke(app, ["build", str(file), *given])
    assert built.exit_code == 0 and "3 items 'sounds' of 2 pictures: features (float16 x 6)" in built.output
