"""Probes on a simulated GPU: nothing is left on the CPU, and what they find is what they find on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.probes.finding import Subject, plain
from cloze.probes.probe import TextProbe
from cloze.recipe.parts import class_of
from tests.contracts.test_probes import OPTIONS, PROBES, TEXTS, TREES
from tests.simulated_gpu import SimulatedGpu

#: One probe in the default tier, which trains classifiers on all states.
PAIRS = [
    pytest.param(kind, name, marks=() if (kind, name) == ("layers", "bert") else pytest.mark.slow)
    for name in ("bert", "gpt2") for kind in PROBES
]


def numbers_of(value: Any) -> Iterator[float]:
    """The numbers of a finding, in order; those that are not finite and words are left out."""
    if isinstance(value, dict):
        for part in value.values():
            yield from numbers_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from numbers_of(part)
    elif isinstance(value, (int, float)) and math.isfinite(value):
        yield float(value)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_a_probe_finds_on_a_gpu_what_it_finds_on_a_cpu(
    kind: str, name: str, start: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 1)
    Path("texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    Path("t.conllu").write_text(TREES * 2)
    Path("pairs.txt").write_text("cat dog 9\nriver rain 5\ncat river 1\n")

    def find(device: str) -> list[float]:
        cls = class_of("probe", kind)
        text = {"text": "texts.txt"} if issubclass(cls, TextProbe) else {}
        small = {"least": 2} if kind == "geometry" else {}
        probe = cls(most=2, batch=3, **text, **small, **OPTIONS.get(kind, {}))
        finding = probe.run([Subject("it", folder, 0)], lambda subject: load_checkpoint(subject.folder, device))
        return list(numbers_of(plain(finding.data)))

    near = find("cpu")
    with SimulatedGpu():
        far = find("cuda")
    assert near and far == pytest.approx(near, rel=2e-3, abs=2e-4)
