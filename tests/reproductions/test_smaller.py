"""reproductions/smaller.py: every variant makes a network that is measured, and the table has a row for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.interop import systems

ROWS = (8, 4, 4)
#: One variant for each way of making a network; `make slow` runs all of them on both kinds of task.
WAYS = (
    "teacher", "unlabelled", "states, random", "theseus-constant", "cut", "halved, layer dropout", "int8", "magnitude 0.5",
    "8 bits, tuned",
)  # fmt: skip


def sentences(data: Path) -> dict[str, list[str]]:
    """Texts of two labels."""
    texts = [("the cat dreams of mice", "pos"), ("rain fell all night", "neg")]
    return {"train": [json.dumps({"text": f"{text} {n}", "label": label}) + "\n" for n in range(12) for text, label in texts]}


def words(data: Path) -> dict[str, list[str]]:
    """Sentences of CoNLL-U."""
    def block(n: int) -> str:
        rows = enumerate([("the", "DET"), ("cat", "NOUN"), ("sleeps", "VERB"), (str(n), "NUM")], 1)
        return "".join(f"{place}\t{word}\t_\t{tag}" + "\t_" * 6 + "\n" for place, (word, tag) in rows) + "\n"

    return {"train": [block(n) for n in range(24)]}


@pytest.fixture(scope="module")
def smaller(script: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The script with tiny tasks, a tiny network of six layers in place of MiniLM, one epoch and no forecast of memory."""
    from cloze.interop import Card, export_folder

    start = tmp_path_factory.mktemp("start") / "minilm"
    made = systems.system("bert", **{"positions.max_length": 128, "layers": 6, "width": 8, "feed_forward.inner": 8})
    export_folder(start, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("minilm"))
    with pytest.MonkeyPatch.context() as patch:
        module = script("smaller")
        patch.setattr(module.task_files, "minilm", lambda: start)
        patch.setattr(module.task_files, "SETS", {
            "polarity": ("jsonl", sentences), "clinc30": ("jsonl", sentences), "ewt": ("conllu", words),
        })
        patch.setattr(module, "TASKS", {name: (kind, ROWS) for name, (kind, _) in module.TASKS.items()})
        patch.setattr(module, "EPOCHS", dict.fromkeys(module.TASKS, 1))
        patch.setattr(module, "EXTRA", 4)
        patch.setattr(module, "BATCHES", (1, 2))
        patch.setattr(module, "ROUNDS", 2)
        patch.setattr("cloze.runs.preparing.choose_micro_batch", lambda *given, **more: None)
        yield module


@pytest.fixture(scope="module")
def chosen(smaller: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of work, whose teachers are made once."""
    work = tmp_path_factory.mktemp("work")
    return smaller.Choice(work, work, smaller.Ledger(work / "smaller.jsonl"))


def runs(smaller: ModuleType, chosen: Any, task: str, variant: str) -> dict[str, Any]:
    """The line of a cell."""
    smaller.one(chosen, task, variant, 1)
    (found,) = chosen.ledger.results(**chosen.run(task, variant, 1))
    left = {path.name for path in chosen.work.iterdir()}
    assert not [name for name in left if name.startswith(("out-", "start-")) or name.endswith(".yaml")]
    assert 0 <= found["test"]["accuracy"] <= 1 and all(found[name]["2"] > 0 for name in ("milliseconds", "teacher_milliseconds"))
    return found


def check(smaller: ModuleType, chosen: Any, task: str, variant: str) -> None:
    """A cell has the layers, and so the parameters and bytes, of its variant."""
    found = runs(smaller, chosen, task, variant)
    kept = variant not in ("teacher", "int8", *smaller.AFTER, *smaller.WHILE)
    layer = 8 * 8 * 4 + 4 * 8 + 2 * 8 * 8 + 8 + 8 + 4 * 8
    (whole,) = chosen.ledger.results(**chosen.run(task, "teacher", 1)) or [runs(smaller, chosen, task, "teacher")]
    assert whole["parameters"] - found["parameters"] == (3 * layer if kept else 0)
    assert (found["bytes"] < whole["bytes"]) == kept or variant == "int8"  # whose own data is larger than so small a network


@pytest.mark.parametrize("variant", WAYS)
def test_every_way_of_making_a_smaller_network_runs(smaller: ModuleType, chosen: Any, variant: str) -> None:
    check(smaller, chosen, "polarity", variant)


def test_words_are_labelled_in_the_same_ways(smaller: ModuleType, chosen: Any) -> None:
    check(smaller, chosen, "ewt", "scores")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["polarity", "ewt"])
def test_every_variant_runs_on_both_kinds_of_task(smaller: ModuleType, chosen: Any, task: str) -> None:
    for variant in smaller.VARIANTS:
        check(smaller, chosen, task, variant)


def test_the_table_has_means_of_scores_sizes_and_times(smaller: ModuleType, tmp_path: Path) -> None:
    ledger = smaller.Ledger(tmp_path / "smaller.jsonl")
    chosen = smaller.Choice(tmp_path, tmp_path, ledger)
    for seed, accuracy in ((1, 0.7), (2, 0.8)):
        times = {"milliseconds": {"1": 2.0 * seed, "2": 9.0}, "teacher_milliseconds": {"1": 6.0, "2": 18.0}}
        found = {"test": {"accuracy": accuracy}, "parameters": 12_000_000, "bytes": 48_000_000, **times}
        ledger.add(chosen.run("ewt", "cut", seed), found)
    assert list(smaller.tables(ledger)) == [
        "| network | polarity | clinc30 | ewt | parameters | MB | ms, 1 text (teacher) | ms, 2 texts (teacher) |",
        "|---|---|---|---|---|---|---|---|",
        "| cut | – | – | 75.0 ± 7.1 (2) | 12,000,000 | 48.0 | 3.0 (6.0) | 9.0 (18.0) |",
    ]


def test_differences_are_paired_by_seed_and_bold_if_they_are_told_from_zero(smaller: ModuleType, tmp_path: Path) -> None:
    ledger = smaller.Ledger(tmp_path / "smaller.jsonl")
    chosen = smaller.Choice(tmp_path, tmp_path, ledger)
    scores = {
        ("polarity", "cut"): (0.7, 0.8, 0.9), ("polarity", "tune"): (0.6, 0.71), ("clinc30", "cut"): (0.5,),
        ("clinc30", "tune"): (0.4,), ("ewt", "cut"): (0.7, 0.8), ("ewt", "tune"): (0.72, 0.76),
    }  # fmt: skip
    for (task, variant), accuracies in scores.items():
        for seed, accuracy in enumerate(accuracies, 1):
            ledger.add(chosen.run(task, variant, seed), {"test": {"accuracy": accuracy}})
    assert list(smaller.orders(ledger))[:2] == ["| difference | polarity | clinc30 | ewt |", "|---|---|---|---|"]
    rows = {row.split(" | ")[0]: row for row in smaller.orders(ledger)}
    assert rows["| cut − tune"] == "| cut − tune | **+9.5 ± 0.7 (2)** | – | +1.0 ± 4.2 (2) |"
    assert rows["| scores − tune"] == "| scores − tune | – | – | – |"


def test_teachers_come_first_and_those_that_are_there_are_not_made_again(smaller: ModuleType, tmp_path: Path) -> None:
    chosen = smaller.Choice(tmp_path, tmp_path, smaller.Ledger(tmp_path / "smaller.jsonl"))
    cells = [("ewt", "cut", 1), ("ewt", "tune", 1), ("polarity", "cut", 2)]
    assert smaller.teachers(chosen, cells) == [("ewt", "teacher", 1), ("polarity", "teacher", 2)]
    assert {path.name for path in tmp_path.glob("*-extra.jsonl")} == {"ewt-extra.jsonl", "polarity-extra.jsonl"}
    made = smaller.folder_of(chosen, "ewt", 1) / "cloze"
    made.mkdir(parents=True)
    (made / "task.json").write_text("{}")
    assert smaller.teachers(chosen, cells) == [("polarity", "teacher", 2)]
