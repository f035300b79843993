"""The ledger: a committed file with one JSON line for every finished run, from which the tables are made.

A line has three parts. `run` says what was run (system, seed, budget, sizes): a run whose like is in the file is not repeated.
`result` is what was measured, once per seed, so that other means and tests can be had from it later. `made` says by what: commit,
torch, machine, day. It is not compared: a run is not repeated because a comment changed or the machine did. Where a change of
code makes a result untrue, delete its line, or run it again by hand: of two lines of the same run the later one counts.

Several processes may add lines at once: each is one write to a file opened for appending, which the system does not interleave.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# AMD's names for families of processors; 25 is Zen 3 without and Zen 4 with AVX-512.
ZEN = {"23": "Zen 2 or earlier", "25": "Zen 3", "25 avx512f": "Zen 4", "26": "Zen 5"}


class Ledger:
    """Finished runs in the file `path`, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def results(self, **wanted: Any) -> list[dict[str, Any]]:
        """`run` and `result` in one mapping of every run that has all the `wanted` values, in the order of its first line."""
        found: dict[str, dict[str, Any]] = {}
        for number, text in enumerate(self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else [], 1):
            try:
                line = json.loads(text)
                run, result = line["run"], line["result"]
            except (ValueError, KeyError, TypeError):
                where = f"{self.path}, line {number}"
                raise SystemExit(f"{where}: expected a JSON object with `run` and `result`; repair or delete it.") from None
            if all(name in run and run[name] == value for name, value in wanted.items()):
                found[json.dumps(run, sort_keys=True)] = {**run, **result}
        return list(found.values())

    def has(self, run: Mapping[str, Any]) -> bool:
        """Whether this run is finished."""
        return bool(self.results(**run))

    def add(self, run: Mapping[str, Any], result: Mapping[str, Any], *, device: str = "cpu") -> None:
        """Append a finished run; `device` is what it ran on."""
        line = json.dumps({"run": run, "result": result, "made": made(device)}, ensure_ascii=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def made(device: str) -> dict[str, str]:
    """Commit of the code, version of torch, the machine in words, and the day."""
    import torch

    gpu = torch.cuda.is_available() and device != "cpu"
    return {
        "commit": commit(), "torch": torch.__version__, "machine": torch.cuda.get_device_name() if gpu else processor(),
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip


def commit() -> str:
    """The commit that this file belongs to, "changed" behind it where code differs from it; "unknown" without git."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/*.py", ":/*.yaml").strip()
        return git("rev-parse", "--short", "HEAD").strip() + (" changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor() -> str:
    """The processor in words: `AMD EPYC (Zen 5), 2 cores, avx512-bf16`; the last is its widest arithmetic."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        import platform

        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"

    def field(name: str) -> str:
        found = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
        return found.group(1).strip() if found else ""

    flags, family = field("flags").split(), field("cpu family")
    widest = next((flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags), "")
    zen = ZEN.get(f"{family} avx512f" if "avx512f" in flags else "", ZEN.get(family)) if "AMD" in field("vendor_id") else None
    parts = (field("model name") + (f" ({zen})" if zen else ""), f"{os.cpu_count()} cores", widest.replace("_", "-"))
    return ", ".join(part for part in parts if part)
