"""Building the store against `datasets.map(tokenizer, batched=True, num_proc=2)` and grouping, with the same tokenizer.

    python benchmarks/corpus_build.py [--rounds 3] [--data ../shared/data] [--megabytes 0]
    python benchmarks/corpus_build.py --big [--keep FOLDER]

Both sides read the same plain text (one paragraph per line, blank lines between documents), each in a fresh process, in
turn. Medians are reported, of wall time and of CPU time, which suffers less where the machine is shared with others. The
peer is what the usual pre-training script does: `load_dataset("text")`, a map that tokenizes, a map that groups into rows
of 128, written to Arrow files. Ours also splits sentences and keeps word starts, sentence and document bounds. Imports are
not timed on either side; starting workers is, on both. Ids of the whole file are compared, token by token. Peak memory is the
sum over the process and its children, sampled five times a second, of private memory and a share of what they have in common
(PSS); pages of mapped files count while they are resident.

`--big` repeats the English text to 200 MB and to 2 GB and compares the peaks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

SIZES = {"text_en_wiki": 30522, "text_zh_wiki": 21128}
ROW = 128


def main() -> None:
    """Run the comparison, or one side of it in a process of its own (`--side`)."""
    arguments = parse()
    if arguments.side:
        print(json.dumps(run_side(arguments)))
        return
    work = Path(arguments.keep or tempfile.mkdtemp(prefix="cloze-bench-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        rows = big(arguments, work) if arguments.big else compare(arguments, work)
    finally:
        if not arguments.keep:
            shutil.rmtree(work, ignore_errors=True)
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    write(rows, "corpus_memory" if arguments.big else "corpus_build")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=0, help="use only so much of each file; 0: all of it")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", choices=("wordpiece", "byte_bpe"), default="wordpiece")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--keep", help="work here and leave the files")
    parser.add_argument("--side", choices=("cloze", "datasets"), help=argparse.SUPPRESS)
    parser.add_argument("--text", help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- one side, in a process of its own ----------------------------------------------------------------------------------


def run_side(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prepare the text once, timed, with the peak of memory."""
    work = build_ours if arguments.side == "cloze" else build_theirs
    return work(Path(arguments.text), Path(arguments.tokenizer), Path(arguments.out), arguments.processes)


def build_ours(text: Path, folder: Path, out: Path, processes: int) -> dict[str, Any]:
    """A store."""
    from cloze.corpus.stores.build import build_store
    from cloze.text import Tokenizer

    tokenizer = Tokenizer.load(folder)
    with Peak() as peak:
        started = time.perf_counter()
        store = build_store([text], tokenizer, out, format="blank", workers=processes)
        seconds = time.perf_counter() - started
    digest = hashlib.sha256()
    for first in range(0, len(store.tokens), 1 << 22):
        digest.update(store.tokens[first : first + (1 << 22)].astype("int32").tobytes())
    return {**peak.facts(seconds), "tokens": len(store.tokens), "ids": digest.hexdigest()}


def build_theirs(text: Path, folder: Path, out: Path, processes: int) -> dict[str, Any]:
    """An Arrow data set of rows of 128 tokens."""
    import datasets
    import numpy as np
    import transformers

    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"input_ids": tokenizer(batch["text"], add_special_tokens=False)["input_ids"]}

    def group(batch: dict[str, list[list[int]]]) -> dict[str, Any]:
        flat = [i for ids in batch["input_ids"] for i in ids]
        return {"input_ids": [flat[i : i + ROW] for i in range(0, len(flat), ROW)]}

    with Peak() as peak:
        started = time.perf_counter()
        data = datasets.load_dataset("text", data_files=str(text), split="train", cache_dir=str(out))
        data = data.map(tokenize, batched=True, num_proc=processes, remove_columns=["text"])
        data = data.map(group, batched=True, num_proc=processes)
        seconds = time.perf_counter() - started
    digest, tokens = hashlib.sha256(), 0
    for batch in data.with_format("arrow").iter(batch_size=10_000):
        ids = batch["input_ids"].combine_chunks().flatten().to_numpy().astype(np.int32)
        tokens += len(ids)
        digest.update(ids.tobytes())
    return {**peak.facts(seconds), "tokens": tokens, "ids": digest.hexdigest()}


class Peak:
    """The largest memory of this process and its children while a block of code runs, in bytes, and their CPU time."""

    def __init__(self) -> None:
        self.bytes = 0
        self.cpu = -cpu_seconds()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.cpu += cpu_seconds()

    def facts(self, seconds: float) -> dict[str, float]:
        """What a side reports."""
        return {"seconds": seconds, "peak": self.bytes, "cpu": self.cpu}

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.bytes = max(self.bytes, sum(map(memory_of, family(os.getpid()))))


def cpu_seconds() -> float:
    """CPU time of this process and of the children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def family(process: int) -> list[int]:
    """A process and all below it."""
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += family(int(child))
    return found


def memory_of(process: int) -> int:
    """The proportional memory of one process, 0 if it has gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


# --- both sides in turn -------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Medians over interleaved rounds, one row per corpus and side."""
    rows = []
    for corpus, size in SIZES.items():
        text = plain_text(Path(arguments.data) / corpus / "train.txt.xz", work / f"{corpus}.txt", arguments.megabytes)
        folder = train(text, work / f"{corpus}-{arguments.kind}", arguments.kind, size)
        runs: dict[str, list[dict[str, Any]]] = {"datasets": [], "cloze": []}
        for number in range(arguments.rounds):
            for side, found in runs.items():
                found.append(start(side, text, folder, work / "out", arguments.processes))
                speed = text.stat().st_size / 1e6 / found[-1]["seconds"]
                peak = found[-1]["peak"] / 1e6
                print(f"{corpus} round {number + 1} {side:<9}{speed:6.1f} MB/s  peak {peak:,.0f} MB", flush=True)
        same = len({run["ids"] for found in runs.values() for run in found}) == 1
        seconds = {side: statistics.median(run["seconds"] for run in found) for side, found in runs.items()}
        cpu = {side: statistics.median(run["cpu"] for run in found) for side, found in runs.items()}
        for side, found in runs.items():
            rows.append(
                {
                    "corpus": corpus, "side": side, "tokenizer": arguments.kind, "vocabulary": size,
                    "megabytes": round(text.stat().st_size / 1e6, 1), "tokens": found[0]["tokens"],
                    "megabytes_per_second": round(text.stat().st_size / 1e6 / seconds[side], 2),
                    "times_datasets": round(seconds["datasets"] / seconds[side], 2),
                    "cpu_seconds": round(cpu[side], 1),
                    "times_datasets_per_cpu_second": round(cpu["datasets"] / cpu[side], 2),
                    "peak_megabytes": round(max(run["peak"] for run in found) / 1e6),
                    "ids_identical": same, "rounds": arguments.rounds, "processes": arguments.processes,
                }
            )
    return rows


def big(arguments: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """The peak of memory at 200 MB and at 2 GB of real text, repeated."""
    base = plain_text(Path(arguments.data) / "text_en_wiki" / "train.txt.xz", work / "text_en_wiki.txt", 0)
    folder = train(base, work / f"text_en_wiki-{arguments.kind}", arguments.kind, SIZES["text_en_wiki"])
    rows = []
    for size in (200_000_000, 2_000_000_000):
        text = work / f"{size}.txt"
        data = base.read_bytes()
        with text.open("wb") as stream:
            left = size
            while left > 0:
                stream.write(data[:left])
                left -= len(data)
        del data
        found = start("cloze", text, folder, work / "out", arguments.processes)
        rows.append(
            {
                "corpus": "text_en_wiki, repeated", "side": "cloze", "tokenizer": arguments.kind,
                "megabytes": round(text.stat().st_size / 1e6), "tokens": found["tokens"],
                "megabytes_per_second": round(text.stat().st_size / 1e6 / found["seconds"], 2),
                "peak_megabytes": round(found["peak"] / 1e6), "processes": arguments.processes,
            }
        )
        print(rows[-1], flush=True)
        text.unlink()
    return rows


def plain_text(packed: Path, out: Path, megabytes: float) -> Path:
    """The corpus as plain text: a paragraph per line, a blank line after every document."""
    from cloze.corpus.readers import read_documents

    if not packed.is_file():
        sys.exit(f"{packed}: no such file; name the folder of the corpora with --data or CLOZE_DATA.")
    if not out.exists():
        left = megabytes * 1e6 or float("inf")
        with out.open("w", encoding="utf-8") as stream:
            for document in read_documents([packed], format="wiki"):
                # A sentence that begins with white space goes on in its paragraph.
                text = "".join(s if s[:1].isspace() else "\n" + s for s in document.sentences).strip() + "\n\n"
                stream.write(text)
                left -= len(text.encode())
                if left <= 0:
                    break
    return out


def train(text: Path, folder: Path, kind: str, size: int) -> Path:
    """One tokenizer for both sides, from 20 MB of the text."""
    if not folder.exists():
        from cloze.corpus.stores.build import train_tokenizer_from
        from cloze.text import TextSpec

        spec = TextSpec.of({"lower": True} if kind == "wordpiece" else {}, kind, {"size": size})
        tokenizer = train_tokenizer_from([text], spec, format="blank", budget_bytes=20_000_000)
        tokenizer.save(folder, length=512, frame_single="{A}", frame_pair="{A} {B}")
    return folder


def start(side: str, text: Path, folder: Path, out: Path, processes: int) -> dict[str, Any]:
    """Run one side in a fresh process over a fresh folder."""
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable, __file__, "--side", side, "--text", str(text), "--tokenizer", str(folder), "--out", str(out),
        "--processes", str(processes),
    ]
    environment = {**os.environ, "HF_HOME": str(out.parent / "hf"), "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(out, ignore_errors=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# --- results ------------------------------------------------------------------------------------------------------------


def write(rows: list[dict[str, Any]], theme: str) -> None:
    """Write the table, versions and hardware in its first line, and say where."""
    from results import processor, versions, write_results

    packages = ("tokenizers", "datasets", "transformers", "numpy", "numba")
    facts = versions(*packages)
    print(processor(), ", ".join(f"{name} {number}" for name, number in facts.items()))
    write_results(theme, [{**row, **facts} for row in rows], hardware=processor())


if __name__ == "__main__":
    main()
