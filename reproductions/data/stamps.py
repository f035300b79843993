"""Photographs and drawings with a caption in many languages: the stamps of Tux Paint. Nothing is committed.

    python reproductions/data/stamps.py PACKAGES STAMPS --languages en de zh_CN
    cloze features STAMPS/pictures --grid 3 --with random_conv --out features.npz
    cloze corpus build STAMPS/de.jsonl --items regions=features.npz --out store

The pictures are those of Debian's package tuxpaint-stamps-default (GPL-2, 160 MB, kept in PACKAGES): 785 with an English caption,
and captions in over 60 languages. STAMPS gets `pictures/`, at most 256 pixels wide and high, and a file LANGUAGE.jsonl for each
language. What has no caption in a language is missing in its file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from debian import unpacked
from PIL import Image

PACKAGE = "tuxpaint-stamps-default"
SIDE = 256


def captions(text: str) -> dict[str, str]:
    """What a stamp is called, by language: its first line is English, the others are `de.utf8=…`."""
    first, *others = text.splitlines() or [""]
    found = {"en": first.strip()}
    for line in others:
        name, equals, said = line.partition(".utf8=")
        if equals and said.strip():
            found[name.strip()] = said.strip()
    return {name: said for name, said in found.items() if said}


def write(packages: Path, out: Path, languages: Sequence[str]) -> None:
    """Make the files."""
    stamps = unpacked([PACKAGE], packages) / "usr/share/tuxpaint/stamps"
    lines: dict[str, list[str]] = {language: [] for language in languages}
    for file in sorted(stamps.rglob("*.png")):
        told = file.with_suffix(".txt")
        if not told.is_file():
            continue
        said, key = captions(told.read_text(encoding="utf-8", errors="replace")), file.relative_to(stamps).as_posix()
        place = out / "pictures" / key
        place.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as picture:
            drawn = picture.convert("RGBA")
        drawn.thumbnail((SIDE, SIDE))
        drawn.save(place)
        for language, own in lines.items():
            if language in said:
                own.append(json.dumps({"image": key, "caption": said[language]}, ensure_ascii=False))
    for language, own in lines.items():
        (out / f"{language}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")
        print(f"{out / f'{language}.jsonl'}: {len(own)} captions")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Pictures of Tux Paint with captions in several languages.")
    parser.add_argument("packages", type=Path, help="a folder for Debian's packages")
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs="+", default=["en", "de", "zh_CN"])
    given = parser.parse_args()
    write(given.packages, given.out, given.languages)


if __name__ == "__main__":
    main()
