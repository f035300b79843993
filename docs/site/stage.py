"""Collects the sources of the site in build/docs: the repository's pages and figures, and all that is generated.

    python docs/site/stage.py        then: mkdocs build --strict

The folder mirrors the repository, so a relative link that works in the repository works on the site. `pages.py` adds to the pages
what the code knows, scripts draw figures from the results in the repository, and the pages of the Python API name what
mkdocstrings shows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from pages import build_page, notebook_page

ROOT = Path(__file__).resolve().parents[2]
STAGED = ROOT / "build" / "docs"

#: The pages and figures of the site and the files that pages link to, as patterns from the root.
PATTERNS = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/tutorials/*.ipynb", "docs/figures/*",
    "docs/site/*.css", "docs/site/*.js", "benchmarks/*.md", "reproductions/*.md", "reproductions/results/*.jsonl",
)  # fmt: skip

#: The figures that scripts draw from results in the repository, and how; `docs/figures` has only what README and the tour show.
DRAWN: dict[tuple[str, ...], str] = {
    ("docs/figures/rooms.svg",): "docs/site/rooms.py {folder}/rooms.svg",
    ("docs/figures/shuffling.svg",): "benchmarks/shuffling.py --figure {folder}/shuffling.svg",
    ("docs/figures/time_to_quality.svg",): "benchmarks/time_to_quality.py --figure {folder}/time_to_quality.svg",
    ("docs/figures/inside_layers.svg", "docs/figures/inside_heads.svg"): "reproductions/inside.py --table --figures {folder}",
}

#: The pages of the Python API: title, opening, and the full names of what is shown.
API: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "train": (
        "Training and loading",
        "Functions that train a model, open one, forecast a run or write a report. "
        "[cloze from Python](../../python.md) shows them in use.",
        (
            "cloze.pretrain", "cloze.finetune", "cloze.best", "cloze.compare", "cloze.sweep", "cloze.load",
            "cloze.plan", "cloze.load_recipe", "cloze.report", "cloze.frame", "cloze.retrieve",
        ),
    ),
    "comparison": (
        "Comparisons", "What `cloze.best`, `cloze.compare` and `cloze.sweep` return.",
        ("cloze.Best", "cloze.Comparison", "cloze.Swept"),
    ),
    "model": ("Models", "What `cloze.load`, `cloze.pretrain` and `cloze.finetune` return.", ("cloze.Model",)),
    "results": (
        "Results",
        "What the methods of a model return.",
        (
            "cloze.decoding.filling.Filled", "cloze.decoding.filling.Candidate", "cloze.decoding.generating.generation.Generated",
            "cloze.decoding.scores.scoring.Score", "cloze.tasks.kinds.classification.PredictedClass",
            "cloze.tasks.task.Evaluation", "cloze.tasks.search.Hit", "cloze.reports.plot.Figures",
            "cloze.decoding.vectors.neighbours.Neighbour", "cloze.interop.vectors.vectors.Vectors", "cloze.training.run.Outcome",
        ),
    ),
    "extend": (
        "Parts of your own",
        "What a file for `--with` imports. [The recipe language](../../language.md#parts-of-your-own) has complete examples.",
        (
            "cloze.register", "cloze.Given", "cloze.Live", "cloze.Part", "cloze.objectives.objective.Objective",
            "cloze.objectives.objective.Loss",
        ),
    ),
    "errors": ("Errors", "Every error that a user can fix is a `cloze.ClozeError`.", ("cloze.ClozeError",)),
}  # fmt: skip


def sources() -> list[str]:
    """The files of the repository that the site consists of, as paths from the root."""
    return sorted({path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)})


def drawn_figures() -> list[str]:
    """The figures that `draw` adds, as paths from the root."""
    return [figure for figures in DRAWN for figure in figures]


def api_pages() -> dict[str, str]:
    """The pages of the Python API: path → text."""
    pages = {}
    for page, (title, opening, names) in API.items():
        shown = "\n\n".join(f"::: {name}" for name in names)
        pages[f"docs/reference/api/{page}.md"] = f"# {title}\n\n{opening}\n\n{shown}\n"
    return pages


@cache
def site_pages() -> dict[str, str]:
    """Every page of the site: path → text."""
    written = {name: (ROOT / name).read_text(encoding="utf-8") for name in sources() if name.endswith(".md")}
    notebooks = {
        str(Path(name).with_suffix(".md")): notebook_page(Path(name).name, (ROOT / name).read_text(encoding="utf-8"))
        for name in sources() if name.endswith(".ipynb")
    }  # fmt: skip
    built = {name: build_page(name, text).replace(".ipynb)", ".md)") for name, text in written.items()}  # links to notebooks
    return built | notebooks | api_pages()


def draw(folder: Path) -> None:
    """Draw the figures of `DRAWN` into a folder."""
    for command in DRAWN.values():
        words = [word.format(folder=folder) for word in command.split()]
        subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    """Write build/docs from scratch."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for name in sources():
        (STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, STAGED / name)
    for name, text in site_pages().items():
        (STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        (STAGED / name).write_text(text, encoding="utf-8")
    draw(STAGED / "docs" / "figures")


if __name__ == "__main__":
    main()
