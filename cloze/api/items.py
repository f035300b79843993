"""Files with the items of pictures, as methods take them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: The file with the items of pictures, or a file for each set of items.
ItemFiles = str | Path | Mapping[str, str | Path] | None


def item_files(items: ItemFiles) -> list[str]:
    """Files of items as the command line has them: FILE, or NAME=FILE."""
    if items is None:
        return []
    return [f"{name}={file}" for name, file in items.items()] if isinstance(items, Mapping) else [str(items)]
