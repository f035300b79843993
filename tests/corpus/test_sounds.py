"""Recorded words as items: mel bands of the frames of each word, and readable errors."""

from __future__ import annotations

import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cloze.cli.text.corpus import app
from cloze.corpus.items.alignments import Alignments
from cloze.corpus.items.recordings import Recording, RecordingReader, read_audio
from cloze.corpus.items.sounds import Bands, mel_filters, word_energies, write_sounds
from cloze.errors import CorpusError, MissingExtra

RATE = 8000
SMALL = Bands(frames=3, bands=5, highest=4000.0)


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
    assert word_energies(Recording("a", tone(hertz), RATE, ()), 0.1, 0.4, SMALL).argmax(1).tolist() == [band] * 3


def test_each_band_is_normed_over_the_words_of_a_recording_so_its_loudness_and_its_tone_colour_do_not_count() -> None:
    noise = np.random.default_rng(0).normal(size=RATE) * (1 + np.arange(RATE))
    words = ((0.1, 0.4), (0.5, 0.9))
    features = SMALL.measure(Recording("a", noise, RATE, words))
    bands = features.reshape(-1, SMALL.bands)
    assert bands.mean(0) == pytest.approx(0, abs=1e-5) and bands.std(0) == pytest.approx(1, abs=1e-5)
    assert SMALL.measure(Recording("b", 7 * noise, RATE, words)) == pytest.approx(features, abs=1e-4)
    assert np.isfinite(SMALL.measure(Recording("c", np.zeros(RATE), RATE, words))).all()
    assert SMALL.measure(Recording("d", noise, RATE, ())).shape == (0, 15)


def test_recordings_that_lack_the_highest_frequencies_are_refused() -> None:
    with pytest.raises(CorpusError, match=r"a: has 8000 samples per second, so nothing above 4000 Hz.*\n.*--highest 4000"):
        Bands().measure(Recording("a", tone(250), RATE, ((0.0, 0.1),)))


def test_frames_lie_inside_their_word_whatever_is_next_to_it_and_words_keep_their_times(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", np.concatenate([tone(250, 0.3), tone(2900, 0.3)]))
    file = lines(tmp_path, {"audio": "a.wav", "text": "low, high", "words": [[0.0, 0.3], [0.3, 0.6]]})
    counts = write_sounds([file], tmp_path / "s.npz", SMALL)
    assert counts == (1, 2, (tmp_path / "s.said.jsonl",))
    with np.load(tmp_path / "s.npz") as found:
        assert found["keys"].tolist() == ["a.wav"] and found["offsets"].tolist() == [0, 2]
        assert found["features"].reshape(2, 3, 5)[:, :, [0, 4]].argmax(2).tolist() == [[0, 0, 0], [1, 1, 1]]
        assert found["times"] == pytest.approx(np.array([[0, 0.3], [0.3, 0.6]]))
    (line,) = counts.texts[0].read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {"audio": "a.wav", "text": "low, high", "links": [[0, 4, 0], [5, 9, 1]]}


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 2), (4, 1)])
def test_samples_are_read_at_every_usual_width(tmp_path: Path, width: int, channels: int) -> None:
    write(tmp_path / "a.wav", tone(250), channels, width)
    samples, rate = read_audio(tmp_path / "a.wav", "here")
    assert rate == RATE and samples == pytest.approx(tone(250), abs=0.01)


def test_flac_is_read_by_an_extra_and_refused_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no.flac").write_bytes(b"fLaC and nothing else")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "soundfile", None)
        said = r"here: reading no\.flac, which is no \.wav.* needs the package soundfile.*\n.*\[sounds\]"
        with pytest.raises(MissingExtra, match=said):
            read_audio(tmp_path / "no.flac", "here")
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.flac", np.stack([tone(250), np.zeros(4000)], axis=1), RATE, format="FLAC")
    samples, rate = read_audio(tmp_path / "a.flac", "here")
    assert rate == RATE and samples == pytest.approx(tone(250) / 2, abs=1e-3)
    with pytest.raises(CorpusError, match=r"here: .*no\.flac: no recording that can be read"):
        read_audio(tmp_path / "no.flac", "here")


def aligned(folder: Path, **more: Any) -> RecordingReader:
    """LibriSpeech's folders with two recordings, of which a CTM file has the first."""
    chapter = folder / "train" / "84" / "1"
    chapter.mkdir(parents=True)
    for name in ("84-1-0000", "84-1-0001"):
        write(chapter / f"{name}.wav", tone(250))
    (chapter / "84-1.trans.txt").write_text("84-1-0000 IT'S SO\n84-1-0001 NO\n", encoding="utf-8")
    (folder / "a.ctm").write_text("84-1-0000 1 0.0 0.1 it's\n84-1-0000 1 0.1 0.1 sil\n84-1-0000 1 0.2 0.2 so\n", encoding="utf-8")
    return RecordingReader(alignments=Alignments(folder / "a.ctm"), **more)


def test_folders_of_librispeech_are_read_with_the_words_of_an_aligner_and_others_may_be_left_out(tmp_path: Path) -> None:
    skipped: list[str] = []
    reader = aligned(tmp_path, skip=True, skipped=skipped)
    (spoken,) = reader.read(tmp_path / "train")
    assert spoken.recording.key == "84-1-0000" and spoken.recording.words == ((0.0, 0.1), (0.2, 0.4))
    assert spoken.lines == ({"audio": "84-1-0000", "text": "IT'S SO", "links": [[0, 4, 0], [5, 7, 1]]},)
    assert skipped == ["84-1-0001"] and reader.count(tmp_path / "train") == 2
    with pytest.raises(CorpusError, match=r"84-1\.trans\.txt:2: .*a\.ctm has no alignment of '84-1-0001'.*\n.*--skip"):
        list(RecordingReader(alignments=reader.alignments).read(tmp_path / "train"))


@pytest.mark.parametrize(
    ("ctm", "said"),
    [
        ("x 1 0 0.1 its\nx 1 0.1 0.1 no\n", r"x\.wav: word 2 of the text is 'so\.', and of the alignment 'no' at 0\.10 s"),
        ("x 1 0 0.1 its\n", r"the text has 2 words, and the alignment 1\.\n  Align the text again"),
        ("x 1 0 0.1 its\nx 1 0.2 0.6 so\n", r"a word from 0\.2 to 0\.8 s, in a recording of 0\.50 s \(x\.wav\)"),
    ],
)
def test_an_alignment_of_another_text_or_recording_is_refused_with_the_word(tmp_path: Path, ctm: str, said: str) -> None:
    write(tmp_path / "x.wav", tone(250))
    (tmp_path / "x.ctm").write_text(ctm, encoding="utf-8")
    file = lines(tmp_path, {"audio": "x.wav", "text": "It's so."})
    with pytest.raises(CorpusError, match=rf"said\.jsonl:1: .*{said}"):
        list(RecordingReader(alignments=Alignments(tmp_path / "x.ctm")).read(file))


def test_the_sentences_of_a_spoken_paragraph_follow_each_other_and_its_questions_name_it(tmp_path: Path) -> None:
    for name in ("0_1_0", "0_1_1", "0_0_0"):
        write(tmp_path / f"{name}.wav", tone(250))
    words = ("0_1_0 1 0.1 0.1 so", "0_1_1 1 0.2 0.1 it", "0_1_1 1 0.3 0.1 is", "0_0_0 1 0 0.1 no")
    (tmp_path / "a.ctm").write_text("\n".join(words), encoding="utf-8")
    answers = [{"text": "it", "answer_start": 4}]
    asked = [{"id": "q", "question": "What is?", "answers": answers}, {"id": "r", "question": "Who?", "answers": []}]
    paragraphs = [{"context": "No.", "qas": []}, {"context": "So. It is.", "qas": asked}]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    (spoken,) = RecordingReader(alignments=Alignments(tmp_path / "a.ctm")).read(tmp_path / "dev.json")
    assert spoken.recording.key == "dev/0_1" and len(spoken.recording.samples) == 2 * len(tone(250))
    assert np.array(spoken.recording.words) == pytest.approx(np.array([[0.1, 0.2], [0.7, 0.8], [0.8, 0.9]]))
    assert spoken.lines == (
        {"audio": "dev/0_1", "id": "q", "question": "What is?", "context": "So. It is.", "answers": answers},
        {"audio": "dev/0_1", "id": "r", "question": "Who?", "context": "So. It is.", "answers": []},
    )
    (tmp_path / "0_1_0.wav").unlink()
    (tmp_path / "0_1_1.wav").unlink()
    with pytest.raises(CorpusError, match=r"dev\.json:1: no recording 0_1_0\.wav below"):
        list(RecordingReader(alignments=Alignments(tmp_path / "a.ctm")).read(tmp_path / "dev.json"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"audio": "b.wav", "text": "a", "words": [[0, 1]]}, r"said\.jsonl:1: .*b\.wav: there is no such recording"),
        ({"audio": "a.wav", "text": "a", "words": [[0, 9]]}, r"a word from 0 to 9 s, in a recording of 0\.50 s"),
        ({"audio": "a.wav", "text": "a"}, r"cannot be read \(KeyError: 'words'\)\.\n  Expected"),
        ({"audio": "a.wav", "text": "a b", "words": [[0, 0.1]]}, r"a\.wav: the text has 2 words, and the alignment 1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, line: dict[str, Any], said: str) -> None:
    write(tmp_path / "a.wav", tone(250))
    with pytest.raises(CorpusError, match=said):
        write_sounds([lines(tmp_path, line)], tmp_path / "s.npz", SMALL)
    assert [path.name for path in tmp_path.iterdir()] in (["a.wav", "said.jsonl"], ["said.jsonl", "a.wav"])


def test_two_commands_make_a_store_of_recordings(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", tone(250))
    write(tmp_path / "b.wav", tone(900))
    file = lines(
        tmp_path, {"audio": "a.wav", "text": "one two", "words": [[0, 0.2], [0.2, 0.5]]},
        {"audio": "b.wav", "text": "three", "words": [[0, 0.5]]},
    )
    sizes = ["--frames", "2", "--bands", "3", "--highest", "4000"]
    made = CliRunner().invoke(app, ["sounds", str(file), "--out", str(tmp_path / "s.npz"), *sizes])
    assert made.exit_code == 0 and "3 words of 2 recordings, 2 × 3 numbers each" in made.output
    assert "--set network.items.frames=2 --set stages.sounds.objectives.reconstruct.frames=2" in made.output
    given = ["--items", f"sounds={tmp_path / 's.npz'}", "--picture", "audio", "--size", "30", "--out", str(tmp_path / "store")]
    built = CliRunner().invoke(app, ["build", str(tmp_path / "s.said.jsonl"), *given])
    assert built.exit_code == 0 and "features (float16 x 6), times (float32 x 2)" in built.output
    assert "2 records with units of the layer linked" in built.output
