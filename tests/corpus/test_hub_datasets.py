"""Data sets by their names on the hub: streamed by the real client from a server on the loopback, read like files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.readers import read_documents
from cloze.corpus.readers.columnar import columns_of
from cloze.corpus.readers.hub_datasets import DatasetName, is_dataset, split_of
from cloze.corpus.readers.hub_tables import local_table, with_dataset_names, with_local_tables
from cloze.corpus.records.answer import Columns
from cloze.corpus.records.build_records import build_records
from cloze.corpus.records.classes import ClassAnswer
from cloze.corpus.shards.join import write_as_one
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError, MissingExtra
from cloze.text import TextSpec, Tokenizer, train
from tests.hub_datasets import TEXTS, forget_datasets, serving_datasets
from tests.hub_server import Hub

datasets = pytest.importorskip("datasets")

@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec.of({}, "wordpiece", {"size": 300}), TEXTS)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_datasets(tmp_path, monkeypatch) as served:
        yield served


def commit(hub: Hub, name: str) -> str:
    return hub.commit(f"datasets/org/{name}")


def refusal(name: str, text_format: str = "auto") -> str:
    with pytest.raises(CorpusError) as caught:
        list(read_documents([name], format=text_format))
    return str(caught.value)


def test_a_name_has_an_owner_a_revision_a_configuration_and_a_split() -> None:
    assert DatasetName.parse("hf://datasets/org/name") == DatasetName("org/name")
    full = "hf://datasets/org/name@refs/convert/parquet:20231101.de/train"
    assert DatasetName.parse(full) == DatasetName("org/name", "refs/convert/parquet", "20231101.de", "train")
    assert str(DatasetName.parse(full)) == full and DatasetName.parse(Path(full)) == DatasetName.parse(full)
    for path in ("org/name", "s3://org/name", "hf://org/name", "hf://datasets/org/name/store", "hf://datasets/org/name:a/b/c"):
        assert not is_dataset(path), path
    with pytest.raises(CorpusError, match="hf://datasets/imdb: expected hf://datasets/ORG/NAME"):
        split_of("hf://datasets/imdb")


def test_nothing_is_imported_or_asked_before_a_name_is_used() -> None:
    script = "import sys, cloze, cloze.cli.main, cloze.corpus; print({'datasets', 'huggingface_hub'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_store_has_the_checksums_of_the_same_text_in_a_file(hub: Hub, tokenizer: Tokenizer) -> None:
    Path("same.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    streamed = build_store(["hf://datasets/org/texts"], tokenizer, "streamed")
    of_file = build_store(["same.jsonl"], tokenizer, "of_file")
    assert streamed.header["files"] == of_file.header["files"] and streamed.documents == 60
    (file,) = streamed.report["files"]
    assert file["path"] == f"hf://datasets/org/texts@{commit(hub, 'texts')}:default/train"
    assert sorted(path.name for path in Path().iterdir()) == ["home", "hub", "of_file", "same.jsonl", "streamed"]
    assert not list(Path("home").rglob("*.parquet"))  # no second copy


def test_a_column_a_split_a_configuration_and_a_revision_are_chosen(hub: Hub) -> None:
    upper = [document.text for document in read_documents(["hf://datasets/org/texts"], format="auto:body")]
    assert upper == [document.text.upper() for document in read_documents(["hf://datasets/org/texts@main:default/train"])]
    assert [document.text for document in read_documents(["hf://datasets/org/texts:default/test"])] == ["A test."]
    french = [document.text for document in read_documents([f"hf://datasets/org/several@{commit(hub, 'several')}:fr"])]
    assert french == ["fr 0", "fr 1", "fr 2"]


def test_every_refusal_names_the_way_out(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no such data set on the Hugging Face Hub" in refusal("hf://datasets/org/nothing")
    assert "/datasets/org/gated, then run: hf auth login" in refusal("hf://datasets/org/gated")
    assert "has no branch, tag or commit 'v9'" in refusal("hf://datasets/org/texts@v9")
    message = refusal("hf://datasets/org/texts:test")
    assert "has no configuration 'test'; it has: default.\n  Name it, such as hf://datasets/org/texts:default, or" in message
    assert message.endswith("a split of it: hf://datasets/org/texts:default/test")
    assert (
        "has several configurations, of which none is named; it has: de, fr.\n  Name it, such as hf://datasets/org/several:de"
        in refusal("hf://datasets/org/several")
    )
    assert (
        "has no split 'tests'; it has: train, test.\n  Did you mean 'test'? Name it, such as hf://datasets/org/texts:default/test"
        in refusal("hf://datasets/org/texts:default/tests")
    )
    assert "has several splits, of which none is named; it has: validation, test." in refusal("hf://datasets/org/parts")
    assert "no column 'content'; it has: id, text, body.\n" in refusal("hf://datasets/org/texts", "auto:content")
    assert "the column 'id' holds int64, expected text" in refusal("hf://datasets/org/texts", "auto:id")
    assert "no column 'body'; it has: text, label." in refusal("hf://datasets/org/several:de", "auto:body")
    assert "script.py, which cloze never runs.\n  Look on the Hub for a copy" in refusal("hf://datasets/org/script")
    assert "has no files of data that the library datasets reads" in refusal("hf://datasets/org/empty")
    assert "Leave out --format" in refusal("hf://datasets/org/texts", "jsonl")
    with pytest.raises(CorpusError, match="parallel text is read from files"):
        build_store(["hf://datasets/org/texts"], None, "pairs", format="pairs")  # type: ignore[arg-type]
    hub.status = 500
    assert "answered with 500 Internal Server Error. Rerun the command later" in refusal("hf://datasets/org/new")
    hub.status = None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set.\n  Unset it, or give a token store" in refusal("hf://datasets/org/new")


def test_without_the_library_the_extra_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r'needs the package datasets.*\n.*pip install "cloze-lm\[datasets\]"'):
        split_of("hf://datasets/org/texts")


def test_a_stream_that_breaks_off_leaves_nothing_and_the_command_begins_again(
    hub: Hub, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    split_of("hf://datasets/org/texts")
    hub.cut = 100
    with pytest.raises(CorpusError, match="hf://datasets/org/texts@[0-9a-f]+:default/train: "):
        build_store(["hf://datasets/org/texts"], tokenizer, "store")
    assert not Path("store").exists()
    hub.cut = None
    assert build_store(["hf://datasets/org/texts"], tokenizer, "store").documents == 60


def test_a_sharded_build_has_a_task_for_each_file_and_goes_on(hub: Hub, tokenizer: Tokenizer) -> None:
    tokenizer.save(Path("words"), length=64, frame_single="{A}", frame_pair="{A} {B}")
    build = ["corpus", "build", "hf://datasets/org/texts", "--tokenizer", "words", "--shard", "600", "--workers", "1", "--out"]
    assert main([*build, "shards"]) == 0
    plan = json.loads(Path("shards/build.json").read_text())
    full_name = f"hf://datasets/org/texts@{commit(hub, 'texts')}:default/train"
    assert [(piece["path"], piece["start"]) for task in plan["tasks"] for piece in task] == [(full_name, 0), (full_name, 1)]
    assert Store.open("shards").documents == 60 and Store.open("shards").report["files"][0]["path"] == full_name
    Path("shards/store.json").unlink()
    Path("shards/tasks/00001.json").unlink()
    hub.requests.clear()
    assert main([*build, "shards"]) == 0 and Store.open("shards").documents == 60
    joined = write_as_one(Store.open("shards"), Path("joined"))
    assert joined.header["files"] == build_store(["hf://datasets/org/texts"], tokenizer, "one").header["files"]


def test_configurations_are_languages(hub: Hub, tokenizer: Tokenizer) -> None:
    paths = [f"hf://datasets/org/several:{config}" for config in ("de", "fr")]
    store = build_store(paths, tokenizer, "store", languages=True)
    assert store.languages == ("de", "fr") and store.documents == 6


def test_labelled_rows_are_those_of_the_same_table(hub: Hub, tokenizer: Tokenizer) -> None:
    names = ["bad", "good"]
    rows = [(f"train {'fine' if n % 2 else 'dull'} {n}", names[n % 2]) for n in range(24)]
    Path("same.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    source = {"answer": ClassAnswer(), "columns": Columns("text", None, "label", None, None, "auto")}
    streamed = build_records(["hf://datasets/org/reviews"], tokenizer, "streamed", **source)
    of_file = build_records(["same.csv"], tokenizer, "of_file", **source)
    assert {name: file for name, file in streamed.header["files"].items() if "lines" not in name} == {
        name: file for name, file in of_file.header["files"].items() if "lines" not in name
    }
    assert streamed.classes == ("bad", "good")
    lines = local_table("hf://datasets/org/several:de")
    expected = [{"text": f"de {number}", "label": number % 2} for number in range(3)]
    assert lines.suffix == ".jsonl" and list(map(json.loads, lines.read_text().splitlines())) == expected


def test_labelled_rows_are_copied_once_and_read_without_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    file = local_table("hf://datasets/org/reviews")
    assert columns_of(file) == ("text", "label")  # without bytes
    name = f"hf://datasets/org/reviews@{commit(hub, 'reviews')}:default/train"
    assert with_dataset_names(f"mood=x:{file},dev.tsv") == f"mood=x:{name},dev.tsv"
    assert with_local_tables(f"mood=x:{name},dev.tsv") == f"mood=x:{file},dev.tsv"
    forget_datasets()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert local_table("hf://datasets/org/reviews") == local_table(name) == file and hub.requests == []
    with pytest.raises(CorpusError, match="HF_HUB_OFFLINE is set"):
        local_table("hf://datasets/org/reviews:default/test")


def test_folders_that_datasets_wrote_are_running_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = datasets.Dataset.from_dict({"text": TEXTS, "body": [text.upper() for text in TEXTS]})
    texts.save_to_disk(tmp_path / "one", num_shards=3)
    datasets.DatasetDict(train=texts).save_to_disk(tmp_path / "all")
    (tmp_path / "same.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    expected = build_store([tmp_path / "same.jsonl"], tokenizer, tmp_path / "of_file").header["files"]
    for name in ("one", "all/train"):
        assert build_store([tmp_path / name], tokenizer, tmp_path / "store").header["files"] == expected
    upper = next(iter(read_documents([tmp_path / "one"], format="auto:body"))).text
    assert upper == "TEXT 0 IS ABOUT THE NUMBER 0.\nIT HAS TWO PARAGRAPHS."
    with pytest.raises(CorpusError, match=r"several splits \(train\)\. Name one of them, such as .*all/train"):
        build_store([tmp_path / "all"], tokenizer, tmp_path / "store")
    with pytest.raises(CorpusError, match="no column 'content'; it has: text, body"):
        list(read_documents([tmp_path / "one"], format="auto:content"))
