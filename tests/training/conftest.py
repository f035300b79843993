"""Makes `tiny`, the tests' own runs, importable here and in the processes that tests start."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
