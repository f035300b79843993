"""Building a store of several shards: in any order, in parts, after any interruption, with the same bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cloze.corpus import Store
from cloze.corpus.shards.join import write_as_one
from cloze.corpus.shards.manifest import ShardedStore
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError
from cloze.jobs import Ended, Job, LocalWorkers
from cloze.runs import shard_building
from cloze.runs.shard_building import Building, part_of, require_place, shard_size
from cloze.text import Normalise, TextSpec, Tokenizer, WordPiece, train


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for name, count in (("a.txt", 400), ("b.txt", 20), ("c.txt", 25)):
        documents = [f"The cat number {n} of {name} sleeps.\nIt dreams of fish {n * 7}.\n" for n in range(count)]
        (folder / name).write_text("\n".join(documents))
    (folder / "d.txt").write_text("")
    return folder


@pytest.fixture(scope="module")
def tokenizer(text: Path) -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), WordPiece(size=80)), (text / "a.txt").read_text().split("\n"))


Begin = Callable[..., Building]


@pytest.fixture
def begin(text: Path, tokenizer: Tokenizer) -> Begin:
    def make(out: Path, **given: Any) -> Building:
        chosen = {"tokens": 3000, "format": "blank", "recipe": None, "words": None, "annotate": [], "say": lambda line: None}
        return Building.begin(out, [str(text)], tokenizer, **{**chosen, **given})

    return make


def sums(out: Path) -> dict[str, str]:
    header = json.loads((out / "store.json").read_text())
    return {name: one["sha256"] for name, one in header["files"].items()} | {
        key: str(header[key]) for key in ("counts", "shards")
    }


def test_shards_hold_the_text_in_order_and_parts_give_the_same_bytes(
    begin: Begin, text: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = begin(tmp_path / "whole")
    whole.work()
    store = whole.join()
    assert isinstance(store, ShardedStore) and len(store.shards) > 3 and max(s.tokens for s in store.shards) <= 3000
    alone = build_store([text], tokenizer, tmp_path / "alone", format="blank", workers=1)
    joined = write_as_one(store, tmp_path / "joined")
    assert joined.header["files"] == alone.header["files"] and joined.counts().tolist() == alone.counts().tolist()
    for part in ("3/3", "1/3", "2/3"):
        begin(tmp_path / "parts").work(part_of(part))
    begin(tmp_path / "parts").join()
    assert sums(tmp_path / "parts") == sums(tmp_path / "whole")


def test_a_build_that_was_stopped_goes_on_and_builds_nothing_twice(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    real = shard_building.build_task

    def until(most: int) -> Callable[..., None]:
        def build_task(store: Path, number: int, *args: Any, **given: Any) -> None:
            if len(built) == most:
                raise KeyboardInterrupt
            real(store, number, *args, **given)
            built.append(number)

        return build_task

    building = begin(tmp_path / "s")
    for most in (1, 3):
        monkeypatch.setattr(shard_building, "build_task", until(most))
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path / "s").work()
        with pytest.raises(CorpusError, match=rf"{len(building.tasks) - most} of {len(building.tasks)} tasks are not done"):
            building.join()
    monkeypatch.setattr(shard_building, "build_task", until(-1))
    said: list[str] = []
    begin(tmp_path / "s", say=said.append).work()
    assert sorted(built) == list(range(len(building.tasks))) and "going on; 3 of" in said[0]
    begin(tmp_path / "other").work()
    begin(tmp_path / "s").join()
    begin(tmp_path / "other").join()
    assert sums(tmp_path / "s") == sums(tmp_path / "other")


def test_one_process_of_this_machine_starts_no_other(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalWorkers, "start", lambda self, job: pytest.fail("started another process"))
    building, told = begin(tmp_path / "s"), list[tuple[int, int]]()
    building.run(LocalWorkers(1), progress=lambda *done: told.append(done))
    tasks = len(building.tasks)
    assert told == [(number + 1, tasks) for number in range(tasks)] and building.left() == []
    begin(tmp_path / "other").work()
    building.join()
    begin(tmp_path / "other").join()
    assert sums(tmp_path / "s") == sums(tmp_path / "other")


def test_of_two_processes_of_this_machine_one_is_started_and_its_failure_is_told(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(LocalWorkers):
        started: ClassVar[list[Job]] = []
        stopped: ClassVar[list[int]] = []

        def start(self, job: Job) -> None:
            job.log.write_text("task 3: done\na.txt: is no text\n")
            self.started.append(job)

        running = 1

        def wait(self, seconds: float) -> Ended:
            return Ended(self.started[0], CorpusError.exit_code)

        def stop(self) -> None:
            self.stopped.append(1)

    building = begin(tmp_path / "s")
    with pytest.raises(CorpusError, match="^a.txt: is no text$"):
        building.run(Fails(2))
    assert [job.words for job in Fails.started] == [(str(tmp_path / "s"), "1/1")] and Fails.stopped == [1]
    assert len(building.left()) == len(building.tasks) - 1  # it looks at the others after each of its own tasks


def test_a_file_that_cannot_be_divided_makes_several_shards(begin: Begin, tmp_path: Path) -> None:
    building = begin(tmp_path / "s", format="book", tokens=200)
    building.work()
    store = building.join()
    names = [shard.name for shard in store.shards]  # type: ignore[attr-defined]
    assert len(building.tasks) < len(names) or names == sorted(names)
    assert store.documents == 3


def test_other_text_or_arguments_are_refused_and_overwrite_begins_again(begin: Begin, tmp_path: Path) -> None:
    begin(tmp_path / "s").work()
    with pytest.raises(CorpusError, match="begun with other arguments or other text: `tokens` has changed.\n.*--overwrite"):
        begin(tmp_path / "s", tokens=2000)
    require_place(tmp_path / "s", replace=False)
    require_place(tmp_path / "s", replace=True)
    assert begin(tmp_path / "s", tokens=2000).left()


@pytest.mark.parametrize(("given", "tokens"), [("256M", 1 << 28), ("1000", 1000), ("2k", 2048)])
def test_sizes_of_shards(given: str, tokens: int) -> None:
    assert shard_size(given) == tokens


def test_sizes_and_parts_that_mean_nothing_are_refused() -> None:
    for given in ("", "M", "1.5G", "0"):
        with pytest.raises(CorpusError, match="expected a number of tokens such as 256M"):
            shard_size(given)
    for given in ("0/4", "5/4", "a/b", "3"):
        with pytest.raises(CorpusError, match="expected I/N with I from 1 to N"):
            part_of(given)


def test_a_shard_has_the_tokenizer_that_an_ordinary_store_would_have(
    begin: Begin, text: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    building = begin(tmp_path / "s")
    building.work()
    store = building.join()
    alone = build_store([text], tokenizer, tmp_path / "alone", format="blank", workers=1)
    for folder in (store.path, *(store.path / "shards" / shard.name for shard in store.shards)):  # type: ignore[attr-defined]
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert (folder / "tokenizer" / name).read_bytes() == (alone.path / "tokenizer" / name).read_bytes()
    assert Store.open(store.path / "shards" / "00000").tokenizer().hash == tokenizer.hash


def test_a_build_begun_with_relative_paths_goes_on_from_another_folder(
    begin: Begin, text: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words.txt").write_text("cat number\n", encoding="utf-8")
    given: dict[str, Any] = {"tokens": 3000, "format": "blank", "recipe": None, "annotate": ["phrase=list:words.txt"]}
    given |= {"words": None, "say": lambda line: None}
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(text, tmp_path)
    Building.begin(tmp_path / "out", [relative], tokenizer, **given)
    plan = json.loads((tmp_path / "out" / "build.json").read_text(encoding="utf-8"))
    assert all(Path(path).is_absolute() for path in plan["files"]) and plan["annotate"] == [f"phrase=list:{tmp_path}/words.txt"]
    monkeypatch.chdir(text)
    read = Building.read(tmp_path / "out")
    assert read is not None
    read.work()
    given["annotate"] = [f"phrase=list:{tmp_path}/words.txt"]
    again = Building.begin(tmp_path / "out", [str(text)], tokenizer, **given)  # the same build, by absolute paths
    whole = begin(tmp_path / "whole", annotate=given["annotate"])
    whole.work()
    assert again.left() == [] and again.join().counts().tolist() == whole.join().counts().tolist()
    assert sums(tmp_path / "out") == sums(tmp_path / "whole")
