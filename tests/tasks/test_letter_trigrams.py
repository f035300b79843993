"""DSSM begins without a checkpoint, learns to retrieve, and reads words that its training text lacked."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from cloze.checkpoint.build import load_checkpoint
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.options import FinetuneOptions
from cloze.tasks.tuned_folder import load_tuned

TOPICS = ("cat", "dog", "mice", "rain", "river", "night", "garden", "mat")


def test_it_learns_from_pairs_and_finds_passages_for_inflected_words(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    rows = [(f"the {a} saw the {b}", f"on it {b} and all {a}") for a, b in combinations(TOPICS, 2)]
    pairs.write_text("query\tpassage\n" + "".join(f"{query}\t{passage}\n" for query, passage in rows))
    values = ["training.batch=14", "training.epochs=6", "network.trigrams=60", "training.rate.peak=0.2"]
    tuned = finetune(
        "dssm", task="retrieval", train=[str(pairs)], dev=[str(pairs)], out=tmp_path / "out", overrides=values,
        report=lambda line: None,
    )
    learner: Any = load_tuned(load_checkpoint(tuned.folder))[0]
    assert learner.measure(learner.encode_labelled(learner.task.read(pairs)))["mrr"] > 0.9
    ((best,),) = learner.retrieve(["cats rivers gardens nights"], enumerate(["on it mat and all dog", "all cat river"]), most=1)
    assert best.passage == 1
    assert learner.vectors(["cats"]).tolist() != learner.vectors(["dogs"]).tolist()


def test_the_command_of_a_run_names_the_task_only_if_it_was_given() -> None:
    given = {"out": Path("out"), "train": Path("a.tsv"), "dev": Path("b.tsv")}
    assert FinetuneOptions("dssm", **given).words()[2:4] == ("dssm", "--train")  # type: ignore[arg-type]
    assert "retrieval" in FinetuneOptions("dssm", task="retrieval", **given).words()  # type: ignore[arg-type]
