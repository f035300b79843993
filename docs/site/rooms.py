"""Draws the packages of cloze as floors: a package imports only from floors below its own. `python docs/site/rooms.py FILE.svg`

The floors are the layers of `[tool.importlinter]` in pyproject.toml, which the lint step checks. The area of a room grows with
its lines.
"""

from __future__ import annotations

import math
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH, FLOOR, GAP, LEAST = 860, 30, 6, 120  # pixels


def floors() -> list[list[str]]:
    """The packages of each floor, the highest first; single modules are the ground floor."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["cloze"])
    packages = [[name.strip() for name in layer.replace(":", "|").split("|")] for layer in layers]
    rooms = [[name for name in names if (ROOT / "cloze" / name).is_dir()] for names in packages]
    return [*filter(None, rooms), ["modules of cloze/"]]


def lines_of(package: str) -> int:
    """The lines of a package, or of the single modules."""
    folder = ROOT / "cloze"
    paths = folder.glob("*.py") if package == "modules of cloze/" else (folder / package).rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def draw() -> str:
    """The picture as SVG."""
    rows, largest = floors(), max(lines_of(name) for names in floors() for name in names)
    height = len(rows) * (FLOOR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">'
        "<style>text{fill:#222}rect{fill:#dbe7f5;stroke:#7f9cc0}@media (prefers-color-scheme: dark){text{fill:#ddd}"
        "rect{fill:#27364a;stroke:#5b7391}}</style>"
    ]
    for number, names in enumerate(rows):
        y, x = number * (FLOOR + GAP), 0.0
        for name in names:
            lines = lines_of(name)
            width = LEAST + (WIDTH / 2 - LEAST) * math.sqrt(lines / largest)
            parts.append(f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{FLOOR}" rx="4"/>')
            parts.append(f'<text x="{x + 10:.0f}" y="{y + 20}">{escape(name)}  {lines / 1000:.1f}k</text>')
            x += width + GAP
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
