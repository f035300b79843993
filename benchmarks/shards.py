"""A store of 800 shards of 2^28 tokens, one terabyte of text, as every one of 512 processes sees it at the start of a run.

    python benchmarks/shards.py [--shards 800] [--log-tokens 28] [--ranks 0,255,511]

No such text is read. All shards are hard links to the files of one: sentences of 25 tokens, documents of 40 sentences, and ids in
a sparse file. Their bounds have the size of real ones. The numbers of rows are counted for that one shard and entered for all, as
`cloze corpus plan` would do. Each rank is a fresh process that opens the store, plans the first epoch of BERT's passages at 128
tokens, reads its row of a step of 512 rows and then the row of item 10^9. Locating rows is checked for all 512 ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
SENTENCE, DOCUMENT, LANES, RANKS, ROOM = 25, 40, 64, 512, 125


def make(path: Path, shards: int, tokens: int) -> None:
    """The store; the files of its shards are those of the first."""
    documents = tokens // (SENTENCE * DOCUMENT)
    sentences = documents * DOCUMENT
    tokens = sentences * SENTENCE
    first = path / "shards" / "00000"
    first.mkdir(parents=True)
    (np.arange(sentences + 1, dtype=np.int64) * SENTENCE).tofile(first / "sentences.bin")
    (np.arange(documents + 1, dtype=np.int64) * DOCUMENT).tofile(first / "documents.bin")
    for name, size in (("tokens.bin", 2 * tokens), ("words.bin", (tokens + 7) // 8)):
        with (first / name).open("wb") as target:
            target.truncate(size)
    bytes_of = {one.name: one.stat().st_size for one in first.iterdir()}
    files = {name: {"bytes": size, "sha256": ""} for name, size in bytes_of.items()}
    common = {"dtype": "uint16", "vocab_size": 30522, "roles": {"[SEP]": 3}, "tokenizer_hash": "0" * 64, "counts": "0"}
    sizes = {"tokens": tokens, "sentences": sentences, "documents": documents}
    header = {"format": "cloze token store", "version": 1, **common, **sizes, "files": files, "report": {}}
    (first / "store.json").write_text(json.dumps(header))
    names = [f"{number:05d}" for number in range(shards)]
    for name in names[1:]:
        (path / "shards" / name).mkdir()
        for file in first.iterdir():
            os.link(file, path / "shards" / name / file.name)
    size = sum(bytes_of.values())
    whole = {key: value * shards for key, value in sizes.items()}
    described = [{"name": name, **sizes, "bytes": size, "sha256": ""} for name in names]
    manifest = {"format": "", "version": 2, **common, **whole, "shards": described, "files": {}, "report": {}}
    (path / "store.json").write_text(json.dumps(manifest))


def bound(path: Path, seed: int = 0) -> Any:
    """The training passages of the store."""
    from cloze.corpus import Passages, Store

    return Store.open(path).bind_source(
        Passages(length=128), lanes=LANES, options={}, seed=seed, entry="main", held_out=0.01, part="train"
    )


def count(path: Path) -> None:
    """Enter the number of rows of the first shard for all."""
    source = bound(path)
    rows = source._number_of_rows(0, ROOM)
    folder = source.folder(ROOM)
    folder.mkdir(parents=True)
    (folder / "rows.json").write_text(json.dumps({shard.name: rows for shard in source.store.shards}))


def rank(path: Path, number: int) -> dict[str, Any]:
    """One process: its start, and a distant item."""
    started = time.perf_counter()
    source = bound(path)
    plan = source.plan(0, ROOM)
    mine = source.by_lane(np.arange(RANKS))[number : number + 1]
    source.read(plan, mine, frozenset({"tokens", "sentence"}))
    start = time.perf_counter() - started
    opened = len(source._opened)
    started = time.perf_counter()
    source.read(plan, np.array([10**9 - 10**9 % LANES + int(mine[0]) % LANES]) % len(plan), frozenset({"tokens"}))
    return {
        "rank": number, "start s": round(start, 2), "distant item s": round(time.perf_counter() - started, 2),
        "shards open after the first step": opened,
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), "rows of the epoch": len(plan),
    }


def check(path: Path) -> dict[str, Any]:
    """All ranks: the rows of a step, and that no row comes twice in a window and no place in the epoch."""
    source = bound(path)
    plan = source.plan(0, ROOM)
    step = np.arange(10**6 * 512, 10**6 * 512 + 512) % len(plan)
    laid = source.by_lane(step)
    whole = np.stack(plan.locate(laid))
    for ranks in (2, 8, 64, 512):
        parts = [np.stack(plan.locate(piece)) for piece in np.split(laid, ranks)]
        assert np.array_equal(np.concatenate(parts, axis=1), whole)
    each = len(plan) // LANES
    inside = np.arange(each)
    lane = np.stack(plan.locate(5 + LANES * inside))
    assert len(np.unique(lane[0] << 32 | lane[1])) == each
    windows = [len(np.unique(plan.windows(piece))) for piece in np.split(laid, 512)]
    return {"ranks": "1 = 2 = 8 = 64 = 512", "windows per rank": max(windows), "rows of lane 5, all different": each}


def main() -> None:
    """Make the store, and start the ranks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=800)
    parser.add_argument("--log-tokens", type=int, default=28)
    parser.add_argument("--ranks", default="0,255,511")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        print(json.dumps(rank(Path(given.store), given.rank)))
        return
    from results import write_results

    path = Path(tempfile.mkdtemp(prefix="cloze-shards-"))
    try:
        make(path, given.shards, 1 << given.log_tokens)
        count(path)
        rows = []
        for number in given.ranks.split(","):
            command = [sys.executable, __file__, "--rank", number, "--store", str(path)]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(rows[-1], flush=True)
        rows.append(check(path))
        print(rows[-1])
        write_results("shards", rows)
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
