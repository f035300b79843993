"""The page: complete, self-contained, and drawn by a real browser where there is one."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from cloze.errors import UserError
from cloze.reports import read_run, render, write_report
from tests.pages import Outline

from .runs import write_run


def test_the_page_of_one_run_has_every_section(tmp_path: Path) -> None:
    page = Outline(render([read_run(write_run(tmp_path / "run"))]))
    assert page.headings == ["bert", "Loss", "Filled masks", "Training in detail", "Recipe", "Environment"]


def test_the_page_of_several_runs_compares_them(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / n, name=n, width=w)) for n, w in (("bert", 256), ("electra", 128))]
    html = render(runs)
    headings = Outline(html).headings
    assert headings[:2] == ["bert · electra", "Side by side"] and "What the recipes do differently" in headings
    assert "network.transformer.width" in html


def test_the_page_refers_to_nothing_outside_itself(tmp_path: Path) -> None:
    html = render([read_run(write_run(tmp_path / "run"))])
    assert Outline(html).addresses == []
    assert "http://" not in html and "https://" not in html and "@import" not in html and "url(" not in html


@pytest.mark.parametrize("key", ["loss", "tokens", "seconds", "step", "learning_rate", "tokens_per_second"])
def test_a_number_of_hundreds_of_digits_is_left_out(tmp_path: Path, key: str) -> None:
    log = write_run(tmp_path / "run", steps=30) / "cloze" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records[-1][key] = 10**400
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert "Loss" in Outline(render([read_run(tmp_path / "run")])).headings


def test_text_from_a_run_cannot_become_markup(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", name="<script>alert(1)</script>")
    assert "<script>alert" not in render([read_run(folder)])


def test_results_that_a_run_recorded_are_shown_as_tables(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with (folder / "cloze" / "log.jsonl").open("a") as log:
        log.write(
            '{"event": "table", "title": "Fine-tuned", "columns": ["start", "acc"], "rows": [["random", "41 %"]]}\n'
        )
    html = render([read_run(folder)])
    assert "Fine-tuned" in Outline(html).headings and "41 %" in html


def test_a_report_goes_into_the_run_and_several_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, steps=30)
    assert write_report("runs/a") == Path("runs/a/report.html")
    assert write_report(["runs"]) == Path("report.html")
    assert write_report([Path("runs/b")], "deep/er/page.html").is_file()
    assert write_report([Path("runs/b")], "deep/er/page.html").is_file()  # a page is made again
    Path("notes.txt").write_text("mine")
    with pytest.raises(UserError, match="notes.txt: holds something else than a page of cloze, which would be lost"):
        write_report([Path("runs/b")], "notes.txt")
    assert Path("notes.txt").read_text() == "mine"
    assert [p.name for p in tmp_path.glob("**/.*")] == []


def pixels(png: Path) -> tuple[int, int, list[bytes]]:
    """Width, height and unfiltered RGB(A) rows of a PNG (8 bits, not interlaced)."""
    data = png.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6)
    size, chunks, at = (3 if kind == 2 else 4), b"", 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            chunks += data[at + 8 : at + 8 + length]
        at += 12 + length
    raw, rows, before = zlib.decompress(chunks), [], bytes(width * size)
    for y in range(height):
        start = y * (width * size + 1)
        before = unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + width * size]), before, size)
        rows.append(before)
    return width, height, rows


def unfilter(kind: int, row: bytearray, above: bytes, size: int) -> bytes:
    for i in range(len(row)):
        a, b, c = (row[i - size] if i >= size else 0), above[i], (above[i - size] if i >= size else 0)
        p = a + b - c
        nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        row[i] = (row[i] + (0, a, b, (a + b) // 2, nearest)[kind]) & 255
    return bytes(row)


BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no chromium to look at the page with")
def test_a_browser_draws_the_curves(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", steps=60), tmp_path / "page.html")
    shot = tmp_path / "page.png"
    subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={tmp_path / 'profile'}",
         f"--screenshot={shot}", "--window-size=600,700", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    _, height, rows = pixels(shot)
    size = len(rows[0]) // 600
    colours = {row[i : i + 3] for row in rows for i in range(0, len(row), size)}
    assert height == 700
    assert bytes.fromhex("1f5fa8") in colours or bytes.fromhex("6fb0f5") in colours, "no curve in the first colour"
    assert bytes.fromhex("fcfbf8") in colours or bytes.fromhex("15171b") in colours, "no page background"
