"""The documents as a site: what is generated is complete, links and anchors lead somewhere, the navigation has every page, the
API every public name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cloze
from cloze import fields
from cloze.cli.commands import COMMANDS
from cloze.document import read_yaml
from cloze.recipe.explain import all_parts
from cloze.recipe.load import pretraining_recipe_names, read_builtin
from tests.pages import needs_browser, title_in_browser
from tests.site_scripts import ROOT, pages, stage

WRITTEN = {name: (ROOT / name).read_text(encoding="utf-8") for name in stage.sources() if name.endswith(".md")}


def without_blocks(text: str) -> str:
    """A page without its fenced code, which may hold brackets and number signs of its own."""
    return re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", "", text, flags=re.M | re.S)


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"(`+)[^`].*?\1", "code", without_blocks(text))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings as GitHub makes them, and those of its own tags."""
    text = without_blocks(text)
    slugs: list[str] = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        slugs.append(slug if slug not in slugs else f"{slug}-{slugs.count(slug)}")
    return set(slugs)


def links(name: str, text: str) -> Iterator[tuple[str, str]]:
    """What a page links to inside the site or the repository: file, as a path from the root, and anchor."""
    for target in re.findall(r"\]\(<?([^)>\s]+)>?(?: +\"[^\"]*\")?\)", prose(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield (posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name), anchor


def broken(texts: Mapping[str, str], others: Collection[str] = ()) -> list[str]:
    """The links of pages that lead to none of them, to no heading, and to none of the other files."""
    targets = [(name, file, anchor) for name, text in texts.items() for file, anchor in links(name, text)]
    headings = {file: anchors(texts[file]) for file in {file for _, file, anchor in targets if anchor and file in texts}}
    return [
        f"{name}: {file}#{anchor}" if anchor else f"{name}: {file}"
        for name, file, anchor in targets
        if (anchor not in headings.get(file, ()) if anchor else file not in texts and file not in others)
    ]


def test_every_link_and_anchor_of_the_site_leads_somewhere() -> None:
    assert broken(stage.site_pages(), {*stage.sources(), *stage.drawn_figures()}) == []


def test_every_link_and_anchor_of_the_repository_leads_somewhere() -> None:
    """To a file in git, but for the figures that only the site has."""
    there = {file for name, text in WRITTEN.items() for file, _ in links(name, text) if (ROOT / file).exists()}
    assert broken(WRITTEN, {*there, *stage.drawn_figures()}) == []


def test_no_two_brackets_in_a_row_are_read_as_a_link_to_a_reference() -> None:
    """`[a] [b]` outside code is a link to the reference b; `mkdocs build --strict` fails where there is none."""
    pattern = r"\[[^\[\]]+\] ?\[[^\[\]]*\](?!\()"
    pairs = {name: re.findall(pattern, prose(text)) for name, text in stage.site_pages().items()}
    assert {name: brackets for name, brackets in pairs.items() if brackets} == {}


def test_a_link_without_a_page_and_one_without_a_heading_are_noticed() -> None:
    text = "# A `b`\n[c](#a-b) [d](#x) [e](f.md) [g](https://h.example/i) `[j](k.md)` [n](o.svg)\n\n```\n[l](m.md)\n```\n"
    assert broken({"a.md": text}, {"o.svg"}) == ["a.md: a.md#x", "a.md: f.md"]


# ---- what is generated -------------------------------------------------------------------------------------------------------


def test_every_recipe_is_on_the_page_of_its_system_with_its_figures_and_after_it_come_the_notes() -> None:
    recipes = [recipe.name for members in pages.recipes_of_systems().values() for recipe in members]
    assert sorted(recipes) == sorted(pretraining_recipe_names())
    for system, members in pages.recipes_of_systems().items():
        name = f"docs/family/{system}.md"
        title, marker, notes = WRITTEN[name].split("\n\n", 2)
        head, built, tail = stage.site_pages()[name].partition(notes)
        front = f"---\ntitle: {re.findall('title: (.+) -->', marker)[0]}\nsearch:\n  boost: 0.3\n---\n\n"
        assert head.startswith(f"{front}{title}\n\n{pages.MARK}\n\n{members[0].paper}\n"), name
        assert (built, tail) == (notes, ""), name
        for recipe in members:
            assert f"```yaml\n{read_builtin(recipe.name)}```" in head, name
            assert f"figures of {recipe.name} and their sources</summary>\n\n| figure |" in head, name
        assert len(notes.split()) >= 60, f"{name} has words of its own"


def test_a_recipe_belongs_to_the_system_with_the_longest_name_that_begins_its_own() -> None:
    systems = {recipe.name: system for system, members in pages.recipes_of_systems().items() for recipe in members}
    assert systems["electra-small"] == "electra" and systems["roberta-large"] == "roberta"
    assert systems["roberta-wwm-ext-large"] == "roberta-wwm-ext" and systems["t5-v1.1-base"] == "t5"


def test_notes_without_a_recipe_and_a_recipe_without_notes_are_refused() -> None:
    recipes: Any = [SimpleNamespace(name="bert"), SimpleNamespace(name="berts")]
    with pytest.raises(SystemExit, match=r"^docs/family: no notes on the recipe berts; write docs/family/berts\.md\.$"):
        pages.sort_recipes(recipes, ["bert"])
    with pytest.raises(SystemExit, match=r"^docs/family/bart\.md: no recipe is named bart or bart-…; name the file after its"):
        pages.sort_recipes(recipes, ["bart", "bert", "berts"])


@pytest.mark.parametrize(("name", "text", "message"), [
    ("docs/family/bert.md", "# BERT\n", "docs/family/bert.md begins with '# BERT\\n'; expected '# bert', an empty line,\n"),
    ("docs/family/bert.md", "# bert\n\n<!-- group: X; title: B -->\n\n", "docs/family/bert.md begins with '# bert\\n\\n<!-- g"),
    ("docs/a.md", "# A\n<!-- build: part -->\n<!-- end -->\n", "docs/a.md: unknown block 'part'; expected one of recipes"),
    ("docs/a.md", "# A\n<!-- build: parts -->\n", "docs/a.md: a block that begins with `<!-- build: NAME -->` ends with"),
])  # fmt: skip
def test_a_page_that_cannot_be_built_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(SystemExit) as refused:
        pages.build_page(name, text)
    assert str(refused.value).startswith(message)


def test_a_page_without_blocks_is_staged_as_it_is_written() -> None:
    assert stage.site_pages()["docs/tour.md"] == WRITTEN["docs/tour.md"]


def test_the_pages_of_parts_and_of_fields_have_every_one_of_them_in_the_place_of_their_blocks() -> None:
    parts, ledger = stage.site_pages()["docs/reference/parts.md"], stage.site_pages()["docs/fields.md"]
    assert set(re.findall(r"^### (\S+)$", parts, re.M)) == {name for _, name in all_parts()}
    assert re.findall(r"^## (\S+)$", parts, re.M) == list(dict.fromkeys(kind for kind, _ in all_parts()))
    assert sorted(re.findall(r"^\| `(\w+)", ledger, re.M)) == sorted(field.name for field in fields.ledger())
    assert "make docs" not in parts.replace(pages.MARK, "") + ledger.replace(pages.MARK, "")


def test_the_page_of_commands_has_every_option_of_every_command() -> None:
    built = stage.site_pages()["docs/commands.md"]
    sections = dict(re.findall(r"^### cloze (.+?)\n(.*?)(?=^### |\Z)", built, re.M | re.S))
    commands = dict(pages.commands())
    assert list(sections) == list(commands) and {name.split()[0] for name in commands} == set(COMMANDS)
    missing = [
        (name, parameter.opts) for name, command in commands.items() for parameter in command.params
        if parameter.param_type_name == "option" and not any(option in sections[name] for option in parameter.opts)
    ]  # fmt: skip
    assert missing == []
    assert set(re.findall(r"`cloze (\w+)", WRITTEN["docs/commands.md"])) >= set(COMMANDS), "a row says what each verb does"
    assert "| `--top <int range>` | Number of words to show for each mask.  \\[default: 5; x>=1\\] |" in sections["fill"]


def test_every_figure_of_a_page_is_in_git_or_drawn_by_a_script_that_there_is() -> None:
    shown = {file for name, text in WRITTEN.items() for file, _ in links(name, text) if file.endswith((".svg", ".png"))}
    committed = {name for name in stage.sources() if name.startswith("docs/figures/")}
    assert shown == committed | set(stage.drawn_figures())
    assert all((ROOT / command.split()[0]).is_file() for command in stage.DRAWN.values())


# ---- navigation, API, figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "page"), [
    ("confusion matrix", "docs/tasks.md"), ("classification report", "docs/tasks.md"), ("from_pretrained", "docs/python.md"),
    ("hub", "docs/python.md"), ("baseline", "docs/tasks.md"), ("network of your own", "docs/language.md"),
])  # fmt: skip
def test_what_newcomers_search_for_is_in_a_heading_of_the_page_that_answers(words: str, page: str) -> None:
    headings = re.findall(r"^#+ +(.+)$", prose(WRITTEN[page]), flags=re.M)
    assert [heading for heading in headings if words in heading.lower()] != []


def navigation(entry: Any) -> Iterator[str]:
    """The pages that `nav` of mkdocs.yml names, in its order."""
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(one)


def test_the_navigation_has_four_groups_and_names_every_page_once_but_systems_and_old_notes() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = read_yaml(text[text.index("\nnav:") :], "mkdocs.yml").plain()  # other sections have tags
    left_out = settings["not_in_nav"].split()
    assert left_out == ["/docs/family/*.md", "/docs/design/archive/*.md"]
    shown = [page for page in stage.site_pages() if not any(fnmatch(f"/{page}", pattern) for pattern in left_out)]
    assert sorted(navigation(settings["nav"])) == sorted(shown)
    assert [title for group in settings["nav"] for title in group] == ["Start", "How to", "Reference", "Evidence"]


def test_the_page_of_the_family_has_every_recipe_in_one_group() -> None:
    text = stage.site_pages()["docs/family.md"].partition('<div id="filter">')[2].partition("\n## How each was trained")[0]
    named = {part.partition("\n")[0]: re.findall(r"^\| \[(\S+)\]", part, re.M) for part in text.split("\n## ")[1:]}
    recipes = [recipe for members in named.values() for recipe in members]
    assert sorted(recipes) == sorted(pretraining_recipe_names()) and list(named) == list(pages.system_groups())
    assert "Knowledge" in named and not {group for group in named if group != "Knowledge" and "nowledge" in group}
    assert {"kepler", "transe", "sensebert", "k-bert"} <= set(named["Knowledge"])
    assert named["Encoders"][0] == "quick" and named["Word vectors"].index("lsa") < named["Word vectors"].index("glove")


@needs_browser
def test_the_filter_of_the_family_shows_the_rows_that_have_all_words(tmp_path: Path) -> None:
    script = (ROOT / "docs" / "site" / "filter.js").read_text(encoding="utf-8")
    tables = "".join(
        f"<h2>{group}</h2><table><thead><tr><th>recipe</th></tr></thead><tbody>"
        + "".join(f"<tr><td>{name} 12x768</td></tr>" for name in names) + "</tbody></table>"
        for group, names in {"Encoders": ["bert", "albert"], "Knowledge": ["k-bert", "kepler"]}.items()
    )  # fmt: skip
    page = tmp_path / "page.html"
    before = "<h2>Choice</h2><table><tbody><tr><td>quick</td></tr></tbody></table>"
    body = f'<article>{before}<div id="filter"></div>{tables}</article>'
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
        "Choice quick Encoders bert albert Knowledge k-bert kepler | Choice quick Encoders bert albert Knowledge k-bert | "
        "Choice quick Knowledge k-bert | Choice quick"
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


def test_the_page_of_the_architecture_names_every_package_and_module_of_cloze() -> None:
    named = set(re.findall(r"`(?:cloze/)?(\w+(?:\.py)?)`", WRITTEN["docs/architecture.md"]))
    there = {path.name for path in (ROOT / "cloze").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in there if not name.startswith("__")} <= named


def test_the_functions_and_classes_that_the_architecture_names_are_in_their_packages() -> None:
    paths = {path.name: list(path.rglob("*.py")) for path in (ROOT / "cloze").iterdir() if path.is_dir()}
    sources = {package: "\n".join(path.read_text(encoding="utf-8") for path in paths[package]) for package in paths}
    names = re.findall(r"`([a-z]+)((?:\.(?!yaml)\w+)+)`", WRITTEN["docs/architecture.md"])
    parts = [(package, name) for package, path in names if package in paths for name in path[1:].split(".")]
    missing = [part for part in parts if not re.search(rf"^ *(?:def|class) {part[1]}\b", sources[part[0]], re.M)]
    assert missing == [] and len(parts) > 80


def test_make_docs_fails_on_a_warning() -> None:
    """`--quiet` would hide warnings from `--strict`, which counts them: broken links would pass."""
    built = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "mkdocs build" in line]
    assert len(built) == 1 and "--strict" in built[0] and "--quiet" not in built[0]


def test_the_makefile_names_test_files_that_there_are() -> None:
    """pytest ends with an error for the whole list if one of its files is missing."""
    named = re.findall(r"\btests/[\w/]+\.py\b", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(named) > 8 and [name for name in named if not (ROOT / name).is_file()] == []
