"""Classifiers of fastText in files: read from bytes that the test lays out itself, and beside fastText's own package."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.hashed import fasttext_hash
from cloze.interop.vectors.fasttext import read_fasttext
from cloze.interop.vectors.quantised import Quantiser
from cloze.tasks.given import given_examples
from cloze.tasks.tuned_folder import load_tuned

WORDS, LABELS = ["</s>", "good", "bad", "film"], ["__label__yes", "__label__no", "__label__so"]
BUCKETS, WIDTH = 11, 5
PAIRS = (("good", "yes"), ("bad", "no"))
ROWS = np.random.default_rng(3).normal(0, 1, (len(WORDS) + BUCKETS, WIDTH)).astype("<f4")
ANSWERS = np.random.default_rng(4).normal(0, 1, (len(LABELS), WIDTH)).astype("<f4")


def file_of(loss: int = 3, pruned: dict[int, int] | None = None, shortest: int = 0, longest: int = 0) -> bytes:
    """A supervised model of bigrams, laid out as fasttext.cc, args.cc and dictionary.cc save it."""
    made = struct.pack("<2i", 793712314, 12)
    made += struct.pack("<12id", WIDTH, 5, 5, 1, 5, 2, loss, 3, BUCKETS, shortest, longest, 100, 1e-4)
    made += struct.pack("<3i2q", len(WORDS) + len(LABELS), len(WORDS), len(LABELS), 99, -1 if pruned is None else len(pruned))
    for number, name in enumerate([*WORDS, *LABELS]):
        made += name.encode() + b"\0" + struct.pack("<qb", 9 - number, number >= len(WORDS))
    for pair in (pruned or {}).items():
        made += struct.pack("<2i", *pair)
    rows = ROWS[: len(WORDS) + (BUCKETS if pruned is None else len(pruned))]
    if pruned is None:
        made += struct.pack("<b2q", 0, *rows.shape) + rows.tobytes()
    else:  # pieces of two numbers, each with centroids that are the rows themselves
        codes = np.repeat(np.arange(len(rows), dtype=np.uint8)[:, None], 3, 1)
        made += struct.pack("<2b2qi", 1, 0, *rows.shape, codes.size) + codes.tobytes() + struct.pack("<4i", WIDTH, 3, 2, 1)
        for piece in (rows[:, :2], rows[:, 2:4], rows[:, 4:]):
            made += np.concatenate((piece, np.zeros((256 - len(rows), piece.shape[1])))).astype("<f4").tobytes()
    return made + struct.pack("<b2q", 0, *ANSWERS.shape) + ANSWERS.tobytes()


def row_of_pair(one: str, two: str) -> int:
    first, second = (fasttext_hash(word) - ((fasttext_hash(word) >> 31) << 32) for word in (one, two))
    return (first * 116049371 + second) % 2**64 % BUCKETS


def run(*words: object) -> None:
    assert not main([str(word) for word in words])


def imported(content: bytes, folder: Path) -> Path:
    (folder / "model.bin").write_bytes(content)
    run("import", folder / "model.bin", "--out", folder / "run")
    return folder / "run"


def predicted(folder: Path, texts: Sequence[str]) -> list[dict[str, float]]:
    learner: Any = load_tuned(load_checkpoint(folder))[0]
    with given_examples(learner.task, list(texts), labelled=False) as examples:
        return [one.probabilities for one in learner.predict(examples)]


def expected(members: Sequence[int], terms: int) -> np.ndarray:
    scores = ANSWERS.astype(np.float64) @ (ROWS[list(members)].astype(np.float64).sum(0) / terms)
    return np.exp(scores) / np.exp(scores).sum()


def test_a_softmax_model_predicts_from_words_pairs_and_the_end_of_the_text(tmp_path: Path) -> None:
    found = predicted(imported(file_of(), tmp_path), ["good film", "good zzz"])
    pairs = [4 + row_of_pair("good", "film"), 4 + row_of_pair("film", "</s>")]
    np.testing.assert_allclose(list(found[0].values()), expected([1, 3, 0, *pairs], 5), atol=1e-5)
    unseen = [4 + row_of_pair("good", "zzz"), 4 + row_of_pair("zzz", "</s>")]
    np.testing.assert_allclose(list(found[1].values()), expected([1, 0, *unseen], 4), atol=1e-5)
    assert list(found[0]) == ["yes", "no", "so"]


def test_a_pruned_quantised_model_skips_what_it_does_not_keep(tmp_path: Path) -> None:
    kept = row_of_pair("good", "film")
    assert kept != row_of_pair("film", "</s>")
    other = next(bucket for bucket in range(BUCKETS) if bucket not in (kept, row_of_pair("film", "</s>")))
    folder = imported(file_of(pruned={kept: 1, other: 0}), tmp_path)
    np.testing.assert_allclose(list(predicted(folder, ["good film"])[0].values()), expected([1, 3, 0, 4 + 1], 4), atol=1e-5)
    assert load_checkpoint(folder).tables["ngrams"].size == 2
    assert main(["export", str(folder), str(tmp_path / "refused.bin"), "--to", "fasttext"]) == 2


def test_one_versus_all_becomes_a_task_with_several_labels(tmp_path: Path) -> None:
    folder = imported(file_of(loss=4), tmp_path)
    assert json.loads((folder / "cloze" / "task.json").read_text())["task"] == "multi_label"
    members = [2, 0, 4 + row_of_pair("bad", "</s>")]
    scores = ANSWERS.astype(np.float64) @ ROWS[members].astype(np.float64).mean(0)
    np.testing.assert_allclose(list(predicted(folder, ["bad"])[0].values()), 1 / (1 + np.exp(-scores)), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("export", "run", "a.ftz", "--to", "fasttext-quantised", "--piece", "0"), "--piece 0: expected a size of 1 or more"),
        (("export", "run", "a.ftz", "--to", "fasttext-quantised"), "expected 256 or more. Raise --cutoff"),
        (("import", "model.bin", "--out", "b", "--split", "whitespace"), "do not apply to model.bin"),
        (("import", "model.bin", "--out", "b", "--words", "model.bin"), "do not apply to model.bin"),
        (("import", "model.bin", "--out", "b", "--repeated", "first"), "do not apply to model.bin"),
        (("import", "model.bin", "--out", "b", "--language", "fr"), "do not apply to model.bin"),
    ],
)
def test_options_that_a_classifier_cannot_obey_are_refused(
    options: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(file_of(), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(list(options)) == 2 and told in capsys.readouterr().err
    assert not (tmp_path / "a.ftz").exists() and not (tmp_path / "b").exists()


@pytest.mark.parametrize("loss", [1, 3, 4])
def test_a_file_that_was_read_is_written_with_the_same_matrices(loss: int, tmp_path: Path) -> None:
    folder = imported(file_of(loss), tmp_path)
    run("export", folder, tmp_path / "again.bin", "--to", "fasttext")
    made = read_fasttext((tmp_path / "again.bin").read_bytes(), "again.bin")
    assert list(made.words) == WORDS and list(made.labels) == LABELS and made.settings.loss == loss
    np.testing.assert_array_equal(made.table, ROWS)
    used = len(LABELS) - 1 if loss == 1 else len(LABELS)
    np.testing.assert_array_equal(made.answers[:used], ANSWERS[:used])


def test_quantising_gives_each_piece_its_nearest_centroid_and_few_rows_are_refused() -> None:
    rows = np.random.default_rng(0).normal(0, 1, (900, 5)).astype(np.float32)
    made = Quantiser.learned(rows, 2)
    assert [one.shape for one in made.centroids] == [(256, 2), (256, 2), (256, 1)]
    codes = made.codes(rows)
    distance = ((rows[:, None, 2:4] - made.centroids[1][None]) ** 2).sum(-1)
    np.testing.assert_array_equal(codes[:, 1], distance.argmin(1))
    assert ((made.rows(codes) - rows) ** 2).mean() < 0.01
    assert main(["export", "nowhere", "x.ftz", "--to", "fasttext-quantised"]) == 2


@pytest.mark.skipif(find_spec("fasttext") is None, reason="the package fasttext is not installed")
@pytest.mark.parametrize(("loss", "letters"), [("softmax", (0, 0)), ("softmax", (2, 4)), ("hs", (0, 0))])
def test_fasttext_and_cloze_open_each_others_files_with_equal_predictions(
    loss: str, letters: tuple[int, int], tmp_path: Path
) -> None:
    import fasttext

    draw = np.random.default_rng(1)
    names = [f"w{number}" for number in range(300)]
    lines = [f"__label__{label} {' '.join(draw.choice(names[label * 50 :], 6))}" for label in draw.integers(0, 5, 300)]
    (tmp_path / "rows.txt").write_text("\n".join(lines) + "\n")
    model = fasttext.train_supervised(
        str(tmp_path / "rows.txt"), dim=8, wordNgrams=2, bucket=400, epoch=9, lr=0.5, loss=loss, thread=1, verbose=0,
        minn=letters[0], maxn=letters[1],
    )
    model.save_model(str(tmp_path / "model.bin"))
    texts = [line.partition(" ")[2] for line in lines[:40]] + ["w1 unseen wörd", "nothing known"]
    folder = imported((tmp_path / "model.bin").read_bytes(), tmp_path)
    run("export", folder, tmp_path / "back.bin", "--to", "fasttext")
    files = ["model.bin", "back.bin"]
    if loss == "softmax":
        run("export", folder, tmp_path / "small.ftz", "--to", "fasttext-quantised", "--cutoff", 500, "--norms")
        run("import", tmp_path / "small.ftz", "--out", tmp_path / "small")
        files.append("small.ftz")
    for file in files:
        own = predicted(tmp_path / "small" if file == "small.ftz" else folder, texts)
        theirs = fasttext.load_model(str(tmp_path / file))
        for text, found in zip(texts, own, strict=True):
            for share, label in theirs.f.predict(text + "\n", 5, 0.0, "strict"):  # fastText adds 1e-5 before each logarithm
                assert abs(found[label.removeprefix("__label__")] - share) < 1e-4, (file, text)


def test_text_that_is_cut_as_the_export_says_has_the_same_probabilities_at_white_space_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"It's {word}, really {word}! Café No.{number}", label) for number in range(4) for word, label in PAIRS]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    file = tmp_path / "rows.tsv"
    run(
        "finetune", "fasttext-supervised", "--train", file, "--dev", file, "--out", tmp_path / "run", "--set",
        "tables.ngrams.hashed_ngrams.buckets=1000", "--set", "training.rate.linear.peak=1.0",
    )
    capsys.readouterr()
    run("export", tmp_path / "run", tmp_path / "model.bin", "--to", "fasttext")
    said = capsys.readouterr().out
    assert "fastText ends words at white space alone" in said and f'cloze.load("{tmp_path / "run"}")' in said
    cut = [" ".join(load_checkpoint(tmp_path / "run").tokenizer.words_of(text)) for text, _ in rows]
    assert cut[0] == "it ' s good , really good ! café no . 0"
    run("import", tmp_path / "model.bin", "--out", tmp_path / "again")  # words end at white space alone there
    ours, theirs = predicted(tmp_path / "run", [text for text, _ in rows]), predicted(tmp_path / "again", cut)
    assert ours == [pytest.approx(other) for other in theirs]
    capsys.readouterr()
    run("export", tmp_path / "again", tmp_path / "twice.bin", "--to", "fasttext")
    assert "white space" not in capsys.readouterr().out
