"""Transfer as a command line writes it, and the published manner of a kind of network."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cloze.errors import TaskError, nearest
from cloze.registry import lookup, names
from cloze.training.movement import Everything, LayerwiseRates, Only, Unfreezing
from cloze.transfer.layerwise import Divide, Factors
from cloze.transfer.unfreezing import Gradual

#: What the numbers behind a name fill, in their order.
_NUMBERS = {"gradual": ("together",), "chain": ("every",), "sequential": ("layers", "embeddings")}


def unfreezing_named(said: str) -> Unfreezing:
    """`all`, `none`, or a registered way to unfreeze, with numbers behind a colon: `gradual:2`, `sequential:1,4`."""
    name, _, rest = said.partition(":")
    known = ["all", "none", *names("unfreezing")]
    if name not in known:
        raise TaskError(f"--unfreeze {said}: unknown. {nearest(name, known)}")
    if name in ("all", "none"):
        return Everything() if name == "all" else Only()
    builder: Any = lookup("unfreezing", name)
    accepted = _NUMBERS.get(name) or tuple(field.name for field in fields(builder))
    numbers = _numbers("--unfreeze", said, rest, most=len(accepted))
    made: Unfreezing = builder(**{key: n if key == "every" else int(n) for key, n in zip(accepted, numbers, strict=False)})
    return made


def layerwise_of(said: str) -> LayerwiseRates:
    """`2.6`: every depth group that many times slower than the one above; several numbers: a factor each, embeddings first."""
    numbers = _numbers("--layerwise", said, said)
    if len(numbers) == 1 and numbers[0] > 0:
        return Divide(numbers[0])
    if len(numbers) > 1 and min(numbers) >= 0:
        return Factors(tuple(numbers))
    raise TaskError(f"--layerwise {said}: expected a number above 0, such as 2.6, or factors from below, such as 0.1,0.5,1.")


def _numbers(option: str, said: str, listed: str, most: int | None = None) -> list[float]:
    try:
        numbers = [float(one) for one in listed.split(",") if one.strip()]
    except ValueError:
        raise TaskError(f"{option} {said}: expected numbers with commas between them.") from None
    if most is not None and len(numbers) > most:
        raise TaskError(f"{option} {said}: {len(numbers)} numbers; expected at most {most}.")
    return numbers


def published(part: str, groups: int) -> dict[str, Any]:
    """The settings of a fine-tuning run that were published for a kind of network with so many depth groups; none for most.

    `lstm`: ULMFiT's classifier (Howard and Ruder, 2018, §3.3; fastai `courses/dl2/imdb_scripts/train_clas.py`). Rates, unfreezing
    and pooling are the paper's; betas, clip, decay and batch the code's. Length and epochs are ours: four after all is unfrozen.
    """
    if part != "lstm":
        return {}
    return {
        "epochs": groups + 4, "patience": None, "batch": 32, "rate": 0.01, "betas": (0.8, 0.99), "weight_decay": 1e-6,
        "clip": 25.0, "schedule": "slanted_triangular", "layerwise": Divide(2.6), "unfreeze": Gradual(), "pool": "concat",
        "length": 1400, "truncate": (70, 1400),
    }  # fmt: skip
