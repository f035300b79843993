"""A store whose bytes have changed is found before or while a run learns from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.corpus import Store
from cloze.corpus.shards.verifying import Verification
from cloze.errors import CorpusError
from cloze.runs import preparing
from tests.small_recipe import Train

FILES = ("tokens.bin", "words.bin", "sentences.bin", "documents.bin")


@pytest.fixture
def store(begun: Path, tmp_path: Path) -> Path:
    shutil.copytree(begun / "run" / "cloze" / "corpus" / "main" / "store", tmp_path / "store")
    return tmp_path / "store"


def damage(file: Path) -> None:
    """Flip the lowest bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_file_of_a_small_store_ends_the_run_before_it_begins(
    place: Path, train: Train, store: Path, name: str
) -> None:
    damage(store / name)
    why = "or edited; its checksum is .*, expected .*" if name in FILES[:2] else "; its bounds are not in order"
    with pytest.raises(CorpusError, match=rf"store/{name}: damaged ?{why}\.\n  Rebuild it: cloze corpus build"):
        train(place / "new", corpus=store, budget="2steps")
    assert not (place / "new").exists()


def wait(verification: Verification) -> Verification:
    if verification._thread is not None:
        verification._thread.join()
    return verification


def test_a_flipped_bit_in_a_large_store_ends_the_run_while_it_reads(
    place: Path, train: Train, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Callable[..., Any] = lambda stores: wait(Verification(stores, at_once=0))  # noqa: E731
    monkeypatch.setattr(preparing, "Verification", made)
    damage(store / "tokens.bin")
    with pytest.raises(CorpusError, match="tokens.bin: damaged or edited(?s:.*)This run has read from it. Start it again"):
        train(place / "new", corpus=store, budget="2steps")
    assert not (place / "new" / "cloze" / "checkpoints").exists()


def test_sound_stores_are_compared_to_their_end_or_it_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verification = wait(Verification([Store.open(store)], at_once=0))
    verification.check()
    assert verification.close() == ""
    monkeypatch.setattr("cloze.corpus.shards.verifying._DUTY", 1e-9)  # it never gets to the end
    note = f"note: {store}: the run ended before all checksums were compared. To compare them: cloze corpus check {store}"
    assert Verification([Store.open(store)], at_once=0).close() == note
