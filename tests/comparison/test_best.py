"""`cloze best`: what answers, what is kept, what is repeated, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cloze
from cloze.api.best import _row_files
from cloze.cli.main import main
from cloze.comparison import work
from cloze.comparison.best.answers import aligned
from cloze.comparison.best.best import answer, plan_of
from cloze.comparison.best.cells import VECTORS, Systems
from cloze.comparison.best.question import BestQuestion, read_rows, write_texts
from cloze.comparison.best.teaching import write_rows
from cloze.comparison.best.verdict import Verdict, as_data, as_text, sentences
from cloze.comparison.compare import Interrupted
from cloze.errors import CheckpointError, TaskError
from cloze.jobs import Job
from cloze.tasks.task import selected
from cloze.text import Tokenizer
from cloze.text.vocabularies.vocabulary import fit_of

from .conftest import Here

pytest.importorskip("sklearn")

SEA, LAND = (
    ["boat", "quay", "tide", "gull", "sail", "anchor", "harbour", "crane"],
    ["oven", "bread", "flour", "garden", "river", "stone", "cart", "market"],
)


TUNING = ["length=16", "training.batch=32", "training.new_heads=drawn", "training.checkpoint_every=1000"]


def written(folder: Path) -> Path:
    """text.txt with lines of two topics, labelled.tsv with forty rows of them, and test.tsv."""
    draws = np.random.default_rng(0)
    lines = [" ".join(draws.choice((SEA, LAND)[number % 2], 5)) for number in range(190)]
    (folder / "text.txt").write_text("\n".join(lines[:130]) + "\n", encoding="utf-8")
    for name, begin, end in (("labelled", 130, 170), ("test", 170, 190)):
        rows = [f"{lines[number]}\t{('sea', 'land')[number % 2]}" for number in range(begin, end)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return folder


def question(folder: Path, **values: Any) -> BestQuestion:
    given: dict[str, Any] = {
        "test": str(folder / "test.tsv"), "corpus": [str(folder / "text.txt")], "budget": "3steps", "text_format": "line",
        "device": "cpu", "tuning": TUNING,
    }  # fmt: skip
    labelled = [str(folder / "labelled.tsv")]
    return BestQuestion("sentence_classification", labelled, **{**given, **values})


class Counted(Here):
    """Workers that stop as Ctrl-C does before the cell with this number."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__(work.run)
        self.stop_at = stop_at

    def start(self, job: Job) -> None:
        if len(self.started) == self.stop_at:
            raise KeyboardInterrupt
        super().start(job)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Verdict, list[list[str]]]:
    """A question that was stopped twice and then answered: its folder, the verdict, and the cells of each try."""
    folder = written(tmp_path_factory.mktemp("best"))
    tries = [Counted(3), Counted(5), Counted()]
    for stopped in tries[:2]:
        with pytest.raises(Interrupted):
            answer(question(folder), folder / "out", stopped, keep=folder / "kept")
    verdict, _ = answer(question(folder), folder / "out", tries[2], keep=folder / "kept")
    return folder, verdict, [one.started for one in tries]


def test_nothing_is_repeated_after_two_stops(answered: tuple[Path, Verdict, list[list[str]]]) -> None:
    folder, verdict, tries = answered
    cells = [name for started in tries for name in started]
    assert len(cells) == len(set(cells)) == len(list((folder / "out" / "cells").iterdir())) and not verdict.failures
    again = Counted()
    same, _ = answer(question(folder), folder / "out", again, keep=folder / "kept")
    assert again.started == [] and as_data(same) == as_data(verdict)


def test_every_system_stands_in_the_table_and_learned_topics_beat_none(
    answered: tuple[Path, Verdict, list[list[str]]]
) -> None:
    folder, verdict, _ = answered
    assert {one.name for one in verdict.standings} == {
        "constant answer", "n-grams", "n-grams and texts", "fastText", "word vectors", "quick, frozen", "quick, frozen + n-grams",
        "quick, fine-tuned", "quick, fine-tuned + n-grams",
    }  # fmt: skip
    texts = verdict.standing("n-grams and texts")
    assert texts is not None and texts.score.value > 0.9 and texts.score.low <= texts.score.value <= texts.score.high
    assert texts.test is not None and texts.test > 0.9 and texts.above is not None
    assert verdict.texts > 100 and verdict.labelled == 40 and verdict.tested == 20
    assert verdict.curve is not None and [*verdict.curve.rows] == [20, 32]
    page = (folder / "out" / "best.html").read_text(encoding="utf-8")
    assert sentences(verdict)[0] in page.replace("&#39;", "'") and "What more labels bring" in page
    assert "quick, fine-tuned + n-grams" in as_text(verdict)
    assert json.loads((folder / "out" / "best.json").read_text(encoding="utf-8"))["kept"] == verdict.kept


def test_the_kept_folder_answers_as_the_table_says_and_opens_in_transformers(
    answered: tuple[Path, Verdict, list[list[str]]]
) -> None:
    from transformers import AutoModelForSequenceClassification

    folder, verdict, _ = answered
    kept = verdict.standing(str(verdict.kept))
    model = cloze.load(folder / "kept")
    evaluation = model.evaluate(folder / "test.tsv")
    assert kept is not None and kept.test == pytest.approx(evaluation.metrics["accuracy"])
    assert "n-grams and texts" in str(evaluation)  # the linear model that is mixed in has read both
    described, network_alone = model.described, verdict.standing("quick, fine-tuned")
    assert network_alone is not None and described["dev"] == {"accuracy": network_alone.score.value}
    assert described["mixture"]["dev"] == {"accuracy": kept.score.value} and described["test"] == {"accuracy": kept.test}
    assert described["examples"]["dev"] == verdict.labelled and not {"dev_report", "spread", "trials"} & set(described)
    card = (folder / "kept" / "README.md").read_text(encoding="utf-8")
    for line in ("\n# kept\n", 'model="kept"', "\ncloze predict kept ", "Fine-tuned from `quick`."):
        assert line in card
    assert "dev: the labelled rows, each answered by a model that had not learned from it (cross-validation).\n" in card
    network = AutoModelForSequenceClassification.from_pretrained(folder / "kept")
    assert set(network.config.id2label.values()) == {"sea", "land"}


def test_a_kept_folder_knows_all_labelled_rows_as_its_training_text_and_suggests_other_rows(
    answered: tuple[Path, Verdict, list[list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = answered
    assert main(["show", str(folder / "kept")]) == 0
    assert f"cloze evaluate {folder / 'kept'} TEST.tsv\n" in capsys.readouterr().out
    assert main(["evaluate", str(folder / "kept"), str(folder / "labelled.tsv")]) == 0
    assert "note: 40 of 40 rows" in capsys.readouterr().err


def test_a_cell_depends_on_the_rows_and_on_the_texts(answered: tuple[Path, Verdict, list[list[str]]], tmp_path: Path) -> None:
    folder, _, _ = answered
    fewer = (folder / "labelled.tsv").read_text(encoding="utf-8").splitlines()[:-2]
    (tmp_path / "labelled.tsv").write_text("\n".join(fewer) + "\n", encoding="utf-8")
    whole = Systems(question(folder), folder / "out")
    other = Systems(BestQuestion(**{**vars(question(folder)), "labelled": [str(tmp_path / "labelled.tsv")]}), folder / "out")
    assert whole.ready() == []
    kinds = {cell.kind for cell in other.ready()}
    assert "pretrain" not in kinds and {"ngrams", "texts", "network"} <= kinds  # the text is the same, the rows are not
    other.texts_file.unlink()


def test_a_cell_depends_on_the_content_of_the_file_of_texts(tmp_path: Path) -> None:
    folder = written(tmp_path)

    def keys() -> dict[str, str]:
        systems = Systems(question(folder), folder / "out")
        return {cell.label: cell.key for cell in systems.cells() if cell.kind in ("ngrams", "texts", "network")}

    first, again = keys(), keys()
    file = Systems(question(folder), folder / "out").texts_file
    file.write_text(json.dumps([*json.loads(file.read_text(encoding="utf-8")), "boat quay"]), encoding="utf-8")
    changed = keys()
    assert first == again and "n-grams" in " ".join(first) and changed.keys() == first.keys()
    assert all(changed[label] != key for label, key in first.items())


def test_texts_are_lines_like_the_rows_and_none_of_them(tmp_path: Path) -> None:
    folder = written(tmp_path)
    first = (folder / "labelled.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")[0]
    with (folder / "text.txt").open("a", encoding="utf-8") as text:
        text.write(f"{first}\nab\n{'a very long line ' * 40}\n")
    write_texts(question(folder), folder / "texts.json")
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    assert first not in texts and "ab" not in texts and max(map(len, texts)) < 200 and len(texts) > 100
    (folder / "own.tsv").write_text("text\nboat boat\nboat boat\nquay\n", encoding="utf-8")
    write_texts(question(folder, unlabelled=[str(folder / "own.tsv")]), folder / "own.json")
    assert sorted(json.loads((folder / "own.json").read_text(encoding="utf-8"))) == ["boat boat", "quay"]
    rows = read_rows(question(folder), folder / "own.json")
    assert rows.texts is not None and len(rows.texts) == 2 and rows.metric == "accuracy"


def test_rows_that_repeat_a_text_are_counted_and_other_encodings_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path)
    lines = (folder / "labelled.tsv").read_text(encoding="utf-8").splitlines()
    text = "\n".join([*lines, lines[1], "caf\u00e9 quay\tsea"]) + "\n"
    (folder / "labelled.tsv").write_bytes(text.encode("cp1252"))
    with (folder / "test.tsv").open("a", encoding="utf-8") as test:
        test.write(f"{lines[2]}\n")
    asking = question(folder, encoding="cp1252")
    said: list[str] = []
    stopped = Counted(0)
    with pytest.raises(Interrupted):
        answer(asking, folder / "out", stopped, say=said.append)
    assert "note: 1 of 21 test rows have the text of a labelled row: scores on the test rows are too high" in said


@pytest.mark.parametrize("keep", ["out", "."])
def test_a_model_is_not_kept_where_it_would_replace_the_comparison(keep: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    with pytest.raises(cloze.ClozeError, match="holds the folder of the comparison"):
        answer(question(folder), folder / "out", Here(), keep=folder / keep)
    assert not (folder / "out").exists()


def test_a_class_that_a_fold_lacks_has_no_probability_and_every_class_is_trained_on(tmp_path: Path) -> None:
    outputs = np.array([[0.3, 0.7]], np.float32)
    np.testing.assert_array_equal(aligned(outputs, ("c", "a"), ("a", "b", "c")), np.array([[0.7, 0.0, 0.3]], np.float32))
    assert aligned(outputs, None, ()) is outputs
    folder = written(tmp_path)
    lines = (folder / "labelled.tsv").read_text(encoding="utf-8").splitlines()
    for number in range(1, 21):  # whichever row is the only one of its class
        rare = [f"{line.split(chr(9))[0]}\tair" if place == number else line for place, line in enumerate(lines)]
        (folder / "labelled.tsv").write_text("\n".join(rare) + "\n", encoding="utf-8")
        files = write_rows(read_rows(question(folder)), folder / "rows")
        assert '"air"' in files["train"].read_text(encoding="utf-8")


def of_words(folder: Path) -> BestQuestion:
    """Forty texts of five words, each labelled by its topic."""
    draws = np.random.default_rng(2)
    texts = [draws.choice(SEA + LAND, 5).tolist() for _ in range(40)]
    rows = [{"text": words, "label": [("sea" if word in SEA else "land") for word in words]} for words in texts]
    (folder / "words.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    labelled, test = [str(folder / "words.jsonl")], str(folder / "words.jsonl")
    values = {"test": test, "tuning": [*TUNING, "task.metric=accuracy"]}
    return BestQuestion(**{**vars(question(folder, **values)), "type": "token_labelling", "labelled": labelled})


@pytest.mark.parametrize("spaces", ["", " "])
def test_vectors_read_characters_where_the_corpus_has_no_spaces_though_rows_are_words(spaces: str, tmp_path: Path) -> None:
    words = [["今天", "北京", "的", "天气", "很", "好"], ["昨天", "他", "坐", "火车", "去", "北京"]] * 20
    rows = [{"text": sentence, "label": ["time", *["other"] * 5]} for sentence in words]
    (tmp_path / "words.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("".join(spaces.join(sentence) + "\n" for sentence in words), encoding="utf-8")
    asked = BestQuestion(**{**vars(of_words(written(tmp_path))), "labelled": [str(tmp_path / "words.jsonl")],
        "corpus": [str(tmp_path / "corpus.txt")], "test": None})  # fmt: skip
    (candidate,) = Systems(asked, tmp_path / "out")._grids[VECTORS].design.candidates
    assert candidate.values == (() if spaces else ("text.normalise.cjk_spacing=true",))


def of_choices(folder: Path) -> BestQuestion:
    """Twenty texts with two choices, each with a twin that has the same choices and the other answer."""
    draws = np.random.default_rng(3)
    rows = []
    for number in range(20):
        choices = [" ".join(draws.choice(words, 3)) for words in (SEA, LAND)]
        rows += [{"text": f"{topic} {number}", "choices": choices, "label": n} for n, topic in enumerate(("ship", "farm"))]
    (folder / "choices.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    labelled = [str(folder / "choices.jsonl")]
    return BestQuestion(**{**vars(question(folder, test=None)), "type": "multiple_choice", "labelled": labelled})


@pytest.mark.parametrize("asking", [of_words, of_choices])
def test_rows_of_words_and_of_choices_are_written_as_the_task_reads_them(asking: Any, tmp_path: Path) -> None:
    rows = read_rows(asking(written(tmp_path)))
    files = write_rows(rows, tmp_path / "rows")
    assert rows.classes is None and not rows.learns_from_texts
    for part, inside in (("train", rows.folds != 0), ("dev", rows.folds == 0)):
        again, expected = rows.kind.read(files[part]), selected(rows.labelled, np.flatnonzero(inside).tolist())
        assert list(rows.linear.texts(again)) == list(rows.linear.texts(expected))
        np.testing.assert_array_equal(rows.linear.targets(again), rows.linear.targets(expected))


@pytest.mark.slow
@pytest.mark.parametrize("asking", [of_words, of_choices])
def test_words_and_choices_are_answered_without_texts(asking: Any, tmp_path: Path) -> None:
    verdict, _ = answer(asking(written(tmp_path)), tmp_path / "out", Here(), keep=tmp_path / "kept")
    constant, frozen = verdict.standing("constant answer"), verdict.standing("quick, frozen")
    assert not verdict.failures and verdict.metric == "accuracy" and constant is not None and frozen is not None
    assert 0.4 < constant.score.value < 0.65 and verdict.kept == "quick, fine-tuned + n-grams"
    assert frozen.score.value >= constant.score.value - 0.05  # twins in two folds would be far below chance
    words, ngrams = verdict.standing("word vectors"), verdict.standing("n-grams")
    assert words is not None and ngrams is not None
    if verdict.tested:
        assert ngrams.score.value > 0.9 and ngrams.test is not None and ngrams.test > 0.9


@pytest.mark.slow
def test_numbers_and_pairs_are_answered_without_texts(tmp_path: Path) -> None:
    folder = written(tmp_path)
    draws = np.random.default_rng(1)
    pairs = [[" ".join(draws.choice(words, 4)) for words in (SEA, (SEA, LAND)[number % 2])] for number in range(40)]
    text = "".join(f"{first}\t{second}\t{4 * (1 - number % 2)}\n" for number, (first, second) in enumerate(pairs))
    (folder / "pairs.tsv").write_text(f"text\ttext_b\tlabel\n{text}", encoding="utf-8")
    asking = BestQuestion(
        "regression", [str(folder / "pairs.tsv")], None, [str(folder / "text.txt")], budget="3steps", text_format="line",
        device="cpu", tuning=[*TUNING, "corpus.text_b=text_b"],
    )
    verdict, _ = answer(asking, folder / "out", Here())
    assert not verdict.failures and verdict.texts == 0 and verdict.metric == "pearson"
    ngrams = verdict.standing("n-grams")
    assert ngrams is not None and ngrams.score.value > 0.5 and verdict.kept == "quick, fine-tuned + n-grams"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": []}, "--corpus is missing: your text without labels"),
        ({"corpus": ["-"]}, "standard input can be read only once"),
        ({"budget": "soon"}, "soon"),
        ({"size": "tinny"}, "--size tinny: transformer has no such size"),
        ({"models": [Path("nowhere")]}, "nowhere"),
        (
            {"type": "span_classification"},
            "expected a task with classes or numbers for a text or a pair of texts, with labels for words, or with choices",
        ),
        ({"type": "sentences"}, "unknown task. "),
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_written(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = written(tmp_path)
    asking = BestQuestion(**{**vars(question(folder)), **change})
    with pytest.raises(cloze.ClozeError, match=message):
        answer(asking, folder / "out", Here())
    assert not (folder / "out").exists()


def test_too_few_rows_and_one_label_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    lines = (folder / "labelled.tsv").read_text(encoding="utf-8").splitlines()
    (folder / "labelled.tsv").write_text("\n".join(lines[:11]) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match="has 10 labelled rows; at least 20 are needed"):
        plan_of(question(folder), folder / "out", Here())
    (folder / "labelled.tsv").write_text("\n".join(["review\tlabel", *lines[1:]]) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match="it has: review, label.\n  Choose a column with --set corpus.text=NAME"):
        plan_of(question(folder), folder / "out", Here())
    same = [line.replace("land", "sea") for line in lines]
    (folder / "labelled.tsv").write_text("\n".join(same) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match="all rows have the same answer"):
        plan_of(question(folder, test=None), folder / "out", Here())


def test_the_command_plans_answers_and_refuses(
    answered: tuple[Path, Verdict, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder, verdict, _ = answered
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here())
    typed = [
        "best", "--corpus", str(folder / "text.txt"), "--train", str(folder / "labelled.tsv"), "--budget", "3steps", "--format",
        "line", "--device", "cpu", *(word for value in TUNING for word in ("--set", value)),
    ]  # fmt: skip
    assert main([*typed, "--from", str(folder / "kept"), "--out", str(tmp_path / "new"), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "40 labelled rows, 1" in shown and "unlabelled texts" in shown and not (tmp_path / "new").exists()
    fit = fit_of(Tokenizer.load(folder / "kept"), (folder / "text.txt").read_text(encoding="utf-8").splitlines())
    assert shown.splitlines()[-2:] == [  # it was fine-tuned, so it predicts no tokens
        f"this text under {folder / 'kept'}:", f"  pieces per word: {fit.fertility:.2f}, 0.0 % of them unknown",
    ]  # fmt: skip
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    again = [*typed, "--test", str(folder / "test.tsv"), "--out", str(folder / "out")]
    assert main([*again, "--keep", str(folder / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(as_data(verdict)))
    for words, message in (
        (typed, "--out is missing. Example: cloze best"),
        (["best", "--out", "x"], "--train is missing. Example: cloze best"),
        ([*again, "--keep", str(tmp_path / "full")], f"{tmp_path / 'full'}: is not empty. Choose a new or empty folder."),
        (["compare", "--task", f"m={folder}/labelled.tsv"], "the best model for a text and a few labelled rows: cloze best"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_python_gives_the_same_verdict(
    answered: tuple[Path, Verdict, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, verdict, _ = answered
    started = Here()
    monkeypatch.setattr("cloze.api.best.workers_on", lambda place, count: started)
    found = cloze.best(
        corpus=folder / "text.txt", train=folder / "labelled.tsv", test=folder / "test.tsv", out=folder / "out", budget="3steps",
        text_format="line", device="cpu", tuning=TUNING, report=None,
    )
    assert found.data() == as_data(verdict) and started.started == []
    assert found.sentences[0] in repr(found) and found.page.name == "best.html"
    assert found._repr_html_().count("<tr>") == 1 + len(verdict.standings) and found.sentences[0] in found._repr_html_()
    titles = [figure.title for figure in found.plot().figures]
    assert titles == ["accuracy on labelled rows that the system had not seen", "Score by the number of labelled rows"]
    assert found.model.predict(["boat quay tide"])[0].label == "sea"


def test_python_takes_rows_in_memory(tmp_path: Path) -> None:
    rows = [("boat", "sea"), ("tree", "wood")]
    (path,) = _row_files(rows, "train", tmp_path, "sentence_classification")
    assert [json.loads(line) for line in Path(path).read_text().splitlines()] == [
        {"text": "boat", "label": "sea"}, {"text": "tree", "label": "wood"}
    ]
    assert _row_files(path, "train", tmp_path, "sentence_classification") == [path]
    assert _row_files([path], "train", tmp_path, "sentence_classification") == [path]
    with pytest.raises(CheckpointError, match=r"was started with other texts \(train\) than these"):
        _row_files(rows[:1], "train", tmp_path, "sentence_classification")


def test_the_command_reads_the_corpus_in_the_encoding_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Counted(0))
    typed = ["best", "--corpus", str(folder / "text.txt"), "--train", str(folder / "labelled.tsv"), "--encoding", "koi8-r"]
    assert main([*typed, "--device", "cpu", "--out", str(folder / "out")]) == 130
    (cell,) = (folder / "out").glob("cells/corpus-*/cell.json")
    assert json.loads(cell.read_text(encoding="utf-8"))["request"]["format"] == "auto@koi8-r"
