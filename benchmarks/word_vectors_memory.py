"""Peak memory of word vectors from text files: vocabulary, store and twenty million words of training, all processes together.

    python benchmarks/word_vectors_memory.py [--megabytes 200 2000] [--recipe word2vec-skipgram] [--threads 2]

The text is English Wikipedia and books, repeated until it is long enough: the vocabulary stays the same, so that what grows is
due to the text alone. Proportional set size of the whole tree of processes is read five times a second; `anonymous` is the part
of it that is not pages of mapped files, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from word_vectors import plain_text  # noqa: E402


def main() -> None:
    """Run each size once and print the peaks."""
    from results import write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data"))))
    parser.add_argument("--megabytes", nargs="+", type=int, default=[200, 2000])
    parser.add_argument("--recipe", default="word2vec-skipgram")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="write no results")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="cloze-memory-"))
    try:
        once = plain_text(arguments.data, work / "once.txt", min(arguments.megabytes[0], 90))
        records = [one(arguments, megabytes, once, work) for megabytes in arguments.megabytes]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not arguments.dry:
        print(write_results("word_vectors_memory", records))


def one(arguments: argparse.Namespace, megabytes: int, once: Path, work: Path) -> dict[str, Any]:
    """One run over so much text."""
    text, part = work / "text.txt", once.read_bytes()
    with text.open("wb") as file:
        for _ in range(-(-megabytes * 1_000_000 // len(part))):
            file.write(part)
    size, out = text.stat().st_size, work / f"run-{megabytes}"
    program = "from cloze.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "pretrain", arguments.recipe, "--corpus", str(text), "--out", str(out),
               "--budget", "20Mtokens", "--set", "text.tokenizer.split=whitespace", "--set", "training.evaluate_every=0"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "PYTHONPATH": str(ROOT)})
    peak = {"Pss": 0, "Pss_Anon": 0}
    while process.poll() is None:
        for name, kilobytes in memory_of(process.pid).items():
            peak[name] = max(peak[name], kilobytes)
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"the run over {megabytes} MB failed with exit code {process.returncode}")
    shutil.rmtree(out)
    record = {"recipe": arguments.recipe, "megabytes": round(size / 1e6), "peak_mb": round(peak["Pss"] / 1000),
              "peak_anonymous_mb": round(peak["Pss_Anon"] / 1000), "seconds": round(time.perf_counter() - started)}
    print("  ".join(f"{key} {value}" for key, value in record.items()), flush=True)
    return record


def memory_of(root: int) -> dict[str, int]:
    """Proportional set size of a process and all below it, in kB."""
    found = {"Pss": 0, "Pss_Anon": 0}
    waiting = [root]
    while waiting:
        process = waiting.pop()
        try:
            told = Path(f"/proc/{process}/smaps_rollup").read_text()
            waiting += [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for name in found:
            match = re.search(rf"^{name}:\s+(\d+) kB", told, re.MULTILINE)
            found[name] += int(match.group(1)) if match else 0
    return found


if __name__ == "__main__":
    main()
