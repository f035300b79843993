"""Where benchmark results go: one dated CSV per theme and machine, with versions and hardware in its first lines."""

from __future__ import annotations

import csv
import datetime
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def processor() -> str:
    """The processor's name and what matters of it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"flags\s*:\s*(.+)", text)
    has = [f for f in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flags and f in flags.group(1).split()]
    return f"{name.group(1) if name else platform.machine()}, {text.count('processor')} cores, {has[0] if has else ''}"


def device_name() -> str:
    """The accelerator's name, or the processor's."""
    try:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    except ImportError:
        return processor()
    return processor()


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the packages that matter here."""
    found = {"python": platform.python_version()}
    for package in packages or ("torch", "numpy", "tokenizers", "transformers", "datasets"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_results(theme: str, records: list[dict[str, Any]], *, hardware: str | None = None) -> Path:
    """Write records to benchmarks/results/<theme>_<hardware>_<date>.csv and say where."""
    hardware = hardware or device_name()
    short = re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-")[:40].strip("-")
    today = datetime.date.today().isoformat()
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{theme}_{short}_{today}.csv"
    columns = list(dict.fromkeys(key for record in records for key in record))
    with path.open("w", newline="") as file:
        file.write(f"# {hardware}; " + ", ".join(f"{k} {v}" for k, v in versions().items()) + "\n")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(records)
    print(f"written: {path.relative_to(Path(__file__).parent.parent)}")
    return path
