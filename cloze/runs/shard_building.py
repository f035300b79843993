"""`cloze corpus build --shard`: a store of several shards, built by any number of processes on one or several machines.

The folder of the store holds the plan of the build, `build.json`: the tasks, and how text becomes tokens, as plain values. Every
process builds tasks that nobody has built or claimed until none is left: the one that was asked, and those that it starts on this
machine or elsewhere, each `python -m cloze.runs.shard_building STORE I/N`. What is finished is never built again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cloze.atomic import whole_file, whole_folder
from cloze.corpus.readers.files import absolute
from cloze.corpus.readers.hub_datasets import is_dataset
from cloze.corpus.shards.build_tasks import TASKS, as_plain, build_task, encoder, from_plain, record_of, tasks_of
from cloze.corpus.shards.manifest import write_manifest
from cloze.corpus.stores.encode import BlockEncoder
from cloze.corpus.stores.store import HEADER, PLANS, SHARDS, TOKENIZER, Store
from cloze.corpus.stores.writer import check_out, saving
from cloze.errors import ClozeError, CorpusError, RecipeError, RunError, Say, propose
from cloze.jobs import Job, LocalWorkers, Workers, end_with_parent
from cloze.registry import lookup, names
from cloze.text import Annotations, Tokenizer

PLAN = "build.json"
LOGS = "logs"


def annotations_of(recipe: str | None, words: str | None, layers: Sequence[str]) -> Annotations:
    """The annotations of the recipe, overridden by `--words` and `--annotate`.

    Without a recipe and layers, no recipe's parts are loaded, which would take half of the time in which a process starts.
    """
    annotations = Annotations()
    if recipe is not None:
        from cloze.recipe.load import load_recipe
        from cloze.runs.corpora import text_of

        annotations = Annotations.of(text_of(load_recipe(recipe)))
    segmenter, annotators = annotations.words, dict(annotations.layers)
    if words is not None:
        name, _, file = words.partition(":")
        if name not in ("dictionary", "jieba"):
            raise RecipeError(f"--words {words}: unknown segmenter {name!r}. {propose(name, names('segmenter'))}")
        key = "file" if name == "dictionary" else "dictionary"
        segmenter = lookup("segmenter", name)(**({key: file} if file else {}))
    if layers:
        from cloze.checkpoint.annotators import parse_annotators

        for layer, described in parse_annotators(layers).items():
            ((part, arguments),) = described.items()
            annotators[layer] = lookup("annotator", part)(**arguments)
    return replace(annotations, words=segmenter, layers=annotators)


def shard_size(option: str) -> int:
    """Tokens of `--shard`: a number with K, M or G for 2^10, 2^20 or 2^30."""
    units = {"K": 10, "M": 20, "G": 30}
    digits, unit = (option[:-1], units[option[-1].upper()]) if option[-1:].upper() in units else (option, 0)
    if not digits.isdecimal() or not 1 <= int(digits) << unit <= 1 << 40:
        raise CorpusError(f"--shard {option}: expected a number of tokens such as 256M (2^28).")
    return int(digits) << unit


def part_of(option: str) -> tuple[int, int]:
    """`--part I/N` as (I - 1, N)."""
    first, slash, count = option.partition("/")
    if not slash or not first.isdecimal() or not count.isdecimal() or not 1 <= int(first) <= int(count):
        raise CorpusError(f"--part {option}: expected I/N with I from 1 to N, for example 3/16.")
    return int(first) - 1, int(count)


@dataclass(frozen=True)
class Building:
    """The plan of a sharded build, as `build.json` holds it."""

    out: Path
    plan: Mapping[str, Any]
    loaded: BlockEncoder | None = None  # what encodes text, if it is there already

    @classmethod
    def begin(
        cls, out: Path, paths: Sequence[str], tokenizer: Tokenizer, *, tokens: int, format: str, recipe: str | None,
        words: str | None, annotate: Sequence[str], say: Say,
    ) -> Building:
        """Plan a build, or find the plan that it was begun with. Raises `CorpusError` if that one differs."""
        annotations = annotations_of(recipe, words, annotate).of_words(tokenizer)
        annotations.require_files()
        encode = encoder(tokenizer, annotations)
        tasks = as_plain(tasks_of(paths, encode, format=format, tokens=tokens))
        files = dict.fromkeys(piece["path"] for task in tasks for piece in task)
        plan = {
            "tokenizer": tokenizer.hash, "tokens": tokens, "format": format, "recipe": recipe, "words": words,
            "annotate": list(annotate), "tasks": tasks,
            "files": {path: None if is_dataset(path) else Path(path).stat().st_size for path in files},
        }
        building = cls(out, _absolute(json.loads(json.dumps(plan))), encode)
        old = cls.read(out)
        if old is None:
            out.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), whole_folder(out / TOKENIZER) as stage:
                saving(tokenizer)(stage)
            with whole_file(out / PLAN) as stage:
                stage.write_text(json.dumps(building.plan, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            return building
        if old.plan != building.plan:
            differs = next(key for key in building.plan if building.plan[key] != old.plan.get(key))
            raise CorpusError(
                f"{out}: was begun with other arguments or other text: `{differs}` has changed.\n"
                "  Give what it was begun with to go on, another --out, or --overwrite to begin again."
            )
        done = sum(record_of(out, number) is not None for number in range(len(old.tasks)))
        say(f"{out}: going on; {done:,} of {len(old.tasks):,} tasks are done")
        return building

    @classmethod
    def read(cls, out: Path) -> Building | None:
        """The plan of a build that was begun in a folder."""
        try:
            return cls(out, json.loads((out / PLAN).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CorpusError(f"{out / PLAN}: cannot be read ({error}). Begin again with --overwrite.") from None

    @property
    def tasks(self) -> Sequence[Any]:
        """The tasks, as plain values."""
        tasks: Sequence[Any] = self.plan["tasks"]
        return tasks

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the build."""
        return Tokenizer.load(self.out / TOKENIZER) if self.loaded is None else self.loaded.tokenizer

    @cached_property
    def annotations(self) -> Annotations:
        """The words and layers of the build."""
        return annotations_of(self.plan["recipe"], self.plan["words"], self.plan["annotate"]).of_words(self.tokenizer)

    @cached_property
    def encode(self) -> BlockEncoder:
        """What encodes the text."""
        return encoder(self.tokenizer, self.annotations) if self.loaded is None else self.loaded

    def left(self, part: tuple[int, int] = (0, 1)) -> list[int]:
        """The tasks of a part that are not done."""
        first, step = part
        return [number for number in range(first, len(self.tasks), step) if record_of(self.out, number) is None]

    def work(self, part: tuple[int, int] = (0, 1), done: Callable[[int], None] = lambda number: None) -> None:
        """Build the tasks of a part that nobody else has built or is building, in this process; `done` receives each."""
        for number in self.left(part):
            with _claim(self.out / TASKS / f"{number:05d}.lock") as claimed:
                if claimed and record_of(self.out, number) is None:
                    build_task(
                        self.out, number, from_plain([self.tasks[number]])[0], self.encode, format=self.plan["format"],
                        tokens=self.plan["tokens"], annotations=self.annotations,
                    )
                    done(number)

    def run(
        self, workers: Workers, part: tuple[int, int] = (0, 1), progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Build the tasks of a part in the processes of `workers`. On this machine, this process is one of them.

        Raises the error of the first that fails.
        """
        numbers = range(part[0], len(self.tasks), part[1])

        def look(seconds: float) -> None:
            ended = workers.wait(seconds) if workers.running else None
            progress(len(numbers) - len(self.left(part)), len(numbers))
            if ended is not None and ended.code:
                raise _failure(ended.job.log, ended.code)

        (self.out / LOGS).mkdir(parents=True, exist_ok=True)
        (self.out / TASKS).mkdir(exist_ok=True)
        try:
            left, here = len(self.left(part)), isinstance(workers, LocalWorkers)
            for number in range(int(here), min(workers.count, left)):
                log = self.out / LOGS / f"{part[0]}-{number}.txt"
                log.unlink(missing_ok=True)
                workers.start(Job(f"build {number}", __spec__.name, (str(self.out.resolve()), f"{part[0] + 1}/{part[1]}"), log))
            if here:
                self.work(part, lambda number: look(0.0))
            while workers.running:
                look(0.5)
        except BaseException:
            workers.stop()
            raise
        shutil.rmtree(self.out / LOGS, ignore_errors=True)

    def join(self) -> Store:
        """Write the manifest over all shards, once every task is done."""
        left = self.left()
        if left:
            raise CorpusError(
                f"{self.out}: {len(left):,} of {len(self.tasks):,} tasks are not done, the first of them number {left[0]}.\n"
                "  Run the build, or the missing parts of it, again: finished shards are not built again."
            )
        records = [record for number in range(len(self.tasks)) if (record := record_of(self.out, number)) is not None]
        labels: dict[str, frozenset[int]] = {}
        for record in records:
            for layer, ids in record["met"].items():
                labels[layer] = labels.get(layer, frozenset()) | frozenset(ids)
        self.annotations.require_matches(labels)
        return write_manifest(self.out, [name for record in records for name in record["shards"]])


def _absolute(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan whose files are named by absolute paths, so that it holds in any folder and for any worker."""
    tasks = [[{**piece, "path": absolute(piece["path"])} for piece in task] for task in plan["tasks"]]
    files = {absolute(path): size for path, size in plan["files"].items()}
    recipe, words = plan["recipe"], plan["words"]
    return {
        **plan, "files": files, "tasks": tasks, "annotate": [_with_file(annotator) for annotator in plan["annotate"]],
        "recipe": os.path.abspath(recipe) if recipe is not None and Path(recipe).suffix in (".yaml", ".yml") else recipe,
        "words": None if words is None else _with_file(words),
    }  # fmt: skip


def _with_file(option: str) -> str:
    """`dictionary:FILE` or `entity=mentions:FILE` with the absolute path of the file, if there is one."""
    kind, colon, file = option.rpartition(":")
    return f"{kind}:{os.path.abspath(file)}" if colon and Path(file).is_file() else option


def begin_again(out: Path) -> None:
    """Remove a store of shards, or what was built of one."""
    for name in (HEADER, PLAN):
        (out / name).unlink(missing_ok=True)
    for name in (SHARDS, TASKS, TOKENIZER, LOGS, PLANS):
        shutil.rmtree(out / name, ignore_errors=True)


def require_place(out: Path, *, replace: bool) -> None:
    """A `CorpusError` where no sharded store can be built. A build that was begun there goes on, unless it is to be replaced."""
    if not (out / PLAN).is_file():
        check_out(out, replace=replace)
    if replace and (out / PLAN).is_file():
        begin_again(out)


@contextmanager
def _claim(file: Path) -> Iterator[bool]:
    """Whether this process alone works on a task. Without locks in the file system a task may be built twice, with one result."""
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
        file.unlink(missing_ok=True)


def _failure(log: Path, code: int) -> ClozeError:
    """What a process wrote before it failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    messages = [line for line in lines if not line.startswith("task ")]
    kind = CorpusError if code == CorpusError.exit_code else RunError
    if code < 0:
        return RunError(f"a process of the build was killed (signal {-code}). Run the same command again: finished shards stay.")
    return kind("\n".join(messages[-6:]) or f"a process of the build ended with code {code}; see {log}")


def main() -> None:
    """The process of a job."""
    end_with_parent()
    building = Building.read(Path(sys.argv[1]))
    try:
        if building is None:
            raise CorpusError(f"{sys.argv[1]}: holds no {PLAN}.")
        building.work(part_of(sys.argv[2]), lambda number: print(f"task {number}: done", flush=True))
    except ClozeError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
