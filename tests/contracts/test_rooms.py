"""Rooms that can be looked over: how many modules lie flat in a folder, and how large a package is."""

from __future__ import annotations

from pathlib import Path

from tests.site_scripts import rooms

PACKAGE = Path(__file__).parents[2] / "cloze"
FLAT, LINES = 30, 8_000  # modules of a package, and their lines; a folder inside a package is a package of its own


def test_a_package_has_few_modules_and_few_lines() -> None:
    packages = [path.parent for path in PACKAGE.rglob("__init__.py")]
    modules = {folder.relative_to(PACKAGE).as_posix(): list(folder.glob("*.py")) for folder in packages}
    lines = {name: sum(len(path.read_text().splitlines()) for path in paths) for name, paths in modules.items()}
    assert {name: len(paths) for name, paths in modules.items() if len(paths) > FLAT} == {}
    assert {name: count for name, count in lines.items() if count > LINES} == {}


def test_the_picture_of_the_rooms_has_every_package() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"samples"}
    assert {name for floor in rooms.floors() for name in floor} == packages | {"modules of cloze/"}
    picture = rooms.draw()
    assert all(f">{name}  " in picture for name in packages)
