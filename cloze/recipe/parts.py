"""Kinds of parts and the packages that register them; a package is imported when a recipe first needs its kind.

Networks, objectives, rewriters and optimizers need torch; sources, edits and tokenizers do not.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from cloze import registry
from cloze.errors import RecipeError

MODULES: dict[str, str] = {
    "tokenizer": "cloze.text",
    "segmenter": "cloze.text",
    "annotator": "cloze.knowledge",  # which imports those of cloze.corpus
    "source": "cloze.knowledge",
    "table": "cloze.knowledge",
    "answer": "cloze.corpus",
    "edit": "cloze.exercises",
    "order": "cloze.exercises",
    "network": "cloze.networks",
    "embedding": "cloze.networks",
    "positions": "cloze.networks",
    "scaling": "cloze.networks",
    "norm": "cloze.networks",
    "feed_forward": "cloze.networks",
    "initial": "cloze.networks",
    "objective": "cloze.objectives",
    "transform": "cloze.objectives",
    "rewriter": "cloze.objectives",
    "optimizer": "cloze.training.optimizers.every_optimizer",
    "rate": "cloze.training.schedule.rates",
    "schedule": "cloze.training.schedule.schedules",
    "unfreezing": "cloze.changes",
    "layerwise": "cloze.changes",
    "change": "cloze.changes",
    "engine": "cloze.engines",
    "start": "cloze.engines",
}

#: The base classes of the parts of a kind: a package and class names in it. Parts of users inherit from the first.
BASES: dict[str, tuple[str, ...]] = {
    "annotator": ("cloze.text", "Annotator"),
    "source": ("cloze.corpus", "Source"),
    "table": ("cloze.corpus", "LookUp"),
    "edit": ("cloze.exercises", "Edit"),
    "order": ("cloze.exercises", "Edit"),
    "network": ("cloze.networks", "Network"),
    "objective": ("cloze.objectives", "Objective", "HeadFromCheckpoint"),
    "rewriter": ("cloze.objectives", "Rewriter"),
    "optimizer": ("cloze.training.optimizers.optimizers", "OptimizerSpec"),
    "change": ("cloze.changes", "Change"),
    "rate": ("cloze.training.schedule.rates", "Rate"),
    "layerwise": ("cloze.changes.layerwise", "LayerwiseRates"),
    "probe": ("cloze.probes", "Probe"),
}


def load_kind(kind: str) -> None:
    """Import the module whose parts are of this kind; kinds that only user code registers need no import."""
    module = MODULES.get(kind)
    if module is not None:
        importlib.import_module(module)


def builder_of(kind: str, name: str) -> Callable[..., Any]:
    """The builder of a part.

    Raises:
        RecipeError: The name is unknown; the class does not inherit from the base class of its kind, or lacks one of its members.
    """
    load_kind(kind)
    builder = registry.lookup(kind, name)
    if kind in BASES:
        module, base, *alternatives = BASES[kind]
        classes = vars(importlib.import_module(module))
        if not issubclass(registry.made_by(builder), tuple(classes[class_name] for class_name in (base, *alternatives))):
            raise RecipeError(
                f"{kind} {name!r}: {builder.__qualname__} does not inherit from {base}, which every {kind} does.\n"
                f"  Write: from {module} import {base}, and class {builder.__qualname__}({base})"
            )
    if inspect.isabstract(builder):
        members = dict(inspect.getmembers(builder))
        lines = "".join(f"\n  {member}: {inspect.getdoc(members[member])}" for member in sorted(members["__abstractmethods__"]))
        raise RecipeError(
            f"{kind} {name!r}: {builder.__qualname__} lacks what every {kind} defines:{lines}\n"
            f"  Add it to the class in {inspect.getsourcefile(builder)}."
        )
    return builder


def engines() -> list[Any]:
    """The registered engines, for `train` to choose from."""
    return [builder_of("engine", name)() for name in names("engine")]


def class_of(kind: str, name: str) -> Any:
    """The class of a part; its class attributes can be read before anything is built."""
    return registry.made_by(builder_of(kind, name))


def names(kind: str) -> list[str]:
    """The known parts of one kind."""
    load_kind(kind)
    return registry.names(kind)


def architectures(network: str | None) -> list[str]:
    """The architectures of transformers that a network of this part may be exported as; all of them if it names none."""
    from cloze.interop import ARCHITECTURES

    return [name for name, architecture in ARCHITECTURES.items() if network in (None, architecture.part)]
