"""cloze from notebooks: a model with methods, texts and rows in memory, refusals that name what can be done instead."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import cloze
from cloze.api.texts import paths_or_texts
from cloze.api.train import _divided
from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed
from cloze.errors import CheckpointError, CorpusError, TaskError, UserError
from cloze.registry import names
from cloze.tasks import task as make_task
from cloze.tasks.given import as_records, given_examples, line_examples
from cloze.tasks.in_memory import each_item, each_text, plain
from cloze.tasks.tuned_folder import read_task_json

Folder = Callable[[str], Path]
Tuned = Callable[..., Path]
TEXTS = ["The cat sleeps on the mat.", "Rain fell on the garden.", "A dog barks."]
ROWS = [("the cat sleeps", "animal"), ("rain on the garden", "weather")] * 4
SMALL = {"training.batch": 4, "training.log_every": 1}


def quiet(recipe: str = "bert", **how: Any) -> cloze.Model:
    """A network of one narrow layer, trained for three steps."""
    given = {"corpus": TEXTS * 12, "budget": "3steps", "overrides": {**SMALL, "network.transformer.layers": 1}, **how}
    return cloze.pretrain(recipe, size="tiny", fit=False, report=None, **given)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> cloze.Model:
    """A model pre-trained on a list of strings."""
    return quiet(out=tmp_path_factory.mktemp("small") / "run")


@pytest.mark.parametrize(("name", "can"), [
    ("bert", ("fill", "embed", "score", "neighbours", "analogy")),
    ("gpt2", ("generate", "embed", "score", "neighbours", "analogy")),
    ("electra", ("embed", "score", "neighbours", "analogy")),
])  # fmt: skip
def test_a_model_says_what_it_is_and_what_it_can(folder: Folder, name: str, can: tuple[str, ...]) -> None:
    model = cloze.load(folder(name))
    assert model.can == can
    parameters = model.checkpoint.parameters
    assert repr(model).startswith(f"<cloze.Model {name!r}: transformer, layers 2, width 16, {parameters:,} parameters, ")
    assert repr(model).endswith(f"; can {', '.join(can)}>") and "\n" not in repr(model)


def test_a_notebook_shows_a_model_with_what_its_losses_and_metrics_are_worth(small: cloze.Model, tuned: Tuned) -> None:
    html = small._repr_html_()
    head, relation, tokens = re.findall("<tr>(.*?)</tr>", html.partition("held-out losses")[2])
    assert re.findall("<th>(.*?)</th>", head) == ["objective", "loss", "single tokens", "pairs", "constant prediction"]
    loss = sum(float(re.findall("<td>(.*?)</td>", row)[1]) for row in (relation, tokens))
    assert small.outcome is not None and loss == pytest.approx(small.outcome.held_out, abs=2e-4)
    assert "fill, embed, score, neighbours, analogy" in html and "metrics on" not in html and "<script" not in html
    assert [figure.title for figure in small.plot().figures] == ["Loss against tokens"]
    html = cloze.load(tuned())._repr_html_()
    assert "metrics on dev" in html and "<td>accuracy</td><td>0.7500</td>" in html and "held-out losses" not in html
    assert "sentence_classification among animal, weather" in html


def test_candidates_for_a_mask_show_as_a_table(folder: Folder) -> None:
    filled = cloze.load(folder("bert")).fill("<b> the [MASK]", top=2)
    html = filled._repr_html_()
    first = filled.masks[0][0]
    assert "&lt;b&gt; the [MASK]" in html and f"{100 * first.probability:.1f} %" in html and html.count("<th>") == 3


def test_what_a_model_can_is_what_its_methods_do(folder: Folder, tuned: Tuned, writer: Folder) -> None:
    asked: dict[str, Callable[[cloze.Model], Any]] = {
        "fill": lambda model: model.fill("the [MASK]"), "generate": lambda model: model.generate("the", tokens=1),
        "embed": lambda model: model.embed("the"), "predict": lambda model: model.predict("the"),
        "score": lambda model: model.score("the", "cat" if "t5" in model.folder.name else None),
        "evaluate": lambda model: model.evaluate(ROWS), "neighbours": lambda model: model.neighbours("the"),
        "analogy": lambda model: model.analogy("the", "mat", "cat"),
    }  # fmt: skip
    for place in (folder("bert"), folder("gpt2"), folder("electra"), tuned(), writer("t5")):
        model = cloze.load(place)
        for name, ask in asked.items():
            if name in model.can:
                try:
                    ask(model)
                except UserError as error:  # a word that the small vocabulary lacks
                    assert name in ("neighbours", "analogy") and "is not among" in str(error), error
            else:
                with pytest.raises(CheckpointError) as caught:
                    ask(model)
                able = ", ".join(f"model.{one}()" for one in model.can)
                assert str(caught.value).startswith(f"model.{name}: ") and str(caught.value).endswith(f"This model can: {able}.")
                assert "cloze " not in str(caught.value).splitlines()[0].removeprefix(f"model.{name}: {model.folder}")


def test_one_string_gives_one_result_and_a_list_gives_as_many(folder: Folder, tuned: Tuned) -> None:
    model, writing, tagged = cloze.load(folder("bert")), cloze.load(folder("gpt2")), cloze.load(tuned())
    assert model.fill("the [MASK]", top=3).masks[0][0].word == model.fill(["the [MASK]", "a [MASK] b"], top=3)[0].masks[0][0].word
    assert writing.generate("the", tokens=3, seed=2) == writing.generate(["the"], tokens=3, seed=2)[0]
    assert writing.score("the cat").score == pytest.approx(writing.score(iter(["the cat", "rain"]))[0].score)
    assert tagged.predict("the cat").text == tagged.predict(["the cat", "rain"])[0].text == "the cat"
    several = model.embed(["the cat", "rain"])
    assert several.shape == (2, 16) and np.array_equal(model.embed("the cat"), model.embed(["the cat"])[0])
    loaded = load_checkpoint(folder("bert"))
    assert np.array_equal(several, embed(Reader.of(loaded), ["the cat", "rain"]))
    assert model.fill([]) == [] and tagged.predict([]) == []
    with pytest.raises(UserError, match="text 2: expected a string, got int"):
        model.score(["a", 3])  # type: ignore[list-item]
    for call, where in (
        (lambda: model.embed(b"a"), ""), (lambda: model.fill(["a", b"[MASK]"]), "text 2: "),
        (lambda: tagged.predict(b"a"), ""), (lambda: tagged.predict([b"a"]), "row 1: "),
    ):  # type: ignore[assignment]
        with pytest.raises(UserError, match=rf"^{where}bytes, expected text: decode it first, such as TEXT.decode\('utf-8'\)\.$"):
            call()


def test_texts_that_are_cut_warn(folder: Folder, tuned: Tuned) -> None:
    long = "the cat sleeps on the mat and dreams of mice in the garden"
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than 5 tokens and lost their end"):
        cloze.load(folder("bert")).embed(["cat", long], length=5)
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than 8 tokens and lost their end"):
        assert cloze.load(tuned(length=8)).predict(long).cut > 0


def test_an_encoder_decoder_scores_answers_and_others_texts(writer: Folder, folder: Folder) -> None:
    model = cloze.load(writer("t5"))
    alone, several = model.score("the cat", "rain"), model.score(["the cat", "x"], ["rain", "y"])
    assert alone.score == pytest.approx(several[0].score) and alone.score < 0 and len(several) == 2
    given = model.score(iter(["the cat", "x"]), iter(["rain", "y"]))
    assert [one.score for one in given] == pytest.approx([one.score for one in several])
    with pytest.raises(UserError, match=r"scores answers to texts\. Call model\.score\(texts, answers\)"):
        model.score("the cat")
    with pytest.raises(UserError, match="scores texts alone"):
        cloze.load(folder("bert")).score("the cat", "rain")
    with pytest.raises(UserError, match="2 texts and 1 answers"):
        model.score(["a", "b"], ["c"])


def test_rows_in_memory_and_the_file_that_holds_them_are_measured_alike(tuned: Tuned, tables: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = cloze.load(tuned())
    rows = [line.split("\t") for line in (tables / "dev.tsv").read_text().splitlines()[1:]]
    by_column = [{"text": text, "label": label} for text, label in rows]
    found = model.evaluate(str(tables / "dev.tsv"))
    for given in ([tuple(row) for row in rows], by_column, iter(by_column), pandas.DataFrame(by_column), tables / "dev.tsv"):
        assert model.evaluate(given).record() == found.record()
    assert found.metrics.keys() == {"accuracy", "macro_f1", "matthews", "f1"} and found.baseline is not None
    low, high = model.evaluate(rows, bootstrap=100).intervals["accuracy"]
    assert low <= found.metrics["accuracy"] <= high
    said = [(one.label, one.probability) for one in model.predict([text for text, _ in rows])]
    assert said == [(one.label, one.probability) for one in model.predict(pandas.DataFrame(by_column))]
    assert model.labels == ("animal", "weather") and model.metrics == {"accuracy": 0.75}
    assert "sentence_classification among animal, weather, accuracy 0.7500 on dev" in repr(model)


class _Polars:
    """A data frame of polars, which is iterated by column."""

    def __iter__(self) -> Any:
        return iter([["a", "b"], ["x", "y"]])

    def iter_rows(self, *, named: bool) -> Any:
        assert named
        return iter([{"text": "a", "label": "x"}, {"text": "b", "label": "y"}])


class _Column(list[str]):
    """A column of a data set of datasets 4, whose features are a `Value` and no mapping."""

    features = object()


class _Dataset(list[dict[str, Any]]):
    """A data set whose labels are the numbers of classes."""

    features: ClassVar[dict[str, Any]] = {"text": object(), "label": SimpleNamespace(names=["x", "y"])}


class _Arrow:
    """A table of pyarrow, which is iterated by column."""

    def __iter__(self) -> Any:
        return iter(["text", "label"])

    def to_pylist(self) -> list[dict[str, str]]:
        return [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


@pytest.mark.parametrize(
    "given",
    [
        _Polars(), _Arrow(), _Dataset([{"text": "a", "label": 0}, {"text": "b", "label": 1}]),
        {"text": ["a", "b"], "label": ["x", "y"]}, {"text": _Column("ab"), "label": np.array(["x", "y"])},
        np.array([["a", "x"], ["b", "y"]]), ((text, label) for text, label in ("ax", "by")),
    ],
)
def test_rows_are_read_from_what_other_packages_hold(given: Any) -> None:
    found = list(as_records(given, make_task("sentence_classification"), labelled=True))
    assert found == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


@pytest.mark.parametrize("given", [_Column("ab"), np.array(["a", "b"]), _Polars(), iter("ab"), {"text": ["a", "b"]}])
def test_texts_are_read_from_what_other_packages_hold(given: Any) -> None:
    rows = list(each_item(given))
    assert list(each_text(rows)) == ["a", "b"]
    records = list(as_records(rows, make_task("sentence_classification"), labelled=False))
    assert [record["text"] for record in records] == ["a", "b"]


def test_real_frames_and_data_sets_are_read(tuned: Tuned) -> None:
    polars, datasets = pytest.importorskip("polars"), pytest.importorskip("datasets")
    columns = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}
    frame, given = polars.DataFrame(columns), datasets.Dataset.from_dict(columns)
    model = cloze.load(tuned())
    expected = model.predict(columns["text"])
    for texts in (frame, frame["text"], frame["text"].to_numpy(), given, given["text"], given[:], given.to_iterable_dataset()):
        assert model.predict(texts) == expected
        assert model.embed(texts).shape == (len(ROWS), 32)
    assert model.evaluate(frame).record() == model.evaluate(ROWS).record() == model.evaluate(given).record()


def test_a_column_that_is_missing_and_missing_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskError, match=r"text 1: no column 'text'; it has: a, b\. Give one column"):
        list(each_text([{"a": "x", "b": "y"}]))
    missing = object()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(NA=missing, NaT=object()))
    assert plain([float("nan"), missing, np.float64("nan"), np.int64(3)]) == [None, None, None, 3]


def test_a_dataset_gives_the_names_of_its_classes(tuned: Tuned) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["weather", "animal"])})
    given = datasets.Dataset.from_dict({"text": [text for text, _ in ROWS], "label": [1, 0] * 4}, features=features)
    model = cloze.load(tuned())
    assert model.evaluate(given).record() == model.evaluate(ROWS).record()
    with pytest.raises(TaskError, match=r"several sets of them \(train\)\. Choose one"):
        model.evaluate(datasets.DatasetDict({"train": given}))


@pytest.mark.parametrize(
    ("given", "labelled", "said"),
    [
        ("the cat", True, "expected a list of rows, got one"),
        ([], False, "no rows; expected at least one"),
        ([None, "a"], False, r"row 1: None, expected text\."),
        (["a", ("b", "c")], False, r"row 2: 2 values, expected text.\n  Write \(text\)"),
        ([("a", "x"), ("b",)], True, r"row 2: 1 values, expected text and label\.\n  Write \(text, label\) or"),
        ([3], True, "row 1: a int, expected text and label"),
        ({"text": "a", "label": "x"}, True, "expected a list of rows, got one"),
        ({"train": [1], "dev": [1, 2]}, True, r"several sets of them \(train, dev\)\. Choose one"),
        (3, True, "expected a list of texts or rows, got int"),
    ],
)
def test_rows_that_are_none_are_refused(given: Any, labelled: bool, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        list(as_records(given, make_task("sentence_classification"), labelled=labelled))


#: Of every task a row without its answer, one with it (None: read from files alone), and a line (None: there is no such line).
EVERY: dict[str, tuple[Any, Any, str | None]] = {
    "coreference": (["It", "rains"], (["It", "rains"], [[[0, 0]]]), "It rains"),
    "dependency_parsing": (["It", "rains"], None, "It rains"), "frozen_features": ("a", ("a", "x"), "a"),
    "multi_label": ("a", ("a", ["x", "y"]), "a"), "multiple_choice": (("q", ["a", "b"]), ("q", ["a", "b"], 1), None),
    "open_question_answering": ("Who?", ("Who?", ["Ann"]), "Who?"),
    "pair_classification": (("a", "b"), ("a", "b", "x"), "a\tb"),
    "picture_pair_classification": (("a", "1", "2"), ("a", "1", "2", "x"), "a\t1\t2"),
    "visual_question_answering": ("a", ("a", {"x": 1, "y": 0.3}), "a"), "regression": ("a", ("a", 1.5), "a"),
    "question_answering": (("Who?", "Ann."), ("Who?", "Ann.", {"text": ["Ann"], "answer_start": [0]}), "Who?\tAnn."),
    "reranking": (("q", "p"), ("q", "p", 1), "q\tp"), "retrieval": (("q", "p"), ("q", "p"), "q\tp"),
    "sentence_classification": ("a", ("a", "x"), "a"),
    "span_classification": ({"text": "a b", "spans": [[0, 1]]}, {"text": "a b", "spans": [[0, 1]], "label": "x"}, None),
    "text_to_text": ("a", ("a", "b"), "a"), "token_labelling": (["It", "rains"], (["It", "rains"], ["X", "O"]), "It rains"),
}  # fmt: skip


@pytest.mark.parametrize("name", names("task"))
def test_every_task_reads_rows_in_memory_and_lines(name: str) -> None:
    task = make_task(name)
    bare, labelled, line = EVERY[name]
    with given_examples(task, [bare, bare], labelled=False) as examples:
        assert len(examples) == 2
    if labelled is not None:
        with given_examples(task, [labelled], labelled=True) as examples:
            assert len(examples) == 1
    if line is not None:
        with line_examples(task, ["", line], "new.txt") as examples:
            assert len(examples) == 1
    with pytest.raises(TaskError) as caught, given_examples(task, [bare, {}], labelled=False):
        pass
    assert "row 2" in str(caught.value) and "rows.jsonl" not in str(caught.value)


def test_values_of_rows_become_those_of_json() -> None:
    task = make_task("token_labelling")
    rows = [(("It", "rains"), np.array(["PRON", "VERB"])), {"text": np.str_("a"), "label": float("nan")}]
    assert list(as_records(rows, task, labelled=True)) == [
        {"text": ["It", "rains"], "label": ["PRON", "VERB"]}, {"text": "a", "label": None},
    ]  # fmt: skip
    assert list(as_records([["It", "rains"], "It rains"], task, labelled=False)) == [
        {"text": ["It", "rains"]}, {"text": "It rains"},
    ]  # fmt: skip
    pair = make_task("pair_classification")
    assert list(as_records([("a", "b")], pair, labelled=False)) == [{"text": "a", "text_b": "b"}]


def test_a_name_for_a_column_that_no_task_has_is_refused() -> None:
    with pytest.raises(TaskError, match="^sentence_classification has no column 'txt'. Did you mean 'text'"):
        make_task("sentence_classification", txt="review")


def test_what_is_wrong_with_a_row_is_told_of_its_number(tuned: Tuned) -> None:
    model = cloze.load(tuned())
    with pytest.raises(TaskError, match=r"^row 2: no value for 'text'; expected one in every row\.$"):
        model.predict([{"text": "a"}, {"text": None}])
    with pytest.raises(TaskError, match="^row 1: the label 'storm' does not occur in the training examples"):
        model.evaluate([("a", "storm")])
    with pytest.raises(TaskError, match=r"^the rows: no column 'text'; it has: words\.\n  Rename the column\.$"):
        model.predict([{"words": "a"}])


def test_without_a_folder_a_model_is_gone_with_its_own(small: cloze.Model) -> None:
    model = quiet(corpus=(text for text in TEXTS * 12))
    folder = model.folder
    assert folder.is_dir() and model.outcome is not None and model.outcome.finished and model.outcome.step == 3
    assert len(model.fill("The [MASK] sleeps.", top=2).masks[0]) == 2
    for name, tensor in small.network.state_dict().items():
        assert tensor.equal(model.network.state_dict()[name]), "an iterator trains as a list does"
    del model
    assert not folder.exists()


def test_texts_in_memory_train_as_their_file_does(small: cloze.Model, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"story": text}) + "\n" for text in TEXTS * 12))
    model = quiet(corpus=str(tmp_path / "texts.jsonl"), text="story", out=tmp_path / "run")
    for name, tensor in small.network.state_dict().items():
        assert tensor.equal(model.network.state_dict()[name]), name


def test_a_run_resumes_with_the_same_texts_and_refuses_others(small: cloze.Model) -> None:
    again = quiet(corpus=[{"story": text} for text in TEXTS * 12], text="story", out=small.folder)
    assert again.outcome is not None and again.outcome.finished and again.outcome.step == 3
    with pytest.raises(CheckpointError, match=r"run: was started with other texts \(corpus\) than these"):
        quiet(corpus=TEXTS, out=small.folder)


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        ([], "corpus: no texts; expected at least one"),
        (["A text.", 3], "corpus: document 2 is int, expected a string"),
        ([{"body": "A text."}], "corpus: document 1 has no 'text'; it has: body.\n  Name the column"),
        ({"train": TEXTS}, "corpus: expected texts, got a mapping"),
        (["A text.", "missing.txt"], "'missing.txt' is a path, and 'A text.' is a text"),
        (["missing.txt"], "missing.txt"),
        (7, "corpus: expected texts or paths, got int"),
    ],
)
def test_what_is_no_corpus_is_refused_and_leaves_nothing(tmp_path: Path, corpus: Any, said: str) -> None:
    with pytest.raises(CorpusError, match=said):
        quiet(corpus=corpus, out=tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "paths"), [
    ("texts/*.txt", True), (Path("a"), True), (["a.txt", "b.jsonl.gz"], True), (["my texts/*"], True),
    ([Path("a"), Path("b")], True),
    (["and/or"], False), (["He left."], False), (["One.\nsee a.txt"], False), (["hello"], False), (iter(["a.txt"]), False),
])  # fmt: skip
def test_strings_are_paths_where_they_end_as_paths_do(given: Any, paths: bool) -> None:
    assert (paths_or_texts(given, "corpus") is not None) is paths


def test_a_model_is_finetuned_on_rows_and_answers(small: cloze.Model) -> None:
    lines: list[str] = []
    model = cloze.finetune(small, train=ROWS, dev=ROWS, test=ROWS, overrides={"training.epochs": 1}, report=lines.append)
    assert model.task == "sentence_classification" and model.labels == ("animal", "weather")
    with pytest.warns(UserWarning, match=r"^8 of 8 rows \(100%\) have texts that the model is trained on"):
        measured = model.evaluate(ROWS)
    assert model.metrics == measured.metrics == model.described["test"]
    assert model.predict("the cat").label in model.labels and model.outcome is not None and model.outcome.finished
    assert "fill" not in model.can and small.can[0] == "fill", "the model it began with is as it was"


def test_of_several_seeds_the_outcome_is_that_of_the_model(small: cloze.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.api import train

    tuned = SimpleNamespace(outcomes={1: "first", 2: "second"}, task_json={"seed": 1})
    monkeypatch.setattr(train, "run_finetuning", lambda *given, **how: tuned)
    monkeypatch.setattr(train, "_trained", lambda outcome, *rest: outcome)
    assert cloze.finetune(small, train=ROWS, dev=ROWS, seeds=(1, 2), report=None) == "first"
    tuned.task_json = {}  # stopped before all were trained
    assert cloze.finetune(small, train=ROWS, dev=ROWS, seeds=(1, 2), report=None) == "second"


def test_rows_may_name_their_columns_and_dev_may_be_a_share(small: cloze.Model, tmp_path: Path) -> None:
    rows = [{"review": f"{text} {number}", "stars": number % 2 + 1} for number, (text, _) in enumerate(ROWS)]
    how: dict[str, Any] = {
        "train": rows, "dev": 0.25, "columns": {"text": "review", "label": "stars"}, "overrides": {"training.epochs": 1},
        "out": tmp_path / "stars", "report": None,
    }  # fmt: skip
    model = cloze.finetune(small, **how)
    assert model.labels == ("1", "2") and model.described["examples"] == {"train": 6, "dev": 2}
    assert model.predict([{"review": "the cat"}])[0] == model.predict(["the cat"])[0]
    assert cloze.finetune(small, **how).metrics == model.metrics, "the same call finds the run finished"


def test_copies_of_a_row_stay_on_one_side_of_a_random_split() -> None:
    rows = [(f"text {number // 3}", "x" if number % 2 else "y") for number in range(30)]
    train, dev, _ = _divided(rows, 0.3, make_task("sentence_classification"), 1)
    assert len(dev) == 9 and not {row["text"] for row in train} & {row["text"] for row in dev}
    with pytest.raises(TaskError, match="dev=0.5: all rows have the same texts"):
        _divided([("text", "x")] * 4, 0.5, make_task("sentence_classification"), 1)


def test_a_folder_whose_run_has_no_checkpoint_yet_says_how_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "cloze" / "corpus").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="has no checkpoint yet.\n  Rerun the command that started it"):
        read_task_json(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": [("a", "x"), ("b", "")]}, "^train: row 2: an empty 'label'"),
        ({"dev": [("a", "storm")]}, "^dev: row 1: the label 'storm' does not occur"),
        ({"dev": 0.001}, "dev=0.001: 0 of 8 rows"),
        ({"dev": 2.0}, "dev=2.0: expected rows, a file, or a share"),
        ({"dev": 10}, "^dev=10: expected rows, a file, or a share of the training rows between 0 and 1"),
        ({"dev": None}, "^dev=None: expected rows or a file"),
        ({"test": 3}, "^test=3: expected rows or a file"),
        ({"train": "a.tsv", "dev": 0.5}, "a.tsv is a file. Give a file for dev, too"),
        ({"task": "tagging"}, "unknown task 'tagging'"),
    ],
)
def test_labelled_rows_that_cannot_be_used_are_refused_and_leave_nothing(
    small: cloze.Model, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        cloze.finetune(small, **{"train": ROWS, "dev": ROWS, "out": tmp_path / "x" / "y", "report": None, **change})
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_saved_without_its_run(small: cloze.Model, tmp_path: Path) -> None:
    place = small.save(tmp_path / "kept")
    assert not (place / "cloze" / "log.jsonl").exists() and not (place / "cloze" / "corpus").exists()
    assert cloze.load(place).fill("The [MASK].").best == small.fill("The [MASK].").best


def test_results_become_data_frames(folder: Folder, tuned: Tuned) -> None:
    pytest.importorskip("pandas")
    model, tagged = cloze.load(folder("bert")), cloze.load(tuned())
    filled = cloze.frame(model.fill(["the [MASK] [MASK]", "a [MASK]"], top=2))
    assert list(filled.columns) == ["text", "mask", "rank", "word", "probability"] and len(filled) == 6
    assert list(filled["mask"]) == [1, 1, 2, 2, 1, 1]
    found = cloze.frame(tagged.predict(["the cat", "rain"]))
    assert {"text", "label", "probability", "probabilities.animal"} <= set(found.columns) and list(found["line"]) == [1, 2]
    assert len(cloze.frame(tagged.predict("the cat"))) == 1
    measured = cloze.frame(tagged.evaluate(ROWS, bootstrap=100))
    assert list(measured["metric"]) == ["accuracy", "macro_f1", "matthews", "f1"] and (measured["low"] <= measured["high"]).all()
    scores = model.score(["the cat", "rain"])
    assert list(cloze.frame(scores)["tokens"]) == [one.tokens for one in scores]
    with pytest.raises(UserError, match="int is no result of a model's method"):
        cloze.frame([3])


def test_without_pandas_frames_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pandas, which is not installed: pip install pandas"):
        cloze.frame([])


def test_an_iterator_of_texts_is_read_once(tmp_path: Path) -> None:
    seen: list[str] = []

    def each() -> Iterator[str]:
        for text in TEXTS:
            seen.append(text)
            yield text

    with pytest.raises(UserError):
        cloze.pretrain("no-such-recipe", corpus=each(), budget="1steps", out=tmp_path / "run", report=None)
    assert seen in ([], TEXTS) and not (tmp_path / "run").exists()
