"""The options `--fit` and `--as-published` of the verbs that pre-train."""

from __future__ import annotations

from typing import Annotated

import typer

Fit = Annotated[
    bool | None,
    typer.Option("--fit/--as-published", help="Fit to the budget; default: built-in recipes only.", show_default=False),
]
