"""Numbers with bounds, for the signatures of parts: what a recipe or `--set` writes outside of them is refused with its line.

    def __init__(self, *, rate: Share = 0.15, max_length: Count = 10) -> None: ...

Recipes are checked, and the arguments of public functions (`cloze.arguments`); a part built in Python takes what it is given.
Not a number and infinity are never legal.
"""

from __future__ import annotations

import re
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, Predicate

#: The largest whole number: larger ones are mistakes.
LARGEST = 1 << 40
#: A probability, or a part of a whole: 0 … 1.
Share = Annotated[float, Ge(0), Le(1)]
#: A share that leaves something over: dropout, momentum, a beta of Adam, text put aside.
BelowOne = Annotated[float, Ge(0), Lt(1)]
#: A number above 0.
Positive = Annotated[float, Gt(0)]
#: A number of 0 or more.
NonNegative = Annotated[float, Ge(0)]
#: A whole number of 1 or more.
Count = Annotated[int, Ge(1), Le(LARGEST)]
#: A whole number of 0 or more.
Natural = Annotated[int, Ge(0), Le(LARGEST)]
#: A stretch of time: 90s, 20m, 1.5h, 2d.
Duration = Annotated[str, Predicate(lambda text: re.fullmatch(r"(?=.*[1-9])(\d+\.?\d*|\.\d+)(s|m|min|h|d)", text) is not None)]
DEEPEST = 4096
#: Layers of a network. The deepest transformers published have 1,000 (Wang et al., DeepNet, 2022).
Depth = Annotated[int, Ge(1), Le(DEEPEST)]
#: Layers of a part that may be left out.
OptionalDepth = Annotated[int, Ge(0), Le(DEEPEST)]
#: The width of a layer, or a number of heads.
Width = Annotated[int, Ge(1), Le(1 << 20)]
#: The width of a layer that may be left out.
OptionalWidth = Annotated[int, Ge(0), Le(1 << 20)]
