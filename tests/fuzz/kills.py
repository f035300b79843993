"""Kills verbs that write by SIGKILL, and looks for what is lost: nothing may be.

python tests/fuzz/kills.py --kills 100
python tests/fuzz/kills.py --kills 20 --only finetune --seed 7

Every second kill comes at a random moment, measured by how long the verb takes here and now; the others come right before a
random one of the verb's own changes of files. After each kill, `--out` must hold the old result or the new one, whole; of
fine-tuning, the old one may also lie next to it, and a run that resumes may be unfinished. The same command must then end with
the bytes of a run that nobody has killed, and leave nothing else. Every attempt is a fork of a process that has loaded all
modules.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import cloze.comparison.compare
import cloze.comparison.sweep
import cloze.compression.compress
import cloze.decoding.vectors.embedding
import cloze.runs.finetuning.finetune
import cloze.runs.run
import cloze.tasks.evaluation  # noqa: F401
from cloze.cli.main import main as cloze_main
from cloze.training.checkpoints.checkpoint import Checkpoints

TEXT = "The cat sleeps. It dreams of fish.\n\nA dog barks. It runs.\n\nRain falls at night. The river is cold.\n\n" * 60
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")  # audited by Python, with "open" for writing
WRITING = os.O_WRONLY | os.O_RDWR
MOST = 9  # kills in a row


@dataclass(frozen=True)
class Case:
    """A verb that is killed: its command, the name of what it writes, and patterns of the files in it that count ("" is a file
    itself). `share` is its part of the kills; a long verb runs to its end after `every` kills."""

    command: str
    out: str
    files: tuple[str, ...]
    old: str = ""  # a command that writes the result which is replaced
    resumes: bool = False  # what is unfinished may have the name
    share: int = 13
    every: int = 3


TUNE = "finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.batch=8 --set training.epochs=3"
CASES = {
    "compress": Case("compress base --depth 1 --out small", "small", ("model.safetensors", "cloze/network.json")),
    "export": Case("export base shared --to huggingface", "shared", ("model.safetensors", "cloze/network.json")),
    "import": Case("import theirs --out ours", "ours", ("model.safetensors", "cloze/network.json")),
    "corpus": Case(
        "corpus build text.txt --tokenizer base --out store --overwrite", "store", ("store.json", "tokens.bin"),
        "corpus build other.txt --tokenizer base --out store",
    ),
    "embed": Case(
        "embed base --file lines.txt --out v.npy --overwrite", "v.npy", ("",), "embed base --file few.txt --out v.npy",
    ),
    "predict": Case(
        "predict model lines.txt --out p.jsonl --device cpu", "p.jsonl", ("",),
        "predict model few.txt --out p.jsonl --device cpu",
    ),
    "finetune": Case(f"{TUNE} --set training.checkpoint_every=3 --device cpu --out fresh", "fresh", ("model.safetensors",),
                     resumes=True, share=6),
    "overwrite": Case(
        f"{TUNE} --set training.checkpoint_every=3 --device cpu --out tuned --overwrite", "tuned", ("model.safetensors",),
        "finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.epochs=1 --device cpu --out tuned",
        share=6,
    ),
    "pretrain": Case(
        "pretrain bert --size tiny --corpus text.txt --budget 6steps --set training.checkpoint_every=2 --device cpu --out run",
        "run", ("model.safetensors",), resumes=True, share=6,
    ),
    "compare": Case(
        "compare base --task mood=train.tsv,dev.tsv,test.tsv --seeds 1 --tune length=16 --tune training.epochs=1 --device cpu "
        "--out compared", "compared", ("compare.json", "cells/*/run/model.safetensors"), resumes=True, share=2, every=MOST,
    ),
    "sweep": Case(
        "sweep bert --size tiny --corpus ids --tokenizer base --budget 2steps --rungs 1 --trials 2 --search grid "
        "--vary training.rate.peak=0.001,0.002 --device cpu --out swept", "swept", ("cells/*/run/model.safetensors",),
        resumes=True, share=2, every=MOST,
    ),
}  # fmt: skip


def prepare(place: Path) -> None:
    """Write the inputs of all cases into the current folder."""
    (place / "text.txt").write_text(TEXT)
    (place / "other.txt").write_text(TEXT[:200])
    lines = [line for line in TEXT.splitlines() if line]
    (place / "lines.txt").write_text("\n".join(lines) + "\n")
    (place / "few.txt").write_text("\n".join(lines[:3]) + "\n")
    for name, numbers in (("train", range(48)), ("dev", range(48, 60)), ("test", range(60, 72))):
        rows = [f"the {'rain' if n % 2 else 'cat'} saw {n}\t{'b' if n % 2 else 'a'}" for n in numbers]
        (place / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    run("pretrain bert --size tiny --corpus text.txt --budget 2steps --device cpu --out base")
    run("finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.epochs=1 --device cpu --out model")
    run("corpus build text.txt --tokenizer base --out ids")
    run("export base theirs --to huggingface")
    shutil.rmtree(place / "theirs" / "cloze")


def run(command: str) -> int:
    """Run a command to its end in a fork; it must succeed. Returns how often it changed files, and loads what it has loaded, so
    that the next forks need not."""
    notes = Path("notes.json").resolve()
    if attempted(command, notes=notes):
        raise SystemExit(f"cloze {command}: failed")
    said = json.loads(notes.read_text())
    for name in said["modules"]:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)
    return int(said["changes"])


def attempted(command: str, *, seconds: float | None = None, change: int | None = None, notes: Path | None = None) -> int:
    """Run a command in a fork, killed after some seconds or before its change of files of this number; returns its status. At the
    end, it writes the number of changes and the names of all modules into `notes`."""
    child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, given: tuple[Any, ...]) -> None:
            nonlocal count
            if event in CHANGES or (event == "open" and isinstance(given[2], int) and given[2] & WRITING):
                if count == change:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        sys.addaudithook(watch)
        code = 1
        with open("said.txt", "w") as file, redirect_stdout(file), redirect_stderr(file):
            code = cloze_main(command.split())
        if notes is not None:
            notes.write_text(json.dumps({"changes": count, "modules": sorted(sys.modules)}))
        os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def digest(out: Path, files: tuple[str, ...]) -> str:
    """What counts of a result; empty if there is none, or only a part."""
    found = [sorted(out.glob(file)) if file else [out] for file in files]
    if not all(paths and all(path.is_file() for path in paths) for paths in found):
        return ""
    contents = [path.read_bytes() for paths in found for path in paths if path.name != "compare.json"]  # that holds times
    return sha256(b"".join(contents)).hexdigest()


def clear(out: Path) -> None:
    """Remove a result, and what lies next to it."""
    for path in [out, *out.parent.glob(f".{out.name}.*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def reset(out: Path, saved: Path) -> None:
    """Put the old result back, if there is one."""
    clear(out)
    if saved.exists():
        (shutil.copytree if saved.is_dir() else shutil.copyfile)(saved, out)


def check(case: Case, out: Path, old: str, new: str) -> str:
    """What is lost after a kill; empty if nothing is."""
    found = digest(out, case.files)
    if found == new or (old and found == old) or (not old and not os.path.lexists(out)):
        return ""
    aside = out.with_name(f".{out.name}.replaced")
    if case.resumes or (old and digest(aside, case.files) == old):
        for step in Checkpoints(out).steps():  # each must be whole
            Checkpoints(out).load(step)
        return ""
    if old and digest(out.with_name(f".{out.name}.kept"), case.files) == old:
        return ""
    return "the old result is gone" if old else "a part of a result has its name"


def litter(out: Path) -> list[str]:
    """Hidden places next to a result and in it."""
    inside = list(out.rglob(".*.new-*")) if out.is_dir() else []
    return [str(path) for path in [*out.parent.glob(f".{out.name}.*"), *inside]]


def try_case(case: Case, count: int, chance: Random, say: Callable[[str], None]) -> Counter[str]:
    """Kill a verb so many times, and run it to the end after some of them."""
    found = Counter[str]()
    out, saved = Path(case.out), Path(f"{case.out}.old")
    if case.old:
        run(case.old)
        (shutil.copytree if out.is_dir() else shutil.copyfile)(out, saved)
    old = digest(out, case.files)
    if case.every < MOST:
        run(case.command)  # loads what it needs, which would count as its time
        reset(out, saved)
    began = time.monotonic()
    changes = run(case.command)
    seconds = time.monotonic() - began
    new = digest(out, case.files)
    if not new:
        raise SystemExit(f"{out}: not all of {case.files}")
    for number in range(count):
        if number % case.every == 0:
            reset(out, saved)
        if number % 2:
            status = attempted(case.command, change=chance.randrange(changes))
        else:
            status = attempted(case.command, seconds=chance.uniform(0, seconds))
        found["killed" if status == signal.SIGKILL else "ended before"] += 1
        if fault := check(case, out, old, new):
            found["lost"] += 1
            say(f"LOST  {case.command}, kill {number}: {fault}")
        if number % case.every == case.every - 1 or number == count - 1:
            whole = digest(out, case.files) == new
            status = attempted(case.command)
            if digest(out, case.files) != new or litter(out) or (status and not whole):
                found["lost"] += 1
                say(f"LOST  {case.command}, kill {number}: the same command ends with other bytes, or leaves {litter(out)}")
                say(Path("said.txt").read_text()[-2000:])
            found["ends"] += 1
    clear(out)
    return found


def counts(names: list[str], kills: int) -> dict[str, int]:
    """How many kills each case gets."""
    whole = sum(CASES[name].share for name in names)
    parts = {name: kills * CASES[name].share // whole for name in names}
    for name in names[: kills - sum(parts.values())]:
        parts[name] += 1
    return parts


def main() -> int:
    """Kill; the exit code is 1 if anything was lost."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", choices=sorted(CASES), action="append", help="one verb; repeatable")
    chosen = options.parse_args()
    total = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="cloze-kills-") as place:
        os.chdir(place)
        prepare(Path())
        for number, (name, count) in enumerate(counts(chosen.only or list(CASES), chosen.kills).items()):
            began = time.monotonic()
            found = try_case(CASES[name], count, Random(chosen.seed + number), print)
            print(f"{name}: {dict(found)}, {time.monotonic() - began:.0f} s", flush=True)
            total += found
        os.chdir("/")
    print(f"all: {dict(total)}")
    return int(total["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
