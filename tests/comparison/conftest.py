"""A small comparison: two recipes of one layer, a task of 24 rows, and workers that need no process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloze.comparison import work
from cloze.comparison.cell import RESULT, read_json, write_json
from cloze.comparison.design import Design, budgets_of, candidates_of, tasks_of
from cloze.jobs import Ended, Job

RECIPE = """\
name: NAME
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 200}}}
corpus: {passages: {length: 16}}
network: {transformer: {layers: 1, width: WIDTH, heads: 2}}
exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask: {rate: 0.15}
  - corrupt: {}
  - predict: masked
objectives:
  - token_prediction: {transform: gelu, tie: true}
training:
  optimizer: adamw
  rate: {linear: {peak: 1e-3, warmup: 0.1}}
  batch: 8
  precision: fp32
  evaluate_every: 0.5
reading: {single: "[CLS] {A} [SEP]"}
"""
WORDS = ["rain", "falls", "on", "the", "old", "roof", "and", "a", "cat", "sleeps", "under", "warm", "stones"]
TUNING = ["training.epochs=1", "training.batch=8", "length=16", "task.patience=0"]


class Here:
    """Workers that run each job in this process as soon as it is started; `started` are the folders of the cells."""

    count = 1

    def __init__(self, run: Callable[..., int] = work.run) -> None:
        self.run, self.started = run, list[str]()
        self._ended: list[Ended] = []

    @property
    def running(self) -> int:
        return len(self._ended)

    def start(self, job: Job) -> None:
        folder = Path(job.words[0])
        self.started.append(folder.name)
        self._ended.append(Ended(job, self.run(folder, *map(float, job.words[1:]))))

    def wait(self, seconds: float) -> Ended:
        return self._ended.pop(0)

    def stop(self) -> None:
        self._ended.clear()


def stub(folder: Path, *, score: Callable[[Any], float] = lambda request: 0.5) -> int:
    """A cell without its work: a result of the right form."""
    cell: Any = read_json(folder / "cell.json")
    test = score(cell["request"])
    results: dict[str, dict[str, Any]] = {
        "corpus": {"store": "run/store", "tokens": 100, "documents": 4, "vocabulary": 50, "bytes": 400},
        "pretrain": {
            "tokens": 64.0, "flops": 1e6, "seconds": 1.0, "held_out": 3.0,
            "curve": [[32.0, 5e5, 0.5, 4.0], [64.0, 1e6, 1.0, 3.0]],
        },
        "finetune": {
            "metric": "accuracy", "dev": test, "test": test, "metrics": {"accuracy": test}, "examples": 8, "baseline": 0.5,
            "constant": False, "scores": [test] * 8, "trained": 1000, "seconds": 1.0,
        },
    }  # fmt: skip
    write_json(folder / RESULT, results[cell["kind"]])
    return 0


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text.txt, a.yaml, b.yaml, and train.tsv, dev.tsv and test.tsv, which share no row, and copy.tsv,
    which is dev.tsv."""
    folder = tmp_path_factory.mktemp("compare")
    documents = [
        "\n".join(" ".join(WORDS[(d * s + i) % 13] for i in range(5 + (d + s) % 6)) + "." for s in range(1, 7))
        for d in range(1, 31)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    for name, width in (("a", 16), ("b", 24)):
        text = RECIPE.replace("NAME", name).replace("WIDTH", str(width))
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    for part, first, count in (("train", 0, 24), ("dev", 24, 8), ("test", 32, 16)):
        rows = [
            f"{WORDS[i % 13]} {WORDS[i // 13]} {'warm' if i % 2 else 'old'}\t{'yes' if i % 2 else 'no'}"
            for i in range(first, first + count)
        ]
        (folder / f"{part}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    shutil.copy(folder / "dev.tsv", folder / "copy.tsv")
    return folder


@pytest.fixture
def design(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Design]]:
    """`design(seeds=3)`: the small comparison with other values; names of files are those in the folder."""
    monkeypatch.chdir(files)

    def make(*names: str, tasks: tuple[str, ...] = ("mood=train.tsv,dev.tsv,test.tsv",), **values: Any) -> Design:
        given: dict[str, Any] = {"candidates": candidates_of(names or ("a.yaml", "b.yaml"))}
        given |= {"corpus": ["text.txt"], "budgets": budgets_of(["4steps"]), "seeds": 2, "tuning": TUNING, "device": "cpu"}
        return Design(tasks=tasks_of(tasks), **{**given, **values})

    yield make
