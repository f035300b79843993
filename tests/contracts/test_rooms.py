"""Rooms that can be looked over: how many modules lie flat in a folder, and how large a package is. The numbers may only fall."""

from __future__ import annotations

from pathlib import Path

from tests.site_scripts import rooms

PACKAGE = Path(__file__).parents[2] / "cloze"
FLAT, LINES = 30, 8_000  # of a folder, and of a package
#: Folders and packages that are still larger, and how large they may be.
LARGER_FOLDERS = {
    "cli": 58, "decoding": 36, "exercises": 66, "networks": 33, "networks/blocks": 41, "objectives": 56, "tasks": 55, "text": 40,
}  # fmt: skip
LARGER_PACKAGES = {"corpus": 16_700, "interop": 9_000, "networks": 11_600, "tasks": 10_000}


def test_a_folder_has_few_modules() -> None:
    counts = {
        folder.relative_to(PACKAGE).as_posix(): len(list(folder.glob("*.py")))
        for folder in PACKAGE.rglob("*") if (folder / "__init__.py").exists()
    }
    large = {name: count for name, count in counts.items() if count > LARGER_FOLDERS.get(name, FLAT)}
    assert not large and all(counts[name] > FLAT for name in LARGER_FOLDERS)


def test_a_package_is_small() -> None:
    counts = {name: rooms.lines_of(name) for floor in rooms.floors() for name in floor if (PACKAGE / name).is_dir()}
    large = {name: count for name, count in counts.items() if count > LARGER_PACKAGES.get(name, LINES)}
    assert not large and all(counts[name] > LINES for name in LARGER_PACKAGES)


def test_the_picture_of_the_rooms_has_every_package() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"samples"}
    assert {name for floor in rooms.floors() for name in floor} == packages | {"modules of cloze/"}
    picture = rooms.draw()
    assert all(f">{name}  " in picture for name in packages)
