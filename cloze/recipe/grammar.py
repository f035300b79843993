"""The keys of a recipe and of its sections, what each may hold, and its default.

`expand.py` writes out the short forms of these sections, `read_recipe.py` reads them, and `json_schema.py` describes them for
editors. The fields of a dataclass are the keys of its section: `Reading`, `TrainingSpec`, `TaskSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from cloze.bounds import Count, NonNegative, Positive, Share
from cloze.reading import OrderName, Reading
from cloze.recipe.recipe import AverageSpec, EntryTaskSpec, Mixing, TaskSpec, TrainingSpec
from cloze.registry import Argument, Arguments, InsteadMark, LiveMark
from cloze.text.normalise import Normalise

#: Short forms of sections: `text: …` is `texts: {main: …}`.
SINGULAR = {"text": "texts", "corpus": "sources", "network": "networks"}

TEXT: Arguments = {
    "normalise": Argument(Normalise, {}),
    "tokenizer": Argument.of_part("tokenizer"),
    "words": Argument.of_part("segmenter", None),
    "annotate": Argument.of_named_parts("annotator", {}),
    "line_ends": Argument(bool, False),
}
#: What stands next to the part of a network.
NETWORK: Arguments = {
    "from": Argument(str | None, None),
    "average": Argument(AverageSpec | None, None),
    "change": Argument.of_part_list("change", []),
    "train": Argument(Annotated[str | list[str | int], InsteadMark("unfreezing")], "all"),
    "architecture": Argument(str | None, None),
    "start": Argument.of_part("start", None),
}
PASS: Arguments = {
    "name": Argument(str | None, None),
    "network": Argument(str),
    "view": Argument(str, "main"),
    "take": Argument(dict[str, str], {}),  # or a rewriter by its name
    "objectives": Argument.of_part_list("objective", []),
    "grad": Argument(bool, True),
}
ENTRY: Arguments = {
    "source": Argument(str | None, None),
    "order": Argument(Annotated[OrderName, InsteadMark("order")], "open"),
    "exercise": Argument.of_part_list("edit", []),
    "passes": Argument(list[Any], []),  # of `PASS`
    "objectives": Argument.of_part_list("objective", []),
    "odds": Argument(NonNegative | Literal["by_size"] | dict[Literal["by_size"], Positive], 1.0),
    "task": Argument(EntryTaskSpec | None, None),
}
PHASE: Arguments = {
    "steps": Argument(Count | None, None),
    "share": Argument(Share | None, None),
    "epochs": Argument(Positive | None, None),
    "set": Argument(dict[str, Any], {}),
}
RECIPE: Arguments = {
    "name": Argument(str),
    "paper": Argument(str | None, None),
    "notes": Argument(str | None, None),
    "sources": Argument.of_named_parts("source"),
    "texts": Argument(dict[str, Any]),  # of `TEXT`
    "tables": Argument.of_named_parts("table", {}),
    "networks": Argument(dict[str, Any]),  # a part each, with the keys of `NETWORK` next to it
    "tie": Argument(list[list[str]], ()),
    "tie_detached": Argument(list[list[str]], ()),
    "reading": Argument(Reading),
    **{key: ENTRY[key] for key in ("order", "exercise", "passes", "objectives")},
    "mixture": Argument(dict[str, Any], {}),  # of `ENTRY`
    "mixing": Argument(Mixing, "step"),
    "schedule": Argument(list[Any], []),  # of `PHASE`
    "training": Argument(TrainingSpec),
    "task": Argument(TaskSpec | None, None),
    "export": Argument(str | None, None),
    "stages": Argument(dict[str, Any], {}),  # of the keys of a recipe
}
#: The keys that hold a plain value each, all of them optional but `name`.
VALUES: Arguments = {key: RECIPE[key] for key in ("name", "paper", "notes", "tie", "tie_detached", "mixing", "export")}
#: Every key that a recipe may have, with the short forms.
KEYS = tuple(key for plural in RECIPE for key in (plural, *(short for short, long in SINGULAR.items() if long == plural)))
#: Arguments that recipes read themselves and do not pass to the builder of a part.
RESERVED: Mapping[str, Arguments] = {
    "edit": {"in": Argument(str, "main")},
    "objective": {
        "read": Argument(str | dict[str, str] | None, None),
        "head": Argument(str | None, None),
        "weight": Argument(Annotated[NonNegative, LiveMark()], 1.0),
    },
    "rewriter": {"from": Argument(str | dict[str, str])},
}
