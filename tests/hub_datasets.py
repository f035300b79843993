"""Data sets on a server on the loopback, for tests of what reads them by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloze.corpus.readers import hub_datasets
from tests.hub_server import Hub, serving

TEXTS = [f"Text {number} is about the number {number * 7}.\n\nIt has two paragraphs." for number in range(60)]


def write_rows(file: Path, rows: dict[str, Any], features: Any = None) -> None:
    """A Parquet file, with the columns as a data set declares them."""
    import pyarrow as pa
    from pyarrow import parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(rows)
    if features is not None:
        table = table.replace_schema_metadata(features.arrow_schema.metadata)
    parquet.write_table(table, file, row_group_size=7)


@contextmanager
def serving_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the data sets `org/texts` (two files), `org/reviews` (classes, bytes), `org/several` (configurations, in CSV),
    `org/parts` (without a split to train on), `org/script` (code), `org/gated` and `org/empty`; an empty cache."""
    import datasets
    from huggingface_hub import HfFileSystem, constants

    monkeypatch.chdir(tmp_path)
    root = tmp_path / "hub"
    for number in range(2):
        part = TEXTS[number * 30 : number * 30 + 30]
        rows = {"id": range(30), "text": part, "body": [text.upper() for text in part]}
        write_rows(root / "texts" / "data" / f"train-0000{number}-of-00002.parquet", rows)
    write_rows(root / "texts" / "data" / "test-00000-of-00001.parquet", {"id": [1], "text": ["A test."], "body": ["B"]})
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]), photo=datasets.Value("binary")
    )  # fmt: skip
    for split, count in (("train", 24), ("test", 8)):
        rows = {
            "text": [f"{split} {'fine' if n % 2 else 'dull'} {n}" for n in range(count)], "label": [n % 2 for n in range(count)],
            "photo": [b"\x00"] * count,
        }  # fmt: skip
        write_rows(root / "reviews" / f"{split}.parquet", rows, features)
    for config in ("de", "fr"):
        (root / "several" / config).mkdir(parents=True)
        lines = [f"{config} {number},{number % 2}\n" for number in range(3)]
        (root / "several" / config / "train.csv").write_text("text,label\n" + "".join(lines))
    configs = "".join(f"- config_name: {config}\n  data_files: {config}/*.csv\n" for config in ("de", "fr"))
    (root / "several" / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    write_rows(root / "script" / "train.parquet", {"text": ["a"]})
    (root / "script" / "script.py").write_text("raise SystemExit")
    for split in ("validation", "test"):
        write_rows(root / "parts" / f"{split}.parquet", {"text": ["a"]})
    (root / "empty").mkdir()
    (root / "empty" / "README.md").write_text("nothing\n")
    names = ("texts", "reviews", "several", "parts", "script", "empty")
    served = Hub({f"datasets/org/{name}": root / name for name in names}, gated={"datasets/org/gated"})
    forget_datasets()
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


def forget_datasets() -> None:
    """What a new process knows of data sets: nothing."""
    hub_datasets._SPLITS.clear()
    hub_datasets._builder.cache_clear()
