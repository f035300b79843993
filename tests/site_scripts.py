"""The scripts of docs/site as modules."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "docs" / "site"))  # as where a script is run
import pages  # noqa: E402
import published  # noqa: E402
import rooms  # noqa: E402
import stage  # noqa: E402

sys.path.pop(0)

__all__ = ["ROOT", "pages", "published", "rooms", "stage"]
