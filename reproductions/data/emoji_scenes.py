"""Scenes of emoji for systems that read pictures: pictures, boxes, and captions in several languages. Nothing is committed.

Pictures are those of Google's Noto emoji, names those of Unicode's CLDR. Both come from Debian's packages (debian.py), which
are kept in PACKAGES:

    python reproductions/data/emoji_scenes.py PACKAGES SCENES --scenes 4000 --languages en zh

A scene has one to three things, each of a kind of its own, on squares of seven colours; places, sizes and the shade of the
background vary. SCENES then has

- `pictures/NNNNN.png`, and `boxes.json` with the box, the class (the thing) and the attribute (the colour) of each region, as a
  detector would give them that is always right and sure: scores are 1, and so is the probability of the class;
- `LANGUAGE-train.jsonl` and `LANGUAGE-test.jsonl`: two captions of each picture, which name its things in two orders. Every tenth
  picture is a test picture, in all languages. The colours are drawn apart from the things, so no caption tells its colours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from debian import EMOJI, names, pictures, unpacked
from PIL import Image

SIDE = 160  # of a picture, in pixels
COLOURS = "🟥🟧🟨🟩🟦🟪🟫"
THINGS = "🐘🐇🦋🐟🐸🐢🐝🐙🍌🥕🍕🍉🍄🌻🌵🚗🚲🚀⚓🔑👑🎈🎸🔔"
#: How a thing on a square is said, and how such phrases are joined; other languages put a colon and commas.
PHRASES = {"en": ("{article} {thing} on {colour}", " and "), "zh": ("{colour}上的{thing}", "和")}
OPENINGS = {"en": ("", "there is "), "zh": ("", "这里有")}
OTHERS = ("{thing}: {square}", ", ")
#: What is left out of the name of a square, "red square", to get that of its colour.
SQUARE = {"en": " square", "zh": "方块"}


class Thing(NamedTuple):
    """A thing of a scene: its emoji, that of its colour, and its box."""

    thing: str
    colour: str
    box: tuple[int, int, int, int]


def scene(draw: np.random.Generator) -> list[Thing]:
    """One to three things in different quarters of the picture."""
    count = int(draw.integers(1, 4))
    things = draw.choice(list(THINGS), count, replace=False)
    quarters = draw.permutation(4)[:count]
    made = []
    for thing, quarter in zip(things, quarters, strict=True):
        side = int(draw.integers(52, 73))
        x, y = (int(corner * SIDE // 2 + draw.integers(2, SIDE // 2 - side - 1)) for corner in (quarter % 2, quarter // 2))
        made.append(Thing(str(thing), str(draw.choice(list(COLOURS))), (x, y, x + side, y + side)))
    return made


def drawn(things: Sequence[Thing], pictures: dict[str, Image.Image], draw: np.random.Generator) -> Image.Image:
    """The picture of a scene."""
    made = Image.new("RGBA", (SIDE, SIDE), (*(int(n) for n in draw.integers(205, 251, 3)), 255))
    for one in things:
        side = one.box[2] - one.box[0]
        for name, share in ((one.colour, 1.0), (one.thing, 0.7)):
            size = int(side * share)
            place = one.box[0] + (side - size) // 2, one.box[1] + (side - size) // 2
            made.alpha_composite(pictures[name].resize((size, size)), place)
    return made.convert("RGB")


def caption(things: Sequence[Thing], names: dict[str, str], language: str, opening: str) -> str:
    """The things in their order."""
    phrase, joint = PHRASES.get(language, OTHERS)

    def article(noun: str) -> str:
        return "an" if noun[0] in "aeiou" else "a"

    said = [
        phrase.format(
            thing=names[one.thing], square=names[one.colour], article=article(names[one.thing]),
            colour=names[one.colour].removesuffix(SQUARE.get(language, "")),
        )
        for one in things
    ]
    return opening + joint.join(said)


def write(packages: Path, out: Path, *, scenes: int, languages: Sequence[str], seed: int) -> None:
    """Make the files."""
    files, emoji = unpacked(EMOJI, packages), [*THINGS, *COLOURS]
    drawings, named = pictures(files, emoji), {language: names(files, language, emoji) for language in languages}
    english = names(files, "en", emoji)
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    boxes: dict[str, Any] = {}
    lines: dict[str, list[str]] = {f"{language}-{part}": [] for language in languages for part in ("train", "test")}
    for number in range(scenes):
        key, things = f"{number:05d}.png", scene(draw)
        drawn(things, drawings, draw).save(out / "pictures" / key)
        boxes[key] = {
            "boxes": [one.box for one in things], "class": [english[one.thing] for one in things],
            "attribute": [english[one.colour].split()[0] for one in things], "score": [1.0] * len(things),
            "attribute_score": [1.0] * len(things),
            "probabilities": [[float(one.thing == kind) for kind in THINGS] for one in things],
        }  # fmt: skip
        orders = [[things[place] for place in draw.permutation(len(things))] for _ in range(2)]
        for language in languages:
            openings = OPENINGS.get(language, ("", ""))
            said = [caption(order, named[language], language, begin) for order, begin in zip(orders, openings, strict=True)]
            part = "test" if number % 10 == 9 else "train"
            lines[f"{language}-{part}"].append(json.dumps({"image": key, "caption": said}, ensure_ascii=False))
    (out / "boxes.json").write_text(json.dumps(boxes), encoding="utf-8")
    for name, own in lines.items():
        (out / f"{name}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Scenes of emoji with boxes and captions in several languages.")
    parser.add_argument("packages", type=Path, help="a folder for Debian's packages")
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenes", type=int, default=4000)
    parser.add_argument("--languages", nargs="+", default=["en", "zh"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.packages, given.out, scenes=given.scenes, languages=given.languages, seed=given.seed)


if __name__ == "__main__":
    main()
