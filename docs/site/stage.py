"""Collects the sources of the site in build/docs: the repository's pages and figures, and the pages of the Python API.

    python docs/site/stage.py        then: mkdocs build --strict

The folder mirrors the repository, so a relative link that works in the repository works on the site. The API pages name what
mkdocstrings shows; it reads docstrings without importing cloze, so building the site needs no torch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGED = ROOT / "build" / "docs"

#: The pages and figures of the site and the files that pages link to, as patterns from the root.
PATTERNS = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/figures/*", "docs/site/*.css", "docs/site/*.js",
    "benchmarks/README.md", "reproductions/*.md", "reproductions/results/*.jsonl",
)  # fmt: skip

#: The pages of the Python API: title, opening, and the full names of what is shown.
API: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "train": (
        "Training and loading",
        "Functions that train a model, open one, forecast a run or write a report. "
        "[cloze from Python](../../python.md) shows them in use.",
        (
            "cloze.pretrain", "cloze.finetune", "cloze.best", "cloze.compare", "cloze.sweep", "cloze.load",
            "cloze.plan", "cloze.load_recipe", "cloze.report", "cloze.frame",
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
            "cloze.decoding.filling.Filled", "cloze.decoding.filling.Candidate", "cloze.decoding.generation.Generated",
            "cloze.decoding.scoring.Score", "cloze.tasks.classifier.Choice", "cloze.tasks.task.Evaluation",
            "cloze.decoding.neighbours.Neighbour", "cloze.interop.vectors.vectors.Vectors", "cloze.training.run.Outcome",
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


def api_pages() -> dict[str, str]:
    """The pages of the Python API: path → text."""
    pages = {}
    for page, (title, opening, names) in API.items():
        shown = "\n\n".join(f"::: {name}" for name in names)
        pages[f"docs/reference/api/{page}.md"] = f"# {title}\n\n{opening}\n\n{shown}\n"
    return pages


def main() -> None:
    """Write build/docs from scratch."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for name in sources():
        (STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, STAGED / name)
    for name, text in api_pages().items():
        (STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        (STAGED / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
