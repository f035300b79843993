"""Transfer as a command line writes it, and the published manner of a kind of network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from cloze.errors import TaskError, nearest
from cloze.registry import lookup, names
from cloze.training.dropouts import Dropouts
from cloze.training.movement import Everything, LayerwiseRates, Only, Unfreezing
from cloze.transfer.layerwise import Divide, Factors
from cloze.transfer.unfreezing import Gradual, Sequential

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


def ulmfit(groups: int) -> dict[str, Any]:
    """ULMFiT's classifier (Howard and Ruder, 2018, §3.3; fastai `courses/dl2/imdb_scripts/train_clas.py` at a455d3e).

    Rates, unfreezing, pooling and a triangle for every stage are the paper's; dropouts, penalties, betas, clip, decay and batch
    the code's. Length and epochs are ours: four after everything moves.
    """
    rates = {
        "embeddings.dropout": 0.05, "input_dropout": 0.4, "layers.*.weight_dropout": 0.5, "hidden_dropouts.*": 0.3,
        "final_dropout": 0.0,
    }  # fmt: skip
    return {
        "epochs": groups + 4, "patience": None, "batch": 32, "rate": 0.01, "betas": (0.8, 0.99), "weight_decay": 1e-6,
        "clip": 25.0, "schedule": "slanted_triangular", "layerwise": Divide(2.6), "unfreeze": Gradual(), "pool": "concat",
        "length": 1400, "truncate": (70, 1400), "dropouts": Dropouts(rates, ("input_dropout", "hidden_dropouts.*")),
        "penalties": (2.0, 1.0),
    }  # fmt: skip


def siatl(groups: int) -> dict[str, Any]:
    """SiATL's classifier (Chronopoulou et al., 2019; alexandra-chron/siatl `model_configs/SCV2_aux_ft_gu.yaml`).

    The clip of 5 and the dropout of 0.3 between LSTMs are those of the language model's configuration, which the code puts in the
    place of the classifier's. Epochs are ours: 15, over which the weight of the language model falls as there.
    """
    rates = {
        "embeddings.dropout": 0.2, "input_dropout": 0.1, "layers.*.weight_dropout": 0.0, "hidden_dropouts.*": 0.3,
        "final_dropout": 0.1,
    }  # fmt: skip
    return {
        "epochs": 15, "patience": 6, "batch": 32, "rate": 5e-4, "weight_decay": 0.0, "clip": 5.0, "schedule": "constant",
        "unfreeze": Sequential(), "pool": "attention", "task_lstm": 100, "auxiliary": (0.2019, 0.1003), "length": 80,
        "dropout": 0.0, "dropouts": Dropouts(rates, ("input_dropout", "final_dropout")),
    }  # fmt: skip


#: What `--manner` names.
MANNERS: Mapping[str, Callable[[int], dict[str, Any]]] = MappingProxyType(
    {"ulmfit": ulmfit, "siatl": siatl, "plain": lambda groups: {}}
)


def published(part: str, groups: int, *, manner: str | None = None, recipe: str | None = None) -> dict[str, Any]:
    """The settings that were published for classifiers on a kind of network with so many depth groups; none for most.

    `manner` names them; else those of the `recipe` that the network was trained by, and ULMFiT's for any other `lstm`.
    """
    if manner is not None and manner not in MANNERS:
        raise TaskError(f"--manner {manner}: unknown. {nearest(manner, MANNERS)}")
    if part != "lstm":
        if manner not in (None, "plain"):
            raise TaskError(f"--manner {manner} is for the network lstm; this one is {part or 'another'}. Leave it out.")
        return {}
    own = recipe if recipe is not None and recipe in MANNERS else "ulmfit"
    return MANNERS[manner or own](groups)
