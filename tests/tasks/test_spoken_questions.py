"""Questions about recordings: from the items of words to a fine-tuned folder, its answers in seconds, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus.records.spoken import spell_spoken
from cloze.tasks.kinds.question_answering import of_time
from cloze.tasks.kinds.spoken_questions import overlap
from cloze.text import TextSpec, train

COUNT, WORDS = 24, 5
CONTEXT = "so, they  said - it again"  # five words that are said
SPANS = [(0, 3), (4, 8), (10, 14), (17, 19), (20, 25)]
ANSWER = np.random.default_rng(1).integers(WORDS, size=COUNT)  # which word answers: only the recordings tell
TIMES = np.array([[n, n + 0.5] for n in range(WORDS)])


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def question(number: int) -> dict[str, Any]:
    start, stop = SPANS[ANSWER[number]]
    answers = [{"text": CONTEXT[start:stop], "answer_start": start}]
    return {"audio": str(number), "id": str(number), "question": "which", "context": CONTEXT, "answers": answers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of SpeechBERT, recordings of one text of which one word sounds otherwise, and questions that ask for it."""
    made = tmp_path_factory.mktemp("spoken")
    features = np.random.default_rng(0).normal(scale=0.1, size=(COUNT, WORDS, 8))
    features[np.arange(COUNT), ANSWER] += 2.0
    np.savez(
        made / "s.npz", keys=np.arange(COUNT).astype(str), offsets=np.arange(COUNT + 1) * WORDS,
        features=features.reshape(-1, 8).astype(np.float16), times=np.tile(TIMES, (COUNT, 1)).astype(np.float32),
    )
    links = [[*span, item] for item, span in enumerate(SPANS)]
    texts = [{"audio": str(n), "text": CONTEXT, "links": links} for n in range(COUNT)]
    items = ["--items", f"sounds={made / 's.npz'}", "--picture", "audio"]
    said = write(made / "said.jsonl", texts)
    (made / "text.txt").write_text("which of these\nso they said it again\n" * 20, encoding="utf-8")
    assert main(["corpus", "build", said, *items, "--size", "60", "--out", str(made / "store")]) == 0
    trained = ("steps=1", "batch=4", "held_out=0.0")
    values = [f"stages.{stage}.training.{value}" for stage in ("sounds", "joint") for value in trained]
    sizes = ["network.items.frames=2", "stages.sounds.objectives.reconstruct.frames=2"]
    given = [word for value in [*values, *sizes] for word in ("--set", value)]
    train = ["--corpus", str(made / "store"), "--bind", f"text={made / 'text.txt'}", "--size", "tiny", "--device", "cpu"]
    assert main(["pretrain", "speechbert", *train, *given, "--out", str(made / "run")]) == 0
    rows = [question(n) for n in range(COUNT)]
    write(made / "train.jsonl", rows)
    write(made / "dev.jsonl", rows[-9:])
    return made


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Path:
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--out", str(folder / "tuned")]
    values = ["training.epochs=14", "training.batch=8", "training.rate.linear.peak=3e-3", "task.patience=14"]
    given = [*files, "--items", str(folder / "s.npz"), "--picture", "audio", *(w for value in values for w in ("--set", value))]
    assert main(["finetune", str(folder / "run"), "--task", "question_answering", *given, "--device", "cpu"]) == 0
    return folder / "tuned"


def test_what_only_the_recording_tells_is_learnt_and_measured_in_words_and_in_time(
    folder: Path, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = json.loads((tuned / "cloze/task.json").read_text(encoding="utf-8"))
    assert described["spoken"] is True and described["columns"]["picture"] == "audio"
    capsys.readouterr()
    assert main(["evaluate", str(tuned), str(folder / "dev.jsonl"), "--items", str(folder / "s.npz"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["metrics"] == {"exact_match": 1.0, "f1": 1.0, "aos": 1.0, "frame_f1": 1.0}
    assert {name: described["dev"][name] for name in found["metrics"]} == found["metrics"]


def test_answers_have_characters_and_seconds_and_do_not_depend_on_the_text(
    folder: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [question(n) for n in range(4)]
    other = [{**row, "context": "a b c d e", "answers": []} for row in rows]
    found = []
    for name, lines in (("same", rows), ("other", other)):
        capsys.readouterr()
        assert main(["predict", str(tuned), write(tmp_path / f"{name}.jsonl", lines), "--items", str(folder / "s.npz")]) == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    expected = [SPANS[ANSWER[n]] for n in range(4)]
    assert [(line["start"], line["end"]) for line in found[0]] == expected
    assert [line["seconds"] for line in found[0]] == [TIMES[ANSWER[n]].tolist() for n in range(4)]
    assert [line["answer"] for line in found[1]] == ["abcde"[ANSWER[n]] for n in range(4)]
    assert [line["score"] for line in found[0]] == pytest.approx([line["score"] for line in found[1]], abs=1e-5)


def test_windows_over_a_long_recording_hear_their_own_words(folder: Path, tuned: Path) -> None:
    from cloze.checkpoint.build import load_checkpoint
    from cloze.tasks.pictures import show_pictures
    from cloze.tasks.tuned_folder import load_tuned, task_in_folder

    examples = task_in_folder(tuned).read(folder / "dev.jsonl")
    learner: Any = load_tuned(show_pictures(load_checkpoint(tuned), [str(folder / "s.npz")], [examples]), length=7)[0]
    learner.stride = 1
    row = learner.encode(examples)[0]
    assert [window.begin for window in row.windows] == [0, 1, 2]
    labels = [window.framed.marks["labels/linked"][window.columns].tolist() for window in row.windows]
    assert labels == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    links = learner.batch([window.framed for window in row.windows])["links/sounds"]
    assert links[:, 1].tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 14]  # of five recordings in each row


def test_a_context_that_is_not_what_is_said_is_refused(
    folder: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write(tmp_path / "short.jsonl", [{**question(0), "context": "so they", "answers": []}])
    assert main(["predict", str(tuned), rows, "--items", str(folder / "s.npz")]) == 2
    assert "short.jsonl:1: the context has 2 spoken words, and its recording has 5." in capsys.readouterr().err
    items = ["--items", str(folder / "s.npz"), "--picture", "audio"]
    given = ["--task", "question_answering", "--train", rows, "--dev", rows, *items]
    assert main(["finetune", str(folder / "run"), *given, "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
    assert "a context has 2 spoken words, and its recording '0' has 5 'sounds'." in capsys.readouterr().err


def test_without_recordings_the_ways_out_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--out", str(folder / "silent")]
    assert main(["finetune", str(folder / "run"), "--task", "question_answering", *files, "--device", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert "the recipe reads items (sounds) with the texts, and this store has none.\n  Add --items sounds=FILE to" in shown


def test_a_spoken_text_has_a_token_for_each_word_that_is_said() -> None:
    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 40}), ["so they said it again"] * 3)
    spelled = spell_spoken(tokenizer, ["so so", CONTEXT, ""], spoken=[False, True, True])
    assert spelled.offsets.tolist()[1:] == [len(tokenizer.encode("so so").ids), len(tokenizer.encode("so so").ids) + 5] + [
        len(tokenizer.encode("so so").ids) + 5
    ]
    first = int(spelled.offsets[1])
    assert list(zip(spelled.begin[first:].tolist(), spelled.end[first:].tolist(), strict=True)) == SPANS
    assert spelled.ids[first] == tokenizer.encode("so").ids[0] and spelled.word_start[first:].all()


@pytest.mark.parametrize(
    ("one", "other", "share", "f1"),
    [
        ((0, 2), (0, 2), 1.0, 1.0), ((0, 2), (1, 3), 1 / 3, 0.5), ((1, 3), (2, 5), 0.25, 0.4), ((0, 1), (1, 2), 0.0, 0.0),
        (None, (0, 1), 0.0, 0.0), (None, None, 1.0, 1.0),
    ],
)
def test_the_overlap_is_the_common_time_as_a_share_of_all(one: Any, other: Any, share: float, f1: float) -> None:
    """Of two stretches what AOS_score and Frame_F1_score give (DanielLin94144/DUAL-textless-SQA, utils.py)."""
    assert overlap(one, other) == pytest.approx(share)
    assert of_time([overlap(one, other)]) == pytest.approx({"aos": share, "frame_f1": f1})
