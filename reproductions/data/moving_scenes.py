"""Rendered films with a narrator, for systems that read films. They are drawings of emoji, no recordings. Nothing is committed.

    python reproductions/data/moving_scenes.py PACKAGES FILMS --films 300 --language en
    cloze corpus build FILMS/train.jsonl --items frames=FILMS/clips.npz --recipe univilm --out store

A film has three clips. In each, a thing on a coloured square (debian.py: Noto emoji, names of CLDR) moves left, right, up or down
in six frames, at a speed of its own, and the narrator says so: "the rocket on red moves up". FILMS then has `clips.npz`, in which
the features of a frame are its 16 x 16 pixels, and `train.jsonl` and `test.jsonl`, of which the latter has every tenth film. Keys
such as 0017/2 name film and clip. For `videobert`, `cloze vocab visual FILMS/clips.npz` makes visual words of the frames.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from debian import EMOJI, names, pictures, unpacked
from emoji_scenes import COLOURS, SQUARE, THINGS
from PIL import Image

SIDE, EACH, CLIPS, SMALL = 96, 6, 3, 16
#: Where a thing goes: what is said in a language, and the change of x and y.
WAYS = {
    "en": {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)},
    "zh": {"左": (-1, 0), "右": (1, 0), "上": (0, -1), "下": (0, 1)},
}
SAID = {"en": "the {thing} on {colour} moves {way}", "zh": "{colour}上的{thing}向{way}移动"}


def frames(thing: Image.Image, square: Image.Image, way: tuple[int, int], draw: np.random.Generator) -> np.ndarray:
    """The frames of a clip as features (EACH, 3 SMALL²) from -1 to 1."""
    speed, size = int(draw.integers(4, 9)), 40
    room = SIDE - size
    start = [room // 2 - step * speed * EACH // 2 if step else int(draw.integers(room)) for step in way]
    made = []
    for number in range(EACH):
        shown = Image.new("RGBA", (SIDE, SIDE), (235, 235, 235, 255))
        x, y = (first + step * speed * number for first, step in zip(start, way, strict=True))
        shown.alpha_composite(square.resize((size, size)), (x, y))
        shown.alpha_composite(thing.resize((28, 28)), (x + 6, y + 6))
        small = shown.convert("RGB").resize((SMALL, SMALL), Image.Resampling.BOX)
        made.append(np.asarray(small, np.float32).reshape(-1) / 127.5 - 1)
    return np.stack(made).astype(np.float16)


def write(packages: Path, out: Path, *, films: int, language: str, seed: int) -> None:
    """Make the files."""
    if language not in SAID:
        raise SystemExit(f"--language {language}: expected one of {', '.join(SAID)}.")
    files, emoji = unpacked(EMOJI, packages), [*THINGS, *COLOURS]
    drawings, named = pictures(files, emoji), names(files, language, emoji)
    draw = np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)
    keys, vectors, lines = [], [], {"train": [], "test": []}
    for film in range(films):
        thing, colour = str(draw.choice(list(THINGS))), str(draw.choice(list(COLOURS)))
        for clip in range(CLIPS):
            way = str(draw.choice(list(WAYS[language])))
            keys.append(f"{film:04d}/{clip}")
            vectors.append(frames(drawings[thing], drawings[colour], WAYS[language][way], draw))
            said = SAID[language].format(thing=named[thing], colour=named[colour].removesuffix(SQUARE[language]), way=way)
            lines["test" if film % 10 == 9 else "train"].append(json.dumps({"image": keys[-1], "text": said}, ensure_ascii=False))
    np.savez(out / "clips.npz", keys=np.array(keys), offsets=np.arange(len(keys) + 1) * EACH, features=np.concatenate(vectors))
    for name, own in lines.items():
        (out / f"{name}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Rendered films of emoji with a narrator.")
    parser.add_argument("packages", type=Path, help="a folder for Debian's packages")
    parser.add_argument("out", type=Path)
    parser.add_argument("--films", type=int, default=300)
    parser.add_argument("--language", default="en")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.packages, given.out, films=given.films, language=given.language, seed=given.seed)


if __name__ == "__main__":
    main()
