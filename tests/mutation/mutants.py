"""Hand-made mutants of the package: small faults that a test must notice.

    make mutants                 # every mutant in a copy of its own; resumes where it stopped
    python tests/mutation/mutants.py --only training/loop.py --jobs 2

A mutant replaces a piece of one source file that occurs there exactly once. It is killed if the tests that are named for it
fail, and survives if they pass. `MUTANTS` is in `list.yaml`: by source file, entries of `[before, after, tests]`, where
`tests` is what pytest is given, relative to `tests/`. Results are kept in `.mutants/results.jsonl`; a mutant runs again when
its source file, its own text or its test files have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("list.yaml")
RESULTS = ROOT / ".mutants" / "results.jsonl"
SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    """One fault: in `cloze/<file>`, `before` becomes `after`, and one of `tests` must fail."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def source(self) -> Path:
        """The file that is changed."""
        return ROOT / "cloze" / self.file

    def problem(self) -> str | None:
        """Why it cannot be run, in words, or None."""
        if not self.source.is_file():
            return f"{self.file}: no such file"
        found = self.source.read_text(encoding="utf-8").count(self.before)
        if found != 1:
            return f"{self.file}: {self.before!r} occurs {found} times; expected exactly once"
        missing = [path for path in self.tests if not (ROOT / "tests" / path.partition("::")[0]).exists()]
        return f"{self.file}: {self.before!r}: no test {missing[0]}" if missing else None

    @property
    def key(self) -> str:
        """Changes with the mutant, its source file and its test files."""
        digest = hashlib.sha256(json.dumps([self.file, self.before, self.after, self.tests]).encode())
        for path in (self.source, *(ROOT / "tests" / test.partition("::")[0] for test in self.tests)):
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()[:16]


def mutants() -> Iterator[Mutant]:
    """All mutants of the list, in its order."""
    for file, entries in YAML(typ="safe").load(LIST).items():
        for before, after, tests in entries:
            yield Mutant(file, before, after, tuple(tests.split()))


def survives(mutant: Mutant) -> tuple[bool, str]:
    """Run a mutant's tests on a copy of the package that has the fault; also the last line of pytest.

    Raises:
        SystemExit: pytest did not run any test, which is a mistake in the list.
    """
    with tempfile.TemporaryDirectory(prefix="cloze-mutant-") as place:
        copy = Path(place)
        for name in ("cloze", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.iterdir():  # tests read the documents and the settings of pytest
            if path.name not in ("cloze", "tests") and not path.name.startswith("."):
                (copy / path.name).symlink_to(path)
        source = copy / "cloze" / mutant.file
        source.write_text(source.read_text(encoding="utf-8").replace(mutant.before, mutant.after), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *(f"tests/{test}" for test in mutant.tests)], cwd=copy, env=environment, capture_output=True,
                text=True, timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return False, f"killed: no answer within {SECONDS} s"
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"{mutant.file}: {mutant.before!r}: pytest ended with {done.returncode}: {last}")
    return done.returncode == 0, last


def known() -> dict[str, bool]:
    """What earlier runs found: key → survives."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {record["key"]: record["survives"] for record in map(json.loads, lines)}


def main() -> int:
    """Run what has not been run; print survivors and the score; exit code 1 below the asked score."""
    parser = argparse.ArgumentParser(description="Apply hand-made mutants one by one and see whether a test fails.")
    parser.add_argument("--only", default="", help="mutants whose source file contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--score", type=float, default=0.95, help="the least share killed")
    chosen = parser.parse_args()
    wanted = [mutant for mutant in mutants() if chosen.only in mutant.file]
    if problems := [problem for mutant in wanted if (problem := mutant.problem())]:
        raise SystemExit("\n".join(problems))
    done = known()
    waiting = [mutant for mutant in wanted if mutant.key not in done]
    print(f"{len(wanted)} mutants, {len(waiting)} to run")
    RESULTS.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(chosen.jobs) as pool, RESULTS.open("a", encoding="utf-8") as file:
        for number, (mutant, (alive, last)) in enumerate(zip(waiting, pool.map(survives, waiting), strict=True), 1):
            done[mutant.key] = alive
            file.write(json.dumps({"key": mutant.key, "file": mutant.file, "survives": alive}) + "\n")
            file.flush()
            verdict = "SURVIVES" if alive else "killed"
            print(f"{number}/{len(waiting)}  {verdict}  {mutant.file}: {mutant.before.strip()!r}  ({last})", flush=True)
    alive = [mutant for mutant in wanted if done[mutant.key]]
    score = 1 - len(alive) / max(len(wanted), 1)
    for mutant in alive:
        print(f"survives: {mutant.file}: {mutant.before!r} -> {mutant.after!r}, tests {' '.join(mutant.tests)}")
    print(f"score {score:.1%}: {len(wanted) - len(alive)} of {len(wanted)} killed")
    return int(score < chosen.score)


if __name__ == "__main__":
    sys.exit(main())
