"""A hundred labels and text of one's own: simple models, networks of that text, and a large sentence encoder, on the same rows.

    python reproductions/few_labels.py --data ../shared/data --work runs/few [--sets polarity] [--systems ngrams] [--seeds 1,2]
    python reproductions/few_labels.py --table

A set (few_labels_data.py) keeps the labels of a few rows, 100 or ten a class. A fifth of these are the dev rows; models without a
choice to make read them as training rows, too. The corpus is the text of all rows but the test rows, without labels. Every seed
draws other labelled rows. `ngrams` is cloze's linear model on n-grams, `em` naive Bayes with expectation maximisation over the
corpus (Nigam et al., 2000), `vectors` the mean of skip-gram vectors of the corpus with a logistic regression, `fasttext` a
classifier of fastText, `random` an untrained network of quick's shape, `quick` that network pre-trained on the corpus, `minilm`
all-MiniLM-L6-v2, `frozen` a logistic regression on its vectors, which are not tuned. A finished cell is a line in
results/few_labels.jsonl and is not repeated (ledger.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from few_labels_data import SETS, Labelled
from ledger import RESULTS, Ledger

MANY = {"clinc150": 1500, "fewrel": 160}  # labels where a hundred are fewer than ten a class
TOKENS = 3_000_000


class Cell:
    """One system on one draw of labels: its rows as files, and its corpus."""

    def __init__(self, labelled: Labelled, labels: int, seed: int, work: Path) -> None:
        self.labelled, self.labels, self.seed, self.work = labelled, labels, seed, work
        rows = labelled.draw(labels, seed)
        by_class = {label: [row for row in rows if row[1] == label] for label in labelled.classes}
        self.dev = [row for own in by_class.values() for row in own[: max(1, len(own) // 5)]]
        self.train = [row for row in rows if row not in self.dev]
        self.folder = work / f"{labelled.name}-{labels}-{seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, part in (("train", self.train), ("dev", self.dev), ("test", labelled.test)):
            self.file(name).write_text("".join(f"{json.dumps({'text': t, 'label': l}, ensure_ascii=False)}\n" for t, l in part))

    def file(self, part: str) -> Path:
        """The file of a part of the rows."""
        return self.folder / f"{part}.jsonl"

    def corpus(self) -> Path:
        """The corpus as a file, one text a line."""
        path = self.work / f"{self.labelled.name}.txt"
        if not path.exists():
            path.write_text("".join(f"{' '.join(text.split())}\n" for text in self.labelled.corpus()))
        return path

    def pretrained(self, recipe: str, *options: str) -> Path:
        """The run of a recipe on the corpus; an unfinished one resumes."""
        out = self.work / f"{recipe}-{self.labelled.name}"
        if not (out / "model.safetensors").exists() or not (out / "cloze/done").exists():
            call("pretrain", recipe, "--corpus", self.corpus(), "--format", "line", "--out", out, *options)
            (out / "cloze/done").touch()
        return out


def call(*arguments: Any) -> str:
    """Run the command in a process of its own, and return what it prints."""
    command = [sys.executable, "-m", "cloze", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def tuned(cell: Cell, start: Path | str, *options: str) -> float:
    """The accuracy of `cloze finetune` on the test rows, as a percentage."""
    out = cell.folder / "out"
    arguments = ("--train", cell.file("train"), "--dev", cell.file("dev"), "--test", cell.file("test"), "--seeds", cell.seed)
    printed = call("finetune", start, *arguments, "--out", out, "--overwrite", "--json", *options)
    return 100 * json.loads(printed)["test"]["accuracy"]
