"""fill, generate, score and embed on a simulated GPU: nothing is left on the CPU, and the answers are those of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.api.model import Model, load
from tests.simulated_gpu import SimulatedGpu

from .test_verbs import CHINESE, VERBS, checkpoint, texts  # noqa: F401  a fixture

FEW = ("bert", "gpt2", "t5-small", "xlnet-base")  # in the default tier
NAMES = [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in sorted(VERBS)]


def answers(model: Model, name: str) -> dict[str, Any]:
    """What every method of a model says of two texts, as numbers and strings."""
    two = texts(name)
    begin, gap = ("北京", "北京是一[MASK]大城市。") if name in CHINESE else ("The river", "The river [MASK] all night.")
    said: dict[str, Any] = {"embed": np.asarray(model.embed(two)), "able": model.can}
    if "score" in model.can and not model.network.writes:
        said["score"] = np.asarray([score.score for score in model.score(two)])
    if "fill" in model.can:
        said["fill"] = [candidate.piece for candidate in model.fill(gap).masks[0][:3]]
    if "generate" in model.can:
        for how, options in (("greedy", {}), ("beams", {"beams": 2}), ("drawn", {"temperature": 1.0, "top_k": 5})):
            said[how] = [text.text for text in model.generate([begin, two[0]], tokens=6, seed=3, **options)]  # type: ignore[arg-type]
    return said


@pytest.mark.parametrize("checkpoint", NAMES, indirect=True)
def test_a_model_answers_on_a_gpu_as_on_a_cpu(checkpoint: tuple[str, Path]) -> None:  # noqa: F811
    name, run = checkpoint
    near = answers(load(run, device="cpu"), name)
    with SimulatedGpu():
        far = answers(load(run, device="cuda"), name)
    assert far.keys() == near.keys() and far["able"] == near["able"]
    for what in near:
        if isinstance(near[what], np.ndarray):
            assert far[what] == pytest.approx(near[what], rel=1e-3, abs=1e-4), what
        else:
            assert far[what] == near[what], what
