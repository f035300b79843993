"""Promises that documents and packages make, checked: help, mentions, docstrings, imports, no private paths."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloze.cli import main as frame
from cloze.cli.commands import SECTIONS
from cloze.recipe.load import pretraining_recipe_names, read_builtin
from tests.site_scripts import pages, stage

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "cloze").rglob("__init__.py"))
MODULES = sorted((ROOT / "cloze").rglob("*.py"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
IGNORED = {".git", ".venv", "build", "dist", "__pycache__", "runs", "demo-run"}


def tracked_texts() -> list[Path]:
    """Every text file of the repository, as git lists them where git is there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        paths = [path for path in ROOT.rglob("*") if not IGNORED & set(path.relative_to(ROOT).parts)]
    return [
        path for path in paths if path.is_file() and path.suffix not in (".png", ".bin", ".npz", ".npy", ".safetensors")
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: ".".join(path.relative_to(ROOT).parts))
def test_a_package_opens_with_purpose_imports_growth_and_contract(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    said = docstring.lower()
    assert "import" in said, "may import what"
    assert "add" in said, "how to add one here"
    assert "tests/" in said, "where its contract is tested"


@pytest.mark.parametrize("verb", frame.COMMANDS)
def test_a_verb_has_help_of_one_screen_and_is_in_the_documents(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: cloze " + verb in shown
    assert len(shown.splitlines()) <= 60
    assert "install-completion" not in shown
    assert any(f"cloze {verb}" in document.read_text() for document in DOCUMENTS), (
        f"no document mentions `cloze {verb}`"
    )


def test_every_module_of_the_command_line_is_a_verb() -> None:
    folder = ROOT / "cloze" / "cli"
    modules = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("*.py")}
    verbs = {verb.module for section in SECTIONS.values() for verb in section.values()}
    assert verbs <= modules.keys()
    assert all(verb.module.startswith(f"{title.lower()}.") for title, section in SECTIONS.items() for verb in section.values())
    for helper in modules.keys() - verbs - {"main"}:
        assert "def command(" not in modules[helper].read_text(), f"cli/{helper} has a command that no verb names"


def test_every_public_name_resolves() -> None:
    import cloze

    assert set(cloze.__all__) - {"__version__"} == set(cloze._PUBLIC)
    for name in cloze.__all__:
        assert getattr(cloze, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'; it has"):
        cloze.nothing  # noqa: B018


def test_light_modules_do_not_load_torch_and_parts_do_not_load_its_compiler() -> None:
    light = ["cloze", "cloze.cli.main", "cloze.recipe.load", "cloze.text", "cloze.corpus", "cloze.exercises", "cloze.fields",
             "cloze.rows", "cloze.registry", "cloze.rng", "cloze.runs.shard_building"]  # fmt: skip
    heavy = ["cloze.networks", "cloze.objectives", "cloze.compression", "cloze.changes"]
    code = f"""
import sys
from importlib import import_module
for found, modules in (("torch", {light}), ("torch._dynamo", {heavy})):
    for module in modules:
        import_module(module)
        if found in sys.modules:
            sys.exit(f"importing {{module}} loads {{found}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "wanted"), [
    ({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "active"}, "None"),
])  # fmt: skip
def test_threads_wait_busily_for_a_short_time_unless_the_environment_says_how_long(given: dict[str, str], wanted: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = "import os, cloze; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == wanted


def test_packages_import_only_from_below() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    if not linter.is_file():
        pytest.skip("import-linter is not installed (extra lint)")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def faults_of(path: Path) -> Iterator[str]:
    """What is wrong with a module: it is long, has a name that says nothing, no docstring, or a long function."""
    source = path.read_text()
    tree = ast.parse(source)
    if source.count("\n") >= 500:
        yield "longer than 500 lines"
    if path.stem in ("utils", "common", "helpers", "misc"):
        yield "a name that says nothing"
    if path.name != "__init__.py" and not ast.get_docstring(tree):
        yield "a module says what it is for"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > 90:
                yield f"{node.name} has {length} lines"


@pytest.mark.parametrize("package", sorted({path.relative_to(ROOT / "cloze").parts[0] for path in MODULES}))
def test_modules_are_of_one_idea_and_their_functions_fit_a_screen(package: str) -> None:
    """One test for a package: a test for each of 600 modules cost more than what it checked."""
    own = [path for path in MODULES if path.relative_to(ROOT / "cloze").parts[0] == package]
    assert [f"{path.relative_to(ROOT)}: {fault}" for path in own for fault in faults_of(path)] == []


def test_files_name_no_path_or_host_of_a_workplace() -> None:
    private = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/[\w.-]+|/tmp/[\w-]+")
    here = str(ROOT)
    for path in tracked_texts():
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        assert here not in text, f"{path.relative_to(ROOT)} names this checkout"
        found = private.search(text)
        assert found is None, f"{path.relative_to(ROOT)} names {found.group() if found else ''}"


def test_no_file_promises_later_work() -> None:
    word = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for path in tracked_texts():
        if path.suffix == ".py" and path != Path(__file__):
            found = word.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.relative_to(ROOT)}: {found.group() if found else ''}"


def test_every_document_is_reachable_from_the_readme() -> None:
    """By links from page to page of the site, wherever in `docs` it lies."""
    texts = stage.site_pages()
    reached, left = set(), ["README.md"]
    while left:
        page = left.pop()
        if page in texts and page not in reached:
            reached.add(page)
            targets = re.findall(r"\]\(([^)#\s:]+\.md)", texts[page])
            left += [posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets]
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written - reached == set(), "no link leads there from README.md"


def test_git_has_no_generated_page_and_ignores_where_they_are_built() -> None:
    mark = pages.MARK.partition(":")[0]
    documents = [path for path in tracked_texts() if path.suffix in (".md", ".html", ".svg", ".yml", ".yaml")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in documents}
    assert [name for name, text in texts.items() if mark in text or "Created with matplotlib" in text] == []
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "build/" in ignored and stage.STAGED.is_relative_to(ROOT / "build")


def test_git_has_the_figures_of_three_pages_and_no_others() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/tour.md", "docs/language.md")]
    shown = [figure for text in texts for figure in re.findall(r"\]\((?:docs/)?figures/([^)]+)\)", text)]
    assert sorted(path.name for path in (ROOT / "docs" / "figures").iterdir()) == sorted(shown)


@pytest.mark.parametrize(("page", "most"), [
    ("README.md", 1200), ("CONTRIBUTING.md", 1200), ("docs/budgets.md", 1200), ("docs/architecture.md", 4000),
])  # fmt: skip
def test_pages_that_everybody_reads_are_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= most


def test_the_recipe_in_the_readme_is_the_file_of_that_recipe() -> None:
    (recipe,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert recipe == read_builtin("gpt")


def test_the_published_figures_are_the_only_file_that_every_recipe_adds_to() -> None:
    """What else a recipe needs is its own: its file, its notes, its test."""
    names = pretraining_recipe_names()
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in tracked_texts()}
    assert [name for name, text in texts.items() if all(recipe in text for recipe in names)] == ["docs/published.yaml"]


def test_constraints_pin_every_dependency_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[\[<>=]", name)[0].lower() for name in wanted} - {"cloze-lm"}
    assert names <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


def test_what_users_install_is_called_cloze_lm() -> None:
    """On PyPI, `cloze` is a program of other people: the distribution is `cloze-lm`; the import and the command are `cloze`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "cloze-lm" and project["scripts"] == {"cloze": "cloze.cli.main:main"}
    foreign = re.compile(r"""install (?:-\S+ )*["']?cloze(?!-lm)\b|\bcloze\\?\[[a-z{]|version\(["']cloze["']\)""")
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked_texts()}
    named = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path, text in texts.items() if path != Path(__file__)
        for match in foreign.finditer(text)
    ]  # fmt: skip
    assert named == []


def test_the_version_is_the_same_everywhere() -> None:
    from cloze import __version__

    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_what_make_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make test", "make old", "make lint", "make docs"} <= set(script.read_text().splitlines())
    if shutil.which("make"):
        planned = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert all(tool in planned for tool in ("ruff check", "mypy", "lint-imports"))
