"""Hand-made mutants of the package: small faults that a test must notice.

    make mutants                 # every mutant in a copy of its own; resumes where it stopped
    python tests/mutation/mutants.py --only training/loop.py --jobs 2

A mutant replaces a piece of one source file that occurs there exactly once. It is killed if one of the tests that are named
for it fails, and survives if they pass. `list.yaml` holds, by source file, entries of `[before, after, tests]`, where `tests`
is what pytest is given, relative to `tests/`: files, or better functions (`training/test_loop.py::test_name`), so that a
mutant takes seconds. The tests must pass on the code as it is, which is tried first. Results are kept in
`.mutants/results.jsonl`; a mutant runs again when its source file, its own text or its test files have changed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("list.yaml")
RESULTS = ROOT / ".mutants" / "results.jsonl"
SECONDS = 300
PASSED, FAILED, BROKEN = "SURVIVES", "killed", "MISTAKE"
# A process that has imported the libraries makes one for every mutant, which saves each of them several seconds.
_FORKS = multiprocessing.get_context("forkserver")
_LIBRARIES = ["numpy", "torch", "torch.utils._pytree", "numba", "scipy", "tokenizers", "transformers", "hypothesis"]


@dataclass(frozen=True)
class Mutant:
    """One fault: in `cloze/<file>`, `before` becomes `after`, and one of `tests` must fail."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.before.strip()!r} -> {self.after.strip()!r}"

    @property
    def source(self) -> Path:
        """The file that is changed."""
        return ROOT / "cloze" / self.file

    def changed(self) -> str:
        """The source with the fault."""
        return _text(self.source).replace(self.before, self.after)

    def problem(self) -> str | None:
        """Why it cannot be run, in words, or None."""
        if not self.source.is_file():
            return f"{self}: there is no file cloze/{self.file}"
        found = _text(self.source).count(self.before)
        if found != 1:
            return f"{self}: the text to replace occurs {found} times in the file; expected once. Follow the code"
        try:
            ast.parse(self.changed())
        except SyntaxError as error:
            return f"{self}: the replacement is no Python: {error.msg}"
        missing = [test for test in self.tests if not _exists(test)]
        return f"{self}: there is no test tests/{missing[0]}" if missing else None

    @property
    def key(self) -> str:
        """Changes with the mutant, its source file and its test files."""
        digest = hashlib.sha256(json.dumps([self.file, self.before, self.after, self.tests]).encode())
        for path in (self.source, *(_file_of(test) for test in self.tests)):
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()[:16]


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _file_of(test: str) -> Path:
    return ROOT / "tests" / test.partition("::")[0]


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    function = name.rpartition("::")[2].partition("[")[0]
    source = ROOT / "tests" / path
    return source.is_file() and (not function or re.search(rf"^ *def {re.escape(function)}\(", _text(source), re.M) is not None)


def mutants() -> Iterator[Mutant]:
    """All mutants of the list, in its order."""
    for file, entries in yaml.load(LIST.read_text(encoding="utf-8"), yaml.BaseLoader).items():
        for before, after, tests in entries:
            yield Mutant(file, before, after, tuple(tests.split()))


def run_tests(tests: Iterable[str], mutant: Mutant | None = None) -> tuple[str, str]:
    """Run tests on a copy of the package, with a fault if one is given: the verdict, and the test that failed first.

    `BROKEN`: pytest could not collect the tests, so that none of them can have noticed anything.
    """
    with tempfile.TemporaryDirectory(prefix="cloze-mutant-") as place:
        copy = Path(place) / "copy"
        copy.mkdir()
        for name in ("cloze", "tests"):
            shutil.copytree(ROOT / name, copy / name)  # with the bytecode, which is valid as long as the times are kept
        for path in ROOT.iterdir():  # tests read the documents and the settings of pytest
            if path.name not in ("cloze", "tests") and not path.name.startswith("."):
                (copy / path.name).symlink_to(path)
        if mutant is not None:
            (copy / "cloze" / mutant.file).write_text(mutant.changed(), encoding="utf-8")
        said = Path(place) / "said"
        process = _FORKS.Process(target=_pytest, args=(str(copy), str(said), [f"tests/{test}" for test in tests]))
        process.start()
        process.join(SECONDS if mutant is not None else None)
        if process.exitcode is None:
            os.killpg(process.pid or 0, signal.SIGKILL)  # with the processes that tests have started
            process.join()
            return FAILED, f"no answer within {SECONDS} s"
        text = said.read_text(encoding="utf-8", errors="replace")
    if process.exitcode < 0:
        return FAILED, f"the process ended with signal {-process.exitcode}"
    failed = re.search(r"^(?:FAILED|ERROR) tests/([^\n]*?::[^\n]*?)(?: - |$)", text, re.M)
    if process.exitcode == 1 and failed:
        return FAILED, failed.group(1)
    return (PASSED, "") if process.exitcode == 0 else (BROKEN, text.strip()[-300:])


def _pytest(copy: str, said: str, tests: list[str]) -> None:
    """The process of a mutant: it has the libraries already, and nothing of the package."""
    os.setsid()
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = copy
    sys.path.insert(0, copy)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options.append(f"--basetemp={copy}/.files")  # pytest would sweep the folders that other runs use
    code = pytest.main([*options, "-m", "not slow and not gpu", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def known() -> dict[str, bool]:
    """What earlier runs found: key → survives."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {record["key"]: record["survives"] for record in map(json.loads, lines)}


def check(waiting: list[Mutant]) -> None:
    """Run all tests that are named on the code as it is: what fails there would kill every mutant.

    Raises:
        SystemExit: a test fails.
    """
    named = {test for mutant in waiting for test in mutant.tests}
    tests = sorted(test for test in named if "::" not in test or test.partition("::")[0] not in named)
    verdict, by = run_tests(tests) if tests else (PASSED, "")
    if verdict != PASSED:
        raise SystemExit(f"On the code as it is, without any mutant, a test fails: {by}")


def main() -> int:
    """Run what has not been run; print survivors and the score; exit code 1 below the asked score."""
    parser = argparse.ArgumentParser(description="Apply hand-made mutants one by one and see whether a test fails.")
    parser.add_argument("--only", default="", help="mutants whose source file contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--score", type=float, default=0.95, help="the least share killed")
    parser.add_argument("--unchecked", action="store_true", help="do not try the tests on the code as it is first")
    chosen = parser.parse_args()
    wanted = [mutant for mutant in mutants() if chosen.only in mutant.file]
    if problems := [problem for mutant in wanted if (problem := mutant.problem())]:
        raise SystemExit("\n".join(problems))
    done = known()
    waiting = [mutant for mutant in wanted if mutant.key not in done]
    print(f"{len(wanted)} mutants, {len(waiting)} to run", flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    _FORKS.set_forkserver_preload(_LIBRARIES)
    if not chosen.unchecked:
        check(waiting)
    mistakes: list[str] = []
    RESULTS.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(chosen.jobs) as pool, RESULTS.open("a", encoding="utf-8") as file:
        results = pool.map(lambda mutant: run_tests(mutant.tests, mutant), waiting)
        for number, (mutant, (verdict, by)) in enumerate(zip(waiting, results, strict=True), 1):
            print(f"{number}/{len(waiting)}  {verdict}  {mutant}  ({by})", flush=True)
            if verdict == BROKEN:
                mistakes.append(f"its tests could not be collected, a mistake in the list: {mutant}")
                continue
            done[mutant.key] = verdict == PASSED
            file.write(json.dumps({"key": mutant.key, "survives": done[mutant.key], "mutant": str(mutant), "by": by}) + "\n")
            file.flush()
    alive = [mutant for mutant in wanted if done.get(mutant.key)]
    killed = len([mutant for mutant in wanted if done.get(mutant.key) is False])
    for mutant in alive:
        print(f"survives: {mutant}, tests {' '.join(mutant.tests)}")
    print("\n".join([*mistakes, f"score {killed / max(len(wanted), 1):.1%}: {killed} of {len(wanted)} killed"]))
    return int(killed < chosen.score * len(wanted))


if __name__ == "__main__":
    sys.exit(main())
