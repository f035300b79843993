"""The tables of reproductions/domain.py: a row per variant, means over seeds, and a model that has not learned is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def domain(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("domain")


def test_a_table_has_means_and_paired_differences_and_says_how_many_are_finished(domain: ModuleType, tmp_path: Path) -> None:
    ledger = domain.Ledger(tmp_path / "domain.jsonl")
    chosen = domain.Choice(tmp_path, tmp_path, tmp_path / "quick", ledger)
    for seed, accuracy in ((1, 0.6), (2, 0.8)):
        ledger.add(chosen.run("thaw", "gradual", 500, seed), {"test": {"accuracy": accuracy}})
        ledger.add(chosen.run("thaw", "all at once", 500, seed), {"test": {"accuracy": accuracy + 0.1 + seed / 100}})
    measured = {"domain": 1.3, "general": 1.2, "domain_tokens_per_word": 1.4}
    for seed in domain.SEEDS:
        run = chosen.run("continue", "the full rate", domain.TOKENS, seed)
        ledger.add(run, {"before": measured, "after": {**measured, "domain": 1.0}})
    first, second = domain.tables(ledger)
    assert first.splitlines()[-1] == "| the full rate | 1.300 ± 0.000 | 1.000 ± 0.000 | 1.200 ± 0.000 | 1.200 ± 0.000 |"
    assert second.splitlines()[-2:] == [
        "| gradual | – | 70.0 ± 14.1 (2) | – |", "| *gradual − all at once* | – | **-11.5 ± 0.7 (2)** | – |",
    ]  # fmt: skip


def test_a_model_that_has_learned_too_little_is_refused(domain: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "cloze" / "log.jsonl"
    log.parent.mkdir()

    def write(loss: float) -> None:
        start = {"event": "start", "baselines": {"lm": {"single": 7.0}}}
        log.write_text("\n".join(map(json.dumps, [start, {"event": "held_out", "objectives": {"lm": loss}}])))

    write(5.4)
    domain.require_learned(tmp_path)
    write(5.6)
    with pytest.raises(SystemExit, match="it has learned too little"):
        domain.require_learned(tmp_path)
