"""Memory and disk of a token store that is streamed from a data set of the Hugging Face Hub.

    python benchmarks/stream_dataset.py [--megabytes 2000] [--shards 8] [--processes 2] [--rows-per-group 1000]

Texts of random words from a list of 50,000 are written into Parquet shards, which a server on the loopback offers as a data
set, by the hub's protocol. A fresh process builds a store from its name, with the real client. Peak memory is the sum over that
process and its children, as in `corpus_build.py`. `other_megabytes` are all files that appear elsewhere than in the store: in the
cache of the hub and in the folder for temporary files. The store is compared with one that is built from the shards as files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

WORDS, WORDS_PER_TEXT, VOCABULARY = 50_000, 300, 30_000


def main() -> None:
    """Serve the shards and build the store in a process of its own (`--side`)."""
    arguments = parse()
    if arguments.side:
        print(json.dumps(build(arguments.side, Path(arguments.work), arguments.processes)))
        return
    work = Path(tempfile.mkdtemp(prefix="cloze-bench-"))
    try:
        row = measure(work, arguments)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("  ".join(f"{key} {value}" for key, value in row.items()))
    from results import write_results

    write_results("stream_dataset", [row])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=2000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows-per-group", type=int, default=1000)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of the stream, and whether the store is that of the files."""
    from tests.hub_server import Hub, serving

    size = write_shards(work / "texts", arguments)
    hub = Hub({"datasets/bench/texts": work / "texts"})
    with serving(hub) as address:
        streamed = start("hf://datasets/bench/texts", work, arguments, HF_ENDPOINT=address)
    other = sum(file.stat().st_size for folder in ("home", "temporary") for file in (work / folder).rglob("*") if file.is_file())
    shutil.rmtree(work / "store")
    of_files = start(str(work / "texts"), work, arguments)
    return {
        "megabytes": round(size / 1e6), "shards": arguments.shards, "processes": arguments.processes,
        "peak_megabytes": round(streamed["peak"] / 1e6), "peak_megabytes_of_files": round(of_files["peak"] / 1e6),
        "store_megabytes": round(streamed["store"] / 1e6), "other_megabytes": round(other / 1e6, 2),
        "megabytes_per_second": round(size / 1e6 / streamed["seconds"], 2),
        "megabytes_per_second_of_files": round(size / 1e6 / of_files["seconds"], 2),
        "equal": streamed["digest"] == of_files["digest"],
    }


def write_shards(folder: Path, arguments: argparse.Namespace) -> int:
    """Write the shards, and the tokenizer next to them; the bytes of text."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    from cloze.text import TextSpec, train

    generator = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(generator.choice(letters, size)) for size in generator.integers(3, 10, WORDS)])
    folder.mkdir()
    total = 0
    for number in range(arguments.shards):
        path, size = folder / f"train-{number:05d}-of-{arguments.shards:05d}.parquet", 0
        with parquet.ParquetWriter(path, pa.schema({"id": pa.int64(), "text": pa.string()})) as writer:
            while size < arguments.megabytes * 1e6 / arguments.shards:
                chosen = words[generator.integers(0, WORDS, (arguments.rows_per_group, WORDS_PER_TEXT))]
                texts = [" ".join(row) + "." for row in chosen.tolist()]
                size += sum(map(len, texts))
                writer.write_table(pa.table({"id": range(len(texts)), "text": texts}))
        total += size
    tokenizer = train(TextSpec.of({}, "wordpiece", {"size": VOCABULARY}), [" ".join(words)])
    tokenizer.save(folder.parent / "tokenizer", length=512, frame_single="{A}", frame_pair="{A} {B}")
    return total


def start(path: str, work: Path, arguments: argparse.Namespace, **environment: str) -> dict[str, Any]:
    """Build in a fresh process, whose temporary files and caches are in folders of their own."""
    (work / "temporary").mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--side", path, "--work", str(work), "--processes", str(arguments.processes)]
    settings = {"HF_HOME": str(work / "home"), "TMPDIR": str(work / "temporary"), "HF_HUB_OFFLINE": "0", **environment}
    done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def build(path: str, work: Path, processes: int) -> dict[str, Any]:
    """Build the store, timed, with the peak of memory."""
    from corpus_build import Peak

    from cloze.checkpoint.inputs import store_digest
    from cloze.corpus.stores.build import build_store
    from cloze.text import Tokenizer

    with Peak() as peak:
        began = time.perf_counter()
        store = build_store([path], Tokenizer.load(work / "tokenizer"), work / "store", workers=processes)
        seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    return {"seconds": seconds, "peak": peak.bytes, "store": size, "digest": store_digest(store)}


if __name__ == "__main__":
    main()
