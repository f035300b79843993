"""HTML pages as tests read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium to look at the page with")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """The headings of a page and the addresses that it refers to; its tags must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href", "srcset") and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A self-closing tag of SVG opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2") and data.strip():
            self.headings.append(data.strip())


def title_in_browser(page: Path, script: str, *, width: int = 1280) -> str:
    """The title of a page after a browser has drawn it and run `script`, which finds an error of the page in `window.failed`."""
    html = page.read_text(encoding="utf-8").replace("</body>", f"<script>{{{script}}}</script></body>")
    html = html.replace("<head>", "<head><script>onerror = message => window.failed = message</script>")
    page.write_text(html, encoding="utf-8")
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}",
         f"--window-size={width},900", "--dump-dom", page.as_uri()],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r"<title>([^<]*)</title>", done.stdout)
    assert found is not None
    return found[1]
