"""Data sets by their names on the hub: streamed by the real client from a server on the loopback, read like files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.readers import hub_datasets
from cloze.corpus.readers.hub_datasets import DatasetName, is_dataset, split_of
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError
from cloze.text import TextSpec, Tokenizer, train
from tests.hub_server import Hub, serving

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [f"Text {number} is about the number {number * 7}.\n\nIt has two paragraphs." for number in range(60)]


def write_rows(file: Path, rows: dict[str, Any], features: Any = None) -> None:
    """A Parquet file, with the columns as a data set declares them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(rows)
    if features is not None:
        table = table.replace_schema_metadata(features.arrow_schema.metadata)
    parquet.write_table(table, file, row_group_size=7)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec.of({}, "wordpiece", {"size": 300}), TEXTS)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the data sets `org/texts` (two files), `org/reviews` (classes), `org/several` (configurations of JSON lines),
    `org/script` (code), `org/gated` and `org/empty`; an empty cache."""
    from huggingface_hub import HfFileSystem, constants

    monkeypatch.chdir(tmp_path)
    root = tmp_path / "hub"
    for number in range(2):
        part = TEXTS[number * 30 : number * 30 + 30]
        rows = {"id": range(30), "text": part, "body": [text.upper() for text in part]}
        write_rows(root / "texts" / "data" / f"train-0000{number}-of-00002.parquet", rows)
    write_rows(root / "texts" / "data" / "test-00000-of-00001.parquet", {"id": [1], "text": ["A test."], "body": ["B"]})
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
    for split, count in (("train", 24), ("test", 8)):
        rows = {"text": [f"{split} {'fine' if n % 2 else 'dull'} {n}" for n in range(count)], "label": [n % 2 for n in range(count)]}
        write_rows(root / "reviews" / f"{split}.parquet", rows, features)
    for config in ("de", "fr"):
        (root / "several" / config).mkdir(parents=True)
        lines = [json.dumps({"text": f"{config} {number}", "label": number % 2}) + "\n" for number in range(3)]
        (root / "several" / config / "train.jsonl").write_text("".join(lines))
    configs = "".join(f"- config_name: {config}\n  data_files: {config}/*.jsonl\n" for config in ("de", "fr"))
    (root / "several" / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    write_rows(root / "script" / "train.parquet", {"text": ["a"]})
    (root / "script" / "script.py").write_text("raise SystemExit")
    (root / "empty").mkdir()
    (root / "empty" / "README.md").write_text("nothing\n")
    names = ("texts", "reviews", "several", "script", "empty")
    served = Hub({f"datasets/org/{name}": root / name for name in names}, gated={"datasets/org/gated"})
    hub_datasets._SPLITS.clear()
    hub_datasets._builder.cache_clear()
    HfFileSystem.clear_instance_cache()
    with serving(served) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)  # as HF_ENDPOINT does when the client is imported
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", address)
        monkeypatch.setattr(datasets.config, "HUB_DATASETS_URL", address + "/datasets/{repo_id}/resolve/{revision}/{path}")
        monkeypatch.setattr(datasets.config, "STREAMING_READ_RETRY_INTERVAL", 0)
        monkeypatch.setattr(datasets.config, "STREAMING_READ_MAX_RETRIES", 1)
        monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
        for module in (constants, datasets.config):
            monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
        yield served


def test_a_store_has_the_checksums_of_the_same_text_in_a_file(hub: Hub, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "same.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    streamed = build_store(["hf://datasets/org/texts"], tokenizer, tmp_path / "streamed")
    of_file = build_store(["same.jsonl"], tokenizer, tmp_path / "of_file")
    assert streamed.header["files"] == of_file.header["files"] and streamed.documents == 60
    (file,) = streamed.report["files"]
    assert file["path"] == f"hf://datasets/org/texts@{hub.commit('datasets/org/texts')}:default/train"
    print("\n".join(hub.requests))
