"""Labelled layers in use: a checkpoint that reads them keeps its annotator, or is given one with the texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.new_heads import start_head
from cloze.cli.main import main
from cloze.corpus import RecordStore, Store
from cloze.decoding.generating.forms import form_of
from cloze.decoding.prompting import prompting_of
from cloze.decoding.prompts import Template
from cloze.decoding.reader import Reader
from cloze.errors import TaskError, UserError
from cloze.knowledge.linking import link_text, linker_of
from cloze.networks import Clock
from cloze.objectives import ClassifySpan
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.measure_result import FinetuningResult, measure_on_files
from cloze.tasks.tuned_folder import load_tuned

NAMES = [chr(0x4E00 + number) + chr(0x5E00 + number) for number in range(40)]  # to the tokenizer, all but three are the same
SMALL = [
    "length=24", "text.tokenizer.size=58", "network.entities.width=4", "network.layers=2", "network.width=32", "network.heads=2",
    "network.feed_forward.inner=32", "network.mix_at=0", "network.entities.heads=2", "network.dropout=0.0", "training.batch=4",
    "objectives[2].entity_width=4", "training.held_out=0.0",
]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of cats and dogs, which only the vectors of entities tell apart, and a checkpoint that links names itself."""
    made, draw = tmp_path_factory.mktemp("town"), np.random.default_rng(0)
    kinds = draw.integers(0, 2, len(NAMES))
    vectors = draw.normal(0, 0.5, (len(NAMES), 4))
    vectors[:, 0] = np.where(kinds == 0, 3, -3)
    (made / "entities.tsv").write_text("".join(f"Q{n}\t{name}\n" for n, name in enumerate(NAMES)))
    rows = [f"Q{n} {' '.join(f'{x:.3f}' for x in row)}\n" for n, row in enumerate(vectors)]
    (made / "vectors.txt").write_text(f"{len(NAMES)} 4\n" + "".join(rows))
    records = [
        json.dumps({"text": f"we met {name} today", "spans": [[7, 9]], "label": ("cat", "dog")[kind]}) + "\n"
        for name, kind in zip(NAMES, kinds, strict=True)
    ]
    (made / "train.jsonl").write_text("".join(records[:28]))
    (made / "dev.jsonl").write_text("".join(records[28:]))
    texts = "".join(f"we met {name} today . it was a nice day .\n\n" for name in ["x1", "y2", "z3"] * 5 + NAMES[:3])
    (made / "text.txt").write_text(texts)
    linker = f"text.annotate.entity={{linker: {{file: {made / 'entities.tsv'}}}}}"
    values = [word for value in [*SMALL, linker] for word in ("--set", value)]
    words = ["pretrain", "ernie-thu", "--corpus", str(made / "text.txt"), "--bind", f"entities={made / 'vectors.txt'}", *values]
    assert main([*words, "--size", "tiny", "--as-published", "--budget", "1steps", "--out", str(made / "run")]) == 0
    started = json.loads((made / "run" / "cloze" / "log.jsonl").read_text().splitlines()[0])
    assert started["baselines"].keys() == {"token_prediction", "relation_prediction"}  # entities compete within a batch alone
    files = [made / "train.jsonl", made / "dev.jsonl"]
    link_text(files, linker_of([str(made / "entities.tsv")]), made / "m.jsonl", format="auto:text")
    return made


def tuned(town: Path, start: str, out: str, **given: Any) -> float:
    values = ["length=12", "training.batch=8", "training.epochs=10", "training.rate.peak=2e-2", "network.dropout=0.0"]
    values += given.pop("values", [])
    made = finetune(
        town / start, train=[str(town / "train.jsonl")], dev=[str(town / "dev.jsonl")], out=town / out, overrides=values,
        task="span_classification", report=lambda line: None, **{"recipe": "span_classification", **given},
    )
    return float(made.task_json["dev"]["accuracy"])


def measured(capsys: pytest.CaptureFixture[str], folder: Path, town: Path, *words: str) -> float:
    assert main(["evaluate", str(folder), str(town / "dev.jsonl"), "--json", *words]) == 0
    return float(json.loads(capsys.readouterr().out)[str(town / "dev.jsonl")]["metrics"]["accuracy"])


def test_a_label_that_only_entities_tell_is_learned_and_the_linker_stays_with_the_folder(
    town: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuned(town, "run", "kept") == 1.0
    capsys.readouterr()
    assert measured(capsys, town / "kept", town) == 1.0
    opened = load_checkpoint(town / "kept")
    (row,) = Reader.of(opened).encode([f"we met {NAMES[-1]} today"])
    assert row.marks["labels/entity"].tolist() == [0, 0, 0, 40, 40, 0, 0]
    assert Reader.of(opened).batch([row])["items/entity"].tolist() == [[40]]
    store = Store.open(town / "kept" / "cloze" / "corpus" / "main" / "store")
    assert isinstance(store, RecordStore) and int((store.layers["entity"] == 1).sum()) == 28


def test_mentions_are_given_with_the_texts_and_without_them_nothing_is_known(
    town: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = f"entity=mentions:{town / 'm.jsonl'}"
    assert tuned(town, "run", "given", annotate=[given]) == 1.0
    assert not (town / "given" / "cloze" / "annotators").exists()
    described = json.loads((town / "given" / "cloze" / "task.json").read_text())
    assert {row["recall"] for row in described["dev_report"]["report"]} == {1.0}
    result = FinetuningResult({}, town / "given", described)
    tested = measure_on_files(result, [str(town / "dev.jsonl")], "test", annotate=[given])
    assert tested.task_json["test"]["accuracy"] == 1.0
    capsys.readouterr()
    assert measured(capsys, town / "given", town) <= 0.75
    said = "note: the texts of training were annotated (entity), these are not: --annotate entity=PART:FILE\n"
    for words, count in (([], 1), (["--annotate", given], 0)):
        assert main(["predict", str(town / "given"), str(town / "dev.jsonl"), *words]) == 0
        assert capsys.readouterr().err.count(said) == count
    assert measured(capsys, town / "given", town, "--annotate", given) == 1.0
    assert measured(capsys, town / "given", town, "--annotate", f"entity=linker:{town / 'entities.tsv'}") == 1.0


def test_marks_stand_around_names_in_training_and_use_and_move_their_entities(
    town: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mentions = f"entity=mentions:{town / 'm.jsonl'}"
    values = ["corpus.answer.class_of_spans.marks=['.']", "objectives[0].pool=mean"]
    values += ["training.rate.peak=1e-2", "training.epochs=20"]
    assert tuned(town, "run", "marked", recipe=None, values=values, annotate=[mentions]) == 1.0
    store = Store.open(town / "marked" / "cloze" / "corpus" / "main" / "store")
    opened = load_checkpoint(town / "marked")
    learner, task_json = load_tuned(opened)
    assert task_json["marks"] == ["."] and task_json["task"] == "span_classification"
    (row, *_) = learner.encode(learner.task.read(town / "train.jsonl"))
    (text,) = Reader.of(opened).encode(["we met . " + NAMES[0] + " . today"])  # as the authors mark a text
    assert row.framed.ids.tolist() == text.ids.tolist() and row.columns.tolist() == [4, 5]
    assert isinstance(store, RecordStore)
    layer = store.layers["entity"][: len(text) - 2].tolist()
    assert layer == [0, 0, 0, 1, 2, 0, 0] and store.tokens[: len(layer)].tolist() == text.ids[1:-1].tolist()
    assert measured(capsys, town / "marked", town, "--annotate", mentions) == 1.0
    with pytest.raises(TaskError, match="dev.jsonl:1: 1 span, and class_of_spans.marks has 2 marks. Name one for each span"):
        tuned(town, "run", "two", recipe=None, values=["corpus.answer.class_of_spans.marks=['.', 'a']"])
    with pytest.raises(TaskError, match="class_of_spans: the mark '#' is not one token of this vocabulary"):
        tuned(town, "run", "none", recipe=None)


def test_the_classifier_on_cls_starts_from_the_pooler_of_next_sentences(town: Path) -> None:
    loaded = load_checkpoint(town / "run")
    head = ClassifySpan(width=32, pool="cls", clock=Clock())
    assert start_head(head, loaded) and head.head.pool is not None
    assert head.head.pool.weight.equal(loaded.heads["relation_prediction"].head.pool.weight)


def test_the_twin_without_an_annotator_learns_nothing(town: Path) -> None:
    shutil.copytree(town / "run", town / "twin")
    about = json.loads((town / "twin" / "cloze" / "network.json").read_text())
    del about["annotators"]["entity"]["linker"]["file"]
    (town / "twin" / "cloze" / "network.json").write_text(json.dumps(about))
    assert tuned(town, "twin", "plain") <= 0.75


def test_a_masked_name_tells_no_entity(town: Path) -> None:
    reader = Reader.of(load_checkpoint(town / "run"))
    (row,) = reader.encode([f"we met {NAMES[5]} today"])
    assert reader.batch([row.masked(np.array([4]), reader.tokenizer.role("[MASK]"))])["items/entity"].tolist() == [[0]]


def test_a_prompt_shows_what_is_known_of_its_text_and_nothing_of_its_answer(town: Path) -> None:
    prompting = prompting_of(load_checkpoint(town / "run"))
    filled = [Template("{text} it was {answer}").fill([f"we met {NAMES[5]}"], answer) for answer in ("nice", NAMES[6])]
    rows = [one.source for one in prompting.candidates(filled, ["nice", NAMES[6]])]
    assert [row.marks["labels/entity"].sum() for row in rows] == [12, 12]  # two tokens of entity 5, which has the number 6
    assert [prompting.reader.batch([row])["items/entity"].tolist() for row in rows] == [[[6]], [[6]]]


def test_what_writes_a_text_refuses_a_network_that_reads_annotations(town: Path) -> None:
    with pytest.raises(UserError, match=r"reads annotations \(entity\), and writing a text for another reads texts without them"):
        form_of(Reader.of(load_checkpoint(town / "run")))


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_file_that_names_none_of_the_texts_is_refused(
    town: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(town)
    Path("other.jsonl").write_text('{"text": "Paris is here", "spans": [{"start": 0, "end": 5, "id": "Q1"}]}\n')
    assert main([verb, "kept", "dev.jsonl", "--annotate", "entity=mentions:other.jsonl"]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert "--annotate entity=mentions:other.jsonl: the file names none of the texts that were read" in shown.err


@pytest.mark.parametrize(("given", "expected"), [
    ("entty=mentions:m.jsonl", "--annotate entty: this checkpoint reads no layer of that name. Did you mean 'entity'?"),
    ("entity", "--annotate entity: expected NAME=PART:FILE or NAME=FILE"),
    ("entity=mentions:other.jsonl", "the file of the annotation layer 'entity' has none of these texts. Nothing was written."),
    ("entity=mentions:none.jsonl", "none.jsonl: no such file"),
    ("entity=mentions:{file: other.jsonl, cut: widen}", 'unknown argument "cut"'),
    ("entity=mentions:{cut_words: wide}", "expected one of refuse, widen"),
])
def test_an_annotation_that_does_not_fit_is_an_error_in_words(
    town: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    monkeypatch.chdir(town)
    Path("other.jsonl").write_text('{"text": "Paris is here", "spans": [{"start": 0, "end": 5, "id": "Q1"}]}\n')
    words = ["finetune", "run", "--recipe", "span_classification", "--train", "train.jsonl", "--dev", "dev.jsonl"]
    assert main([*words, "--annotate", given, "--out", "out"]) == 2
    assert expected in capsys.readouterr().err
