"""Append the text of a companion to the row's own, so that parts may lie in either."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.rows import Rows


def with_companions(rows: Rows, *companions: str) -> dict[str, NDArray[Any]]:
    """Every token-aligned field of the main view, followed by those of the companions, as wide as all together.

    A companion begins at the column where the fields before it end. A field that a companion lacks is empty there.
    """
    texts = [rows.view(companion) for companion in companions]
    joined = {}
    for name, value in rows.items():
        field = fields.find(name)
        if field.aligned and "." not in name:
            values = [value]
            for text in texts:
                shape = (*text["tokens"].shape, *value.shape[2:])
                values.append(text[name] if name in text else np.full(shape, field.inserted, value.dtype))
            joined[name] = np.concatenate(values, axis=1)
    return joined
