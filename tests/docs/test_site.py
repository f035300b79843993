"""The documents as a site: links and anchors lead somewhere, the navigation has every page, the API every public name."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.assembly import pages
from cloze.assembly.load import pretraining_recipe_names
from cloze.document import read_yaml
from tests.pages import needs_browser, title_in_browser

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("stage", ROOT / "docs" / "site" / "stage.py")
assert _spec is not None and _spec.loader is not None
stage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stage)

PAGES = [name for name in stage.sources() if name.endswith(".md")]


def prose(name: str) -> str:
    """A page without its code, which may hold brackets and number signs of its own."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", "", text, flags=re.M | re.S)
    return re.sub(r"(`+)[^`].*?\1", "code", text)


def anchors(name: str) -> set[str]:
    """The anchors of a page's headings as GitHub makes them, and those of its own tags."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M | re.S)
    found: list[str] = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


def links(name: str) -> Iterator[tuple[str, str]]:
    """What a page of the repository links to inside it: file, as a path from the root, and anchor."""
    for target in re.findall(r"\]\(<?([^)>\s]+)>?(?: +\"[^\"]*\")?\)", prose(name)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
            yield file.relative_to(ROOT).as_posix(), anchor


def broken(name: str) -> list[str]:
    """The links of a page that lead nowhere, or to a file that the site does not have."""
    staged = set(stage.sources())
    return [
        f"{name}: {file}#{anchor}" if anchor else f"{name}: {file}"
        for file, anchor in links(name)
        if file not in staged or (anchor and anchor not in anchors(file))
    ]


def test_every_link_and_anchor_of_the_documents_leads_somewhere() -> None:
    assert [link for name in PAGES for link in broken(name)] == []


def test_no_two_brackets_in_a_row_are_read_as_a_link_to_a_reference() -> None:
    """`[a] [b]` outside code is a link to the reference b; `mkdocs build --strict` fails where there is none."""
    pairs = {name: re.findall(r"\[[^\[\]]+\] ?\[[^\[\]]*\](?!\()", prose(name)) for name in PAGES}
    assert {name: brackets for name, brackets in pairs.items() if brackets} == {}


def test_a_link_without_a_page_and_one_without_a_heading_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text(
        "# A `b`\n[c](#a-b) [d](#x) [e](f.md) [g](https://h.example/i) `[j](k.md)`\n\n```\n[l](m.md)\n```\n", encoding="utf-8"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    monkeypatch.setattr(stage, "PATTERNS", ("*.md",))
    assert broken("a.md") == ["a.md: a.md#x", "a.md: f.md"]


@pytest.mark.parametrize(("words", "page"), [
    ("confusion matrix", "docs/tasks.md"), ("classification report", "docs/tasks.md"), ("from_pretrained", "docs/python.md"),
    ("hub", "docs/python.md"), ("baseline", "docs/tasks.md"), ("network of your own", "docs/language.md"),
])  # fmt: skip
def test_what_newcomers_search_for_is_in_a_heading_of_the_page_that_answers(words: str, page: str) -> None:
    headings = re.findall(r"^#+ +(.+)$", prose(page), flags=re.M)
    assert [heading for heading in headings if words in heading.lower()] != []


def navigation(entry: Any) -> Iterator[str]:
    """The pages that `nav` of mkdocs.yml names, in its order."""
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(one)


def test_the_navigation_names_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = read_yaml(text[text.index("\nnav:") :], "mkdocs.yml").plain()["nav"]  # other sections have tags
    assert sorted(navigation(nav)) == sorted([*PAGES, *stage.api_pages()])


def test_the_page_of_the_family_has_every_recipe_in_one_group_of_the_navigation() -> None:
    text = (ROOT / "docs" / "family.md").read_text(encoding="utf-8").partition("\n## How each was trained")[0]
    named = {part.partition("\n")[0]: re.findall(r"^\| \[(\S+)\]", part, re.M) for part in text.split("\n## ")[1:]}
    recipes = [recipe for members in named.values() for recipe in members]
    assert sorted(recipes) == sorted(pretraining_recipe_names()) and list(named) == list(pages.system_groups())
    assert "Knowledge" in named and not {group for group in named if group != "Knowledge" and "nowledge" in group}
    assert {"kepler", "transe", "sensebert", "k-bert"} <= set(named["Knowledge"])


@needs_browser
def test_the_filter_of_the_family_shows_the_rows_that_have_all_words(tmp_path: Path) -> None:
    script = (ROOT / "docs" / "site" / "filter.js").read_text(encoding="utf-8")
    tables = "".join(
        f"<h2>{group}</h2><table><thead><tr><th>recipe</th></tr></thead><tbody>"
        + "".join(f"<tr><td>{name} 12x768</td></tr>" for name in names) + "</tbody></table>"
        for group, names in {"Encoders": ["bert", "albert"], "Knowledge": ["k-bert", "kepler"]}.items()
    )  # fmt: skip
    page = tmp_path / "page.html"
    body = f"<article><div id=\"filter\"></div>{tables}</article>"
    page.write_text(f"<html><head></head><body>{body}</body></html>", encoding="utf-8")
    look = """
        const field = document.querySelector("input"), seen = [];
        for (const words of ["", "BERT 12x", "knowledge bert", "nothing"]) {
            field.value = words; field.dispatchEvent(new Event("input"));
            const shown = [...document.querySelectorAll("h2, td")].filter(e => !e.closest("[hidden]"));
            seen.push(shown.map(e => e.textContent.split(" ")[0]).join(" "));
        }
        document.title = window.failed || seen.join(" | ");"""
    assert title_in_browser(page, f"{script}\n{look}") == (
        "Encoders bert albert Knowledge k-bert kepler | Encoders bert albert Knowledge k-bert | Knowledge k-bert | "
    )


def test_the_pages_of_the_python_api_show_every_public_name() -> None:
    shown = [name for _, _, names in stage.API.values() for name in names]
    assert len(shown) == len(set(shown))
    public = {f"cloze.{name}" for name in cloze.__all__ if name != "__version__"}
    assert {name for name in shown if name.count(".") == 1} == public
    for name in shown:
        module, _, attribute = name.rpartition(".")
        assert f"::: {name}\n" in "".join(stage.api_pages().values())
        assert f" {attribute}" in (source_of(module)).read_text(encoding="utf-8"), f"{name} is not defined there"


def source_of(module: str) -> Path:
    file = ROOT / f"{module.replace('.', '/')}.py"
    return file if file.is_file() else ROOT / module.replace(".", "/") / "__init__.py"


def test_figures_take_their_colours_from_light_and_from_dark_pages() -> None:
    for figure in sorted((ROOT / "docs" / "figures").glob("*.svg")):
        text = figure.read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in text, figure.name
        assert "fill: #ffffff" not in text, f"{figure.name} paints a background"


def test_the_readme_names_every_package_and_module_of_cloze() -> None:
    named = set(re.findall(r"`(?:cloze/)?(\w+(?:\.py)?)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    there = {path.name for path in (ROOT / "cloze").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in there if not name.startswith("__")} <= named


def test_make_docs_fails_on_a_warning() -> None:
    """`--quiet` would hide warnings from `--strict`, which counts them: broken links would pass."""
    built = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "mkdocs build" in line]
    assert len(built) == 1 and "--strict" in built[0] and "--quiet" not in built[0]


def test_the_makefile_names_test_files_that_there_are() -> None:
    """pytest ends with an error for the whole list if one of its files is missing."""
    named = re.findall(r"\btests/[\w/]+\.py\b", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(named) > 8 and [name for name in named if not (ROOT / name).is_file()] == []
