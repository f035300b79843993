"""Pages of an encyclopedia with the links between them: WikiExtractor's output (`--links`) → text, and mentions of pages.

`cloze corpus pages` calls `write_pages`; a store that is built from both has the links in an annotation layer (`page_links.py`).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import unquote

from cloze.atomic import require_new, whole_folder
from cloze.corpus.readers.files import find_files
from cloze.corpus.readers.report import Oddities
from cloze.corpus.sources.page_links import TITLE
from cloze.errors import CorpusError
from cloze.text.annotation.mentions import fault_of, widened

TEXT, LINKS = "pages.txt", "links.jsonl"

_HEADER = re.compile(r'<doc\s.*\btitle="(.*)"\s*>\s*')
_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>')


class Span(NamedTuple):
    """A link: its characters, and the title of the page that it leads to."""

    start: int
    stop: int
    title: str


class Page(NamedTuple):
    """A page: its title, and its lines with their links; the first line is the title."""

    title: str
    rows: list[tuple[str, list[Span]]]


@dataclass(frozen=True)
class PageCounts:
    """What `write_pages` has written: pages, links between them, and links to pages that are not there."""

    pages: int
    links: int
    elsewhere: int


def write_pages(paths: Sequence[str | Path], out: Path) -> PageCounts:
    """Write the folder `out`: `pages.txt`, the text without links, and `links.jsonl`, its titles and links as mentions.

    The id of a link is the title of its page, and the id of a title is the title behind `#`, which no title contains. Links to
    pages that are not in `paths` are left out. The pages are read twice, in constant memory but for the titles. Raises
    `CorpusError` if a file is no output of WikiExtractor, or has no links.
    """
    require_new(out)
    titles = {page.title for page in _pages(paths)}
    count = links = elsewhere = 0
    with whole_folder(out, new=True) as folder, (folder / TEXT).open("w", encoding="utf-8") as text, (folder / LINKS).open(
        "w", encoding="utf-8"
    ) as mentions:
        for title in sorted(titles):  # first, so that a line that is a title and a link somewhere counts as a title
            _write(mentions, title, [Span(0, len(title), TITLE + title)])
        for page in _pages(paths):
            count += 1
            text.write(f'<doc title="{html.escape(page.title)}">\n')
            for row, spans in page.rows:
                text.write(html.escape(row, quote=False) + "\n")
                page_links = [span for span in spans if span.title in titles and span.title != page.title]
                links, elsewhere = links + len(page_links), elsewhere + len(spans) - len(page_links)
                if page_links:
                    _write(mentions, row, page_links)
            text.write("</doc>\n")
        if not links:
            raise CorpusError(
                f"{paths[0]}: {count:,} pages, and no link from one to another. Nothing was written.\n"
                "  Extract the dump with its links: wikiextractor --links DUMP"
            )
    return PageCounts(count, links, elsewhere)


def _write(file: IO[str], row: str, spans: Sequence[Span]) -> None:
    marked = [{"start": span.start, "end": span.stop, "id": span.title} for span in spans]
    file.write(json.dumps({"text": row, "spans": marked}, ensure_ascii=False) + "\n")


def _pages(paths: Sequence[str | Path]) -> Iterator[Page]:
    for file in find_files(paths, Oddities()):
        page: Page | None = None
        with file.open() as stream:
            for number, raw in enumerate(stream, 1):
                line = raw.decode("utf-8", "replace").replace("\0", "").rstrip("\r\n")
                header = _HEADER.fullmatch(line)
                if header is not None:
                    title = named(html.unescape(header[1]))
                    page = Page(title, [(title, [])])
                elif line.strip() == "</doc>" and page is not None:
                    yield page
                    page = None
                elif page is not None:
                    _add(page, line)
                elif line.strip():
                    raise CorpusError(
                        f"{file.name}:{number}: {line[:60]!r} is outside of all pages; expected "
                        '<doc … title="…"> as WikiExtractor writes it.'
                    )
        if page is not None:
            raise CorpusError(f"{file.name}: the page {page.title!r} has no </doc>: the file is incomplete. Extract it again.")


def _add(page: Page, line: str) -> None:
    row, spans = linked(line)
    if row.strip() and not (len(page.rows) == 1 and row.strip() == page.title):  # WikiExtractor's first line is the title
        page.rows.append((row, spans))


def linked(line: str) -> tuple[str, list[Span]]:
    """A line without the tags of its links, and the links; entities are resolved, in tags too. A link that cuts a word is widened
    to it; of two that then overlap, the first counts."""
    line = html.unescape(line)
    text, places, last = "", [], 0
    for match in _LINK.finditer(line):
        text += line[last : match.start()]
        places.append((len(text), len(text) + len(match[2]), named(unquote(match[1]).partition("#")[0])))
        text, last = text + match[2], match.end()
    text += line[last:]
    spans: list[Span] = []
    for start, stop, title in places:
        if title and fault_of(text, start, stop, title) is None:
            start, stop = widened(text, start, stop)
            if not spans or start >= spans[-1].stop:
                spans.append(Span(start, stop, title))
    return text, spans


def named(title: str) -> str:
    """A title as its page is called: spaces instead of underscores, and a capital letter in front."""
    title = " ".join(title.replace("_", " ").split())
    return title[:1].upper() + title[1:]
