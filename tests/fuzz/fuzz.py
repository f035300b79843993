"""`make fuzz`: spoilt inputs of every kind for a time or a number, each from a seed of its own, so that a fault can be repeated.

python tests/fuzz/fuzz.py --seconds 3600
python tests/fuzz/fuzz.py --inputs 2000
python tests/fuzz/fuzz.py --only stores --seed 17 --inputs 1      one input again
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import folders, outputs  # noqa: F401
from tests.fuzz.judging import Fault, judged
from tests.fuzz.targets import TARGETS, legal


def main() -> int:
    """Fuzz; the exit code is 1 if an input was answered as none may be."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    options.add_argument("--inputs", type=int, default=sys.maxsize, help="stop after this many inputs")
    options.add_argument("--seed", type=int, default=0, help="the first input's seed; the next have the following numbers")
    options.add_argument("--only", choices=sorted(TARGETS), action="append", help="one kind of input; repeatable")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    legal()
    names = chosen.only or sorted(TARGETS)
    tried: Counter[str] = Counter()
    faults: dict[str, str] = {}
    slowest = (0.0, "")
    started = time.monotonic()
    seed = chosen.seed
    while tried.total() < chosen.inputs and time.monotonic() - started < chosen.seconds:
        name = names[seed % len(names)]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cloze-fuzz-") as folder:
            try:
                with judged():
                    TARGETS[name](Random(seed), Path(folder))
            except Fault as fault:
                last = [line.strip() for line in str(fault).splitlines() if line.strip().startswith(("File", "Error"))][-1:]
                if str(last) not in faults:
                    print(f"FAULT  --only {name} --seed {seed} --inputs 1\n{fault}\n", flush=True)
                faults[str(last)] = f"{name} {seed}"
        slowest = max(slowest, (time.monotonic() - begun, f"{name} {seed}"))
        tried[name] += 1
        seed += 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(tried.items()))
    print(f"{tried.total():,} inputs in {time.monotonic() - started:.0f} s: {counts}")
    print(f"slowest: {slowest[0]:.1f} s ({slowest[1]}); {len(faults)} kinds of fault")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
