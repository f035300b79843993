"""Kills verbs that write by SIGKILL at random moments, and looks for what is lost: nothing may be.

python tests/fuzz/kills.py --kills 100
python tests/fuzz/kills.py --kills 20 --only finetune --seed 7

After each kill, `--out` must hold the old result or the new one, whole; of fine-tuning, the old one may also lie next to it. The
same command must then end with the bytes of a run that nobody has killed, and leave nothing else. Every attempt is a fork of a
process that has loaded all modules.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

import cloze.assembly.compress
import cloze.assembly.finetune
import cloze.assembly.run
import cloze.decoding.embedding
import cloze.tasks.evaluation  # noqa: F401
from cloze.cli.main import main as cloze_main
from cloze.training.checkpoint import Checkpoints

TEXT = "The cat sleeps. It dreams of fish.\n\nA dog barks. It runs.\n\nRain falls at night. The river is cold.\n\n" * 60


@dataclass(frozen=True)
class Case:
    """A verb that is killed: its command, the name of what it writes, and the files in it that count ("" is a file itself)."""

    command: str
    out: str
    files: tuple[str, ...]
    old: str = ""  # a command that writes the result which is replaced


CASES = {
    "finetune": Case(
        "finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.batch=8 --set training.epochs=3 "
        "--set training.checkpoint_every=3 --device cpu --out tuned --overwrite", "tuned", ("model.safetensors",),
        "finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.epochs=1 --device cpu --out tuned",
    ),
    "compress": Case("compress base --depth 1 --out small", "small", ("model.safetensors", "cloze/network.json")),
    "export": Case("export base shared --to huggingface", "shared", ("model.safetensors", "cloze/network.json")),
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
}


def prepare(place: Path) -> None:
    """Write the inputs of all cases into the current folder."""
    (place / "text.txt").write_text(TEXT)
    (place / "other.txt").write_text(TEXT[:200])
    lines = [line for line in TEXT.splitlines() if line]
    (place / "lines.txt").write_text("\n".join(lines) + "\n")
    (place / "few.txt").write_text("\n".join(lines[:3]) + "\n")
    for name, numbers in (("train", range(48)), ("dev", range(48, 60))):
        rows = [f"the {'rain' if n % 2 else 'cat'} saw {n}\t{'b' if n % 2 else 'a'}" for n in numbers]
        (place / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    run("pretrain bert --size tiny --corpus text.txt --budget 2steps --device cpu --out base")
    run("finetune base --train train.tsv --dev dev.tsv --set length=16 --set training.epochs=1 --device cpu --out model")


def run(command: str) -> None:
    """Run a command to its end in a fork; it must succeed."""
    if killed_after(command, None):
        raise SystemExit(f"cloze {command}: failed")


def killed_after(command: str, seconds: float | None) -> int:
    """Run a command in a fork, killed after some seconds; returns its status."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            os._exit(cloze_main(command.split()))
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def digest(out: Path, files: tuple[str, ...]) -> str:
    """What counts of a result; empty if there is none, or only a part."""
    paths = [out / file if file else out for file in files]
    if not all(path.is_file() for path in paths):
        return ""
    return sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def clear(out: Path) -> None:
    """Remove a result, and what lies next to it."""
    for path in [out, *out.parent.glob(f".{out.name}.*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def check(case: Case, out: Path, old: str, new: str) -> str:
    """What is lost after a kill; empty if nothing is."""
    found = digest(out, case.files)
    if found in (old, new):
        return ""
    aside = out.with_name(f".{out.name}.replaced")
    if old and digest(aside, case.files) == old:
        for step in Checkpoints(out).steps():  # each must be whole
            Checkpoints(out).load(step)
        return ""
    if old and digest(out.with_name(f".{out.name}.kept"), case.files) == old:
        return ""
    return "the old result is gone" if old else "a part of a result has its name"


def measure(case: Case, out: Path) -> tuple[str, str, float]:
    """The old and the new result, and the seconds that the new one takes."""
    clear(out)
    if case.old:
        run(case.old)
    old = digest(out, case.files)
    began = time.monotonic()
    run(case.command)
    return old, digest(out, case.files), time.monotonic() - began


def try_case(name: str, count: int, chance: Random, say: Callable[[str], None]) -> Counter[str]:
    """Kill a verb so many times; every third kill is followed by a run to the end."""
    case, found = CASES[name], Counter[str]()
    out = Path(case.out)
    old, new, seconds = measure(case, out)
    saved = Path(f"{out}.old")
    clear(out)
    if case.old:
        run(case.old)
        os.replace(out, saved)
    for number in range(count):
        if number % 3 == 0:
            clear(out)
            if saved.is_dir():
                shutil.copytree(saved, out)
            elif saved.is_file():
                shutil.copyfile(saved, out)
        took_effect = killed_after(case.command, chance.uniform(0, 1.1 * seconds)) == signal.SIGKILL
        found["killed" if took_effect else "ended before"] += 1
        if fault := check(case, out, old, new):
            found["lost"] += 1
            say(f"LOST  {name}, kill {number}: {fault}")
        if number % 3 == 2 or number == count - 1:
            if digest(out, case.files) == new:
                continue
            run(case.command)
            litter = [path.name for path in out.parent.glob(f".{out.name}.*")]
            if digest(out, case.files) != new or litter:
                found["lost"] += 1
                say(f"LOST  {name}, kill {number}: the same command ends with other bytes, or leaves {litter}")
    clear(out)
    return found


def main() -> int:
    """Kill; the exit code is 1 if anything was lost."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", choices=sorted(CASES))
    chosen = options.parse_args()
    names = [chosen.only] if chosen.only else list(CASES)
    total = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="cloze-kills-") as place:
        os.chdir(place)
        prepare(Path())
        for number, name in enumerate(names):
            count = chosen.kills // len(names) + (number < chosen.kills % len(names))
            found = try_case(name, count, Random(chosen.seed + number), print)
            print(f"{name}: {dict(found)}", flush=True)
            total += found
        os.chdir("/")
    print(f"all: {dict(total)}")
    return int(total["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
