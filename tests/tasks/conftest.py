"""Small random systems as a checkpoint gives them, without files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def load_systems() -> Any:
    """The builders of small systems that the interop tests use, imported once."""
    name = "cloze_interop_systems"
    if name not in sys.modules:
        path = Path(__file__).parent.parent / "interop" / "systems.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def checkpoint() -> Callable[..., Any]:
    """`checkpoint("bert")` or "gpt2", "electra", …: what `load_checkpoint` gives, with random weights."""

    def make(name: str, **changes: Any) -> Any:
        made = load_systems().system(name, **{"longest": 40, **changes})
        return SimpleNamespace(
            network=made.network, heads=made.objectives, tokenizer=made.tokenizer, reading=made.reading, order=made.order,
            network_arguments=made.arguments, folder=Path("nowhere"), clock=made.network.clock,
        )

    return make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`folder("bert")`: the same system exported, a folder that `load_checkpoint` and the verbs open."""
    from cloze.interop import Card, export_folder

    made: dict[str, Path] = {}

    def export(name: str) -> Path:
        if name not in made:
            system = load_systems().system(name, longest=40)
            made[name] = tmp_path_factory.mktemp("checkpoints") / name
            export_folder(
                made[name], model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card(name)
            )
        return made[name]

    return export


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv, dev.tsv (single texts) and pairs.csv: animals against weather, learnable from one word."""
    import random

    place = tmp_path_factory.mktemp("tables")
    words = {"animal": ["cat", "dog", "mice"], "weather": ["rain", "river", "night"]}
    chance = random.Random(0)
    rows = []
    for number in range(80):
        label = ("animal", "weather")[number % 2]
        filler = chance.choice(["saw", "on the mat and", "in the garden all", "who dreamed of"])
        rows.append((f"the {chance.choice(words[label])} {filler} the {chance.choice(words[label])}", label))
    for name, part in (("train", rows[:64]), ("dev", rows[64:])):
        lines = [f"{text}\t{label}" for text, label in part]
        (place / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    pairs = [(a, b, "same" if x == y else "other") for (a, x), (b, y) in zip(rows, rows[3:] + rows[:3], strict=True)]
    pairs += [(a, b, "same") for (a, _), (b, _) in zip(rows, rows[2:] + rows[:2], strict=True)]
    (place / "pairs.csv").write_text("one,two,label\n" + "".join(f"{a},{b},{c}\n" for a, b, c in pairs))
    return place
