"""Kernels are changed one by one in a copy of the package: stale machine code is never loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cloze

pytest.importorskip("numba")

pytestmark = pytest.mark.slow

WORDS = """
import numpy as np
from cloze import rng
from cloze.kernels.vectors import arguments, exact, shared
lines = np.random.default_rng(0).integers(0, 40, 400).astype(np.uint16)
starts, lengths = np.arange(0, 400, 20), np.full(20, 20)
job = arguments.TrainingLines(lines, starts, lengths, np.full(20, .1, np.float32), rng.row_keys(1, items=np.arange(20)))
windows = arguments.WindowSampling.of(np.ones(40), shares=SHARES, predicts=1)
answers = arguments.Targets.sampled(np.ones(40), redraws=True)
work = arguments.ThreadBuffers.of(windows, answers, 16)
tables = np.random.default_rng(1).normal(size=(2, 40, 16)).astype(np.float32)
inputs, outputs = arguments.aligned(40, 16), arguments.aligned(40, 16)
inputs[:], outputs[:] = tables
totals, curve = np.zeros(4), arguments.Sigmoid.fine()
if SHARES:
    shared.train_shared(job, windows, answers, inputs, outputs, work, curve, totals)
else:
    exact.train_exact(job, windows, answers, arguments.SubwordRows.none(), inputs, outputs, work, curve, totals)
print(inputs.tobytes().hex(), totals.tolist())
"""
SHARED, EXACT = WORDS.replace("SHARES", "True"), WORDS.replace("SHARES", "False")
HALVES = """
import numpy as np, torch
from cloze.kernels.gelu import gelu_tanh
from cloze.kernels.cross_entropy import take_losses
rows = torch.randn(6, 111, generator=torch.Generator().manual_seed(0)).bfloat16()
bits, into = rows.view(torch.int16).numpy(), np.zeros((6, 111), np.int16)
gelu, losses, right = bits.ravel().copy(), np.zeros(6), np.zeros(6)
gelu_tanh(bits.ravel(), gelu)
take_losses(bits, np.arange(6), np.ones(6, np.float32), 0.0, 0.0, into, False, losses, right, 0, 6)
"""
GELU, LOSS, GRADIENT = (HALVES + f"print({what})" for what in ("gelu.tolist()", "losses.tolist()", "into.tolist()"))
GLOVE = """
import numpy as np
from cloze.kernels.vectors.glove import glove
cells = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32), np.ones(4, np.float32)
sides = [tuple(np.full(shape, .5, np.float32) for shape in ((4, 8), 4, (4, 8), 4)) for _ in range(2)]
glove(8)(cells, np.array([[0, 4, 0, 3]]), np.array([5], np.uint64), *sides, np.array([9., .75, .05, 1.]), np.zeros(2))
print(sides[0][0].tolist())
"""
MASKS = """
import numpy as np
from cloze.kernels.dropout import decide
table, made = np.arange(1 << 40, (1 << 40) + 12).reshape(3, 4) * 0x123456789ab, np.zeros((3, 4), np.int64)
tops, below = np.int64(-0x7fff7fff7fff8000), np.int64(0x4000400040004000)
decide(table, np.arange(3), np.arange(3) * 77777777777, np.arange(3) * 2 + 1, np.int64(0x9E3779B97F4A7C1), tops, below, made)
print(made.tolist())
"""
PAIRS = """
import numpy as np
from cloze.kernels.pairs import count
keys, sums = np.zeros(64, np.uint64), np.zeros(64)
count(np.arange(9), np.minimum(np.arange(9), 2), 0, np.array([1., .5]), 9, True, 0, 1, keys, sums, np.zeros(1, np.int64), 60)
print(keys.tolist())
"""
CHUNKS = """
from cloze.text.encoding.numbering import ChunkNumbers
numbers = ChunkNumbers(marks=True, fold=True, most=99)
numbers.scan(b"one two twentylettersatleast exactlyfifteen" + bytes([10]), 0, 10)
print(numbers.chunks(0, numbers.used))
"""
CHANGES = [
    ("chunks.py", "_LONGEST = 15", "_LONGEST = 12", CHUNKS),
    ("compiling.py", '"fastmath": {"reassoc", "contract"}', '"fastmath": {"nnan"}', LOSS),
    ("cross_entropy.py", "(1.0 + 2.0 * z_loss", "(2.0 + 2.0 * z_loss", GRADIENT),
    ("dropout.py", "_HALF = np.int64(32)", "_HALF = np.int64(31)", MASKS),
    ("floats.py", "1.0000000716548716", "1.5", GELU),
    ("gelu.py", "np.float32(30.0)", "np.float32(1.0)", GELU),
    ("pairs.py", "0x9E3779B97F4A7C15", "0x1E3779B97F4A7C15", PAIRS),
    ("vectors/arguments.py", "PREDICT_FROM_OWNER = 0, 1, 2", "PREDICT_FROM_OWNER = 1, 0, 2", EXACT),
    ("vectors/draws.py", "0x94D049BB133111EB", "0x94D049BB133111ED", SHARED),
    ("vectors/exact.py", "else pairs\n", "else 2 * pairs\n", EXACT),
    ("vectors/glove.py", "loss += 0.5 * g * diff", "g *= np.float32(0.5)", GLOVE),
    ("vectors/lines.py", "LOSS_EVERY = 64", "LOSS_EVERY = 8", SHARED),
    ("vectors/registers.py", 'fcmp_ordered("<"', 'fcmp_ordered(">"', SHARED),
    ("vectors/rows.py", "10395.0", "10399.0", SHARED),
    ("vectors/shared.py", "totals[1] += pairs", "totals[1] += 2 * pairs", SHARED),
    ("vectors/tables.py", "_FULL = float(2**32)", "_FULL = float(2**31)", SHARED),
]  # fmt: skip
#: Of these, texts and graphs have no script here; `__init__` holds no code.
LEFT_OUT = {"__init__.py", "vectors/__init__.py", "vectors/texts.py", "vectors/translation.py"}


def run(script: str, package: Path, **given: str) -> str:
    """What a script prints that imports the package from a folder."""
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", **given}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, without any machine code."""
    to = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(cloze.__file__).parent, to / "cloze", ignore=shutil.ignore_patterns("__pycache__"))
    return to


@pytest.mark.parametrize(("name", "old", "new", "script"), CHANGES, ids=[change[0] for change in CHANGES])
def test_a_changed_constant_changes_the_result_though_no_cache_is_emptied(
    name: str, old: str, new: str, script: str, package: Path
) -> None:
    source = package / "cloze" / "kernels" / name
    text = source.read_text(encoding="utf-8")
    assert old in text
    before = run(script, package)
    source.write_text(text.replace(old, new), encoding="utf-8")
    try:
        assert run(script, package) != before
    finally:
        source.write_text(text, encoding="utf-8")
    assert run(script, package) == before


def test_every_kernel_source_is_changed_by_the_test_above() -> None:
    from cloze.kernels.compiling import sources

    root = Path(cloze.__file__).parent / "kernels"
    assert {path.relative_to(root).as_posix() for path in sources()} - LEFT_OUT == {change[0] for change in CHANGES}
