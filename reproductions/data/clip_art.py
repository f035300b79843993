"""Drawings with titles and keywords: the Open Clip Art Library as Debian packages it. Nothing is committed.

    python reproductions/data/clip_art.py PACKAGES CLIPART --most 800
    cloze features CLIPART/pictures --grid 3 --with random_conv --out features.npz
    cloze corpus build CLIPART/captions.jsonl --items regions=features.npz --out store

The drawings are those of openclipart-png (public domain, 131 MB), and what they show is in the metadata of the same files in
openclipart-svg (25 MB); both are kept in PACKAGES. A caption is the title of a drawing and its keywords, such as "wine glass:
alcohol, beverage, festive, food". A title that more than three drawings have is the name of a collection and left out, and so are
marks of the library's software among the keywords. Drawings of more than ten million pixels are left out. CLIPART gets
`pictures/`, at most 256 pixels wide and high, and `captions.jsonl`, for `--most` drawings that are drawn at random from those
with a caption.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from debian import unpacked
from PIL import Image

PACKAGES = ("openclipart-png", "openclipart-svg")
SIDE = 256
DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
COLLECTION = 3  # titles that more drawings have are names of collections
LARGEST = 10_000_000  # pixels; a few drawings have hundreds of millions
MARKS = {"hash", "unsorted", "clip_art", "clipart"}


class Said(NamedTuple):
    """The title of a drawing and its keywords, in lower case."""

    title: str
    keywords: tuple[str, ...]


def said(file: Path) -> Said | None:
    """What the metadata of a drawing say; None if they cannot be read."""
    try:
        root = ElementTree.parse(file).getroot()
    except ElementTree.ParseError:
        return None
    work = next((element for element in root.iter() if element.tag.endswith("}Work")), None)
    if work is None:
        return None
    words = {(one.text or "").strip().lower().replace("_", " ") for one in work.iter() if one.tag.endswith("}li")}
    kept = sorted(word for word in words if word and word not in MARKS and not any(letter.isdigit() for letter in word))
    title = " ".join((work.findtext(f"{DUBLIN_CORE}title") or "").lower().replace("_", " ").split())
    return Said("" if "@" in title else title, tuple(kept))


def shrunk(drawing: Path, place: Path) -> bool:
    """Write a drawing at the size of the others; false if it is too large to be read."""
    with Image.open(drawing) as picture:
        if picture.width * picture.height > LARGEST:
            return False
        drawn = picture.convert("RGBA")
    drawn.thumbnail((SIDE, SIDE))
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    drawn.save(part, format="PNG")
    part.rename(place)
    return True


def write(packages: Path, out: Path, *, most: int, seed: int) -> None:
    """Make the files."""
    library = unpacked(PACKAGES, packages) / "usr/share/openclipart"
    files = sorted((library / "svg").rglob("*.svg"))
    found = {file.relative_to(library / "svg").with_suffix(".png"): said(file) for file in files}
    known = {path: one for path, one in found.items() if one is not None and (library / "png" / path).is_file()}
    titles = Counter(one.title for one in known.values())
    captions: dict[Path, str] = {}
    for path, one in known.items():
        title = one.title if titles[one.title] <= COLLECTION else ""
        caption = ": ".join(part for part in (title, ", ".join(one.keywords)) if part)
        if caption:
            captions[path] = caption
    paths, lines = list(captions), []
    Image.MAX_IMAGE_PIXELS = None  # sizes are looked at here
    for number in np.random.default_rng(seed).permutation(len(captions)).tolist():
        path = paths[number]
        if len(lines) == most:
            break
        place = out / "pictures" / path
        if not place.exists() and not shrunk(library / "png" / path, place):
            continue
        lines.append(json.dumps({"image": path.as_posix(), "caption": captions[path]}, ensure_ascii=False))
    (out / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    different = len(set(captions.values()))
    print(f"{out / 'captions.jsonl'}: {len(lines)} of {len(captions)} drawings with captions, {different} of them different")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Drawings of the Open Clip Art Library with titles and keywords.")
    parser.add_argument("packages", type=Path, help="a folder for Debian's packages")
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.packages, given.out, most=given.most, seed=given.seed)


if __name__ == "__main__":
    main()
