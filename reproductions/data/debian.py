"""Emoji and other material of Debian's packages, for the scripts next to this one. Nothing of it is committed.

`unpacked` downloads packages with `apt-get download` and unpacks them without installing them: it needs apt and dpkg. Pictures of
emoji are those of Google's Noto fonts (SIL Open Font Licence), their names in some 140 languages those of Unicode's CLDR (Unicode
licence).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image, ImageDraw, ImageFont

EMOJI = ("fonts-noto-color-emoji", "unicode-cldr-core")
_SIZE = 109  # the only one that the font has
_WIDE, _HIGH = 136, 128


def unpacked(packages: Sequence[str], folder: Path) -> Path:
    """The contents of the packages below `folder`. What is there already is not downloaded again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in packages:
        if not any(folder.glob(f"{name}_*.deb")):
            subprocess.run(["apt-get", "-q", "download", name], cwd=folder, check=True, capture_output=True)
            subprocess.run(["dpkg", "-x", str(next(folder.glob(f"{name}_*.deb"))), str(folder / "files")], check=True)
    return folder / "files"


def pictures(files: Path, emoji: Iterable[str]) -> dict[str, Image.Image]:
    """The picture of each emoji, 128 x 128, transparent around it."""
    font = ImageFont.truetype(str(files / "usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"), _SIZE)
    made = {}
    for one in emoji:
        drawn = Image.new("RGBA", (_WIDE, _HIGH), (0, 0, 0, 0))
        ImageDraw.Draw(drawn).text((0, 0), one, font=font, embedded_color=True)
        made[one] = drawn.crop(((_WIDE - _HIGH) // 2, 0, (_WIDE + _HIGH) // 2, _HIGH))
    return made


def names(files: Path, language: str, emoji: Iterable[str]) -> dict[str, str]:
    """The name of each emoji in a language."""
    place = files / "usr/share/unicode/cldr/common/annotations" / f"{language}.xml"
    if not place.is_file():
        known = " ".join(sorted(path.stem for path in place.parent.glob("*.xml")))
        raise SystemExit(f"{place}: no such language; there are {known}.")
    read = {
        one.attrib["cp"]: one.text or "" for one in ElementTree.parse(place).iter("annotation") if one.get("type") == "tts"
    }
    return {one: read[one].lower() for one in emoji}
