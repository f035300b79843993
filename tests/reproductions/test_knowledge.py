"""reproductions/knowledge.py: wrong knowledge is the same knowledge elsewhere, and every system stands next to its twin."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def knowledge() -> Iterator[ModuleType]:
    """The script as a module; it imports its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "reproductions"))
        yield importlib.import_module("knowledge")


def test_a_shuffled_column_holds_the_same_values_under_the_same_heading(knowledge: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "e.tsv"
    path.write_text("id\tlabel\n" + "".join(f"Q{i}\tname {i}\n" for i in range(50)), encoding="utf-8")
    made = knowledge.shuffled_column(path, 1, 1, tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert made[0] == "id\tlabel" and [line.split("\t")[0] for line in made[1:]] == [f"Q{i}" for i in range(50)]
    values = [line.split("\t")[1] for line in made[1:]]
    assert sorted(values) == sorted(f"name {i}" for i in range(50)) and values != [f"name {i}" for i in range(50)]


def test_only_chosen_words_exchange_their_vectors(knowledge: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("12 1\nthe 0.5\ncat 0.7\n" + "".join(f"/m/{i} {i}\n" for i in range(10)), encoding="utf-8")
    knowledge.exchange(path, lambda word: word.startswith("/m/"), 1)
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    assert head == "12 1" and rows[:2] == ["the 0.5", "cat 0.7"]
    assert sorted(row.split()[0] for row in rows[2:]) == sorted(f"/m/{i}" for i in range(10))
    assert [row.split()[1] for row in rows[2:]] == [str(i) for i in range(10)]
    assert rows[2:] != [f"/m/{i} {i}" for i in range(10)]


def test_a_sentence_keeps_the_mentions_that_it_has(knowledge: ModuleType) -> None:
    text = "It rained. Anna saw Rome in May. Nobody knew why."
    spans = [{"start": text.index(name), "end": text.index(name) + len(name), "id": name} for name in ("Anna", "Rome")]
    found = [*knowledge.knowledge_data.split(text, spans)]
    assert [sentence for sentence, _ in found] == ["Anna saw Rome in May."]
    assert [found[0][0][span["start"] : span["end"]] for span in found[0][1]] == ["Anna", "Rome"]


def test_a_system_without_a_twin_of_its_own_stands_next_to_masked_words(knowledge: ModuleType, tmp_path: Path) -> None:
    ledger = knowledge.Ledger(tmp_path / "l.jsonl")
    for seed in knowledge.SEEDS:
        ledger.add(knowledge.Cell("mlm", "twin", seed).run, {"names": 60.0 + seed})
        ledger.add(knowledge.Cell("k-bert", "true", seed).run, {"names": 70.0})
    ledger.add(knowledge.Cell("k-bert", "shuffled", 1).run, {"names": 50.0})
    assert "| k-bert | names | 70.0 ± 0.0 | 50.0 (1) | 62.0 ± 1.0 |" in [*knowledge.tables(ledger)]


def test_every_recipe_that_is_adapted_keeps_its_objectives_and_fits_the_base(knowledge: ModuleType) -> None:
    for name in ("roberta", "kepler", "libert", "sensebert", "sentilare", "kg-bert", "wklm", "ernie-2.0", "knowbert"):
        recipe = knowledge.adapted(name)
        (network,) = recipe["network"].values()
        assert network["segments"] == 0 and network["dropout"] == 0.0 and recipe["training"]["steps"] == knowledge.STEPS
        (network,) = knowledge.adapted(name, segments=2)["network"].values()
        assert network["segments"] == 2
        sources = [recipe["corpus"]] if "corpus" in recipe else recipe["sources"].values()
        assert all(options["length"] <= 128 for source in sources for options in source.values())
