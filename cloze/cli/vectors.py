"""What the commands on word vectors share: opening, tables, `cloze evaluate` and `cloze import` on vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Encoding, Unknown
from cloze.cli.train.measures import say
from cloze.errors import TaskError, UserError, counted, propose

if TYPE_CHECKING:
    from cloze.decoding.vectors.neighbours import Method, Neighbour
    from cloze.interop.vectors import Vectors
    from cloze.tasks.intrinsic.analogies import Analogies, AnalogyCounts
    from cloze.tasks.intrinsic.similarity import Similarity

_ALIKE = 0.9  # the mean cosine of two words above which there is a note
_MANY = 20  # words; fewer may be alike by their meaning
_NAMED = 8  # unknown words that are shown


def opened(model: Path) -> Vectors:
    """The vectors of a checkpoint or a file."""
    from cloze.interop.vectors import open_vectors

    return open_vectors(model)


def as_method(name: str) -> Method:
    """A method by name. Raises a `UserError` if it is unknown."""
    if name not in ("add", "multiply"):
        raise UserError(f"unknown method {name!r}. {propose(name, ('add', 'multiply'))}")
    return cast("Method", name)


def table(neighbours: Sequence[Neighbour], indent: str = "") -> str:
    """Words and scores below each other."""
    width = max((len(near.word) for near in neighbours), default=0)
    return "\n".join(f"{indent}{near.word:<{width}}  {near.score:.4f}" for near in neighbours)


def note_zeros(vectors: Vectors, lists: Sequence[Sequence[Neighbour]], count: int, restrict: int | None) -> None:
    """Say on stderr which words are missing from lists shorter than `count` because their vectors are zero."""
    from cloze.decoding.vectors.neighbours import zero_words

    if min(map(len, lists), default=count) >= count:
        return
    if words := zero_words(vectors, restrict=restrict):
        names = ", ".join(map(repr, words[:_NAMED])) + (" …" if len(words) > _NAMED else "")
        typer.echo(f"note: left out because the vector is zero: {counted(len(words), 'word')}: {names}", err=True)


def note_alike(vectors: Vectors) -> None:
    """Say on stderr that cosines mean little where nearly all words have the same direction."""
    from cloze.decoding.vectors.neighbours import mean_cosine

    if len(vectors.words) >= _MANY and (mean := mean_cosine(vectors)) > _ALIKE:
        typer.echo(
            f"note: two words of {vectors.place} have a cosine of {mean:.2f} on average, so cosines say little about words. "
            "The usual reason is too little training.", err=True,
        )


def gathered(files: Sequence[str], similarity: Sequence[str], analogies: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files of pairs and of questions; plain arguments belong to the option that was given, folders stand for their files."""
    if files and similarity and analogies:
        raise TaskError(
            f"{files[0]}: is this a file of pairs or of analogies? With both options, write one before each file: "
            f"--similarity A --similarity B --analogies C"
        )
    pairs = [*similarity, *(files if similarity else ())]
    questions = [*analogies, *(files if analogies else ())]
    return [file for path in pairs for file in _inside(path)], [file for path in questions for file in _inside(path)]


@dataclass(frozen=True, kw_only=True)
class WordVectorsMode(Mode):
    """Measure vectors on files of pairs and of questions, and print what was found."""

    purpose = "word vectors"
    how = "--similarity FILE or --analogies FILE"

    similarity: Annotated[list[str] | None, typer.Option(help="Pairs with scores: files, a folder.")] = None
    analogies: Annotated[list[str] | None, typer.Option(help="Questions of four words: files, a folder.")] = None
    method: Annotated[str | None, typer.Option(help="For --analogies: add (default), or multiply.")] = None
    restrict: Annotated[int | None, typer.Option(min=1, help="For --analogies: search only the first N words.")] = None
    unknown: Unknown = "skip"
    lower: Annotated[bool, typer.Option("--lower", help="Look words up in lower case.")] = False
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether pairs or questions are given."""
        return bool(options["similarity"] or options["analogies"])

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure the vectors of a checkpoint or a file; `files` belong to the option that was given."""
        from cloze.decoding.progress import DecodingProgress
        from cloze.tasks.intrinsic.analogies import analogies, read_questions
        from cloze.tasks.intrinsic.similarity import check_unknown, read_pairs, similarity

        check_unknown(self.unknown)
        for option, value in (("--method", self.method), ("--restrict", self.restrict)):
            if value is not None and not self.analogies:
                raise TaskError(f"{option} needs --analogies FILE. Add it, or omit {option}.")
        way: Any = self.unknown
        chosen = as_method(self.method or "add")
        pairs, questions = gathered(files, self.similarity or (), self.analogies or ())
        read = {file: read_pairs(file) for file in pairs}
        question_sets = {file: read_questions(file) for file in questions}
        vectors = opened(checkpoint)
        alike = {file: similarity(vectors, pair_set, unknown=way, lower=self.lower) for file, pair_set in read.items()}
        answered = {}
        for file, question_set in question_sets.items():
            with DecodingProgress(len(question_set), "questions") as progress:
                answered[file] = analogies(
                    vectors, question_set, method=chosen, restrict=self.restrict, unknown=way, lower=self.lower, report=progress
                )
        if self.as_json:
            import json

            summary = {
                "similarity": {file: _similarity(figures) for file, figures in alike.items()},
                "analogies": {file: _analogies(figures) for file, figures in answered.items()},
            }
            print(json.dumps(summary, indent=2, ensure_ascii=False))
            return
        if alike:
            say(_pairs_table(alike, self.unknown))
        for file, figures in answered.items():
            say(_questions_table(file, figures))


def _inside(path: str) -> list[str]:
    """The files of a folder that may be sets, in the order of their names; a file is itself."""
    if not Path(path).is_dir():
        return [path]
    endings = (".txt", ".tsv", ".txt.xz", ".txt.gz")
    files = sorted(str(p) for p in Path(path).iterdir() if p.name.endswith(endings) and not p.name.startswith("."))
    if not files:
        raise TaskError(f"{path}: no file in this folder ends in {', '.join(endings)}. Name the files themselves.")
    return files


def _pairs_table(similarities: dict[str, Similarity], unknown: str) -> str:
    width = max(len("similarity"), *(len(Path(file).name) for file in similarities))
    done = "left out" if unknown == "skip" else "taken as 0"
    rows = [f"{'similarity':<{width}}  spearman  pairs found (others {done})"]
    for file, figures in similarities.items():
        number = _number(figures.spearman if figures.telling else None)
        rows.append(f"{Path(file).name:<{width}}  {number:>8}  {figures.found:,} of {figures.pairs:,}{_composed(figures)}")
        rows += [f"  {remark}" for remark in (*_missing(figures.missing), *figures.remarks)]
    return "\n".join(rows)


def _questions_table(file: str, analogies: Analogies) -> str:
    names = {**analogies.sections, **analogies.groups} if len(analogies.sections) > 1 else analogies.groups
    width = max(len("analogies"), *map(len, names))
    among = f"all {analogies.words:,} words" if analogies.restrict is None else f"the first {analogies.words:,} words"
    done = "left out" if analogies.total.unknown == "skip" else "wrong"
    title = "3CosAdd" if analogies.method == "add" else "3CosMul"
    rows = [
        f"{Path(file).name}: {title} among {among}",
        f"{'analogies':<{width}}  accuracy  correct of known of all (unknown ones {done})",
    ]
    for name, part in names.items():
        counts = f"{part.right:,} of {part.known:,} of {part.questions:,}"
        rows.append(f"{name:<{width}}  {_number(part.accuracy):>8}  {counts}")
    rows += [f"  {remark}" for remark in (*_missing(analogies.missing), *analogies.remarks)]
    return "\n".join(rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _composed(similarity: Similarity) -> str:
    return f", {similarity.composed} composed from n-grams" if similarity.composed else ""


def _missing(words: Sequence[str]) -> list[str]:
    if not words:
        return []
    more = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
    return [f"unknown: {', '.join(words[:_NAMED])}{more}"]


def _similarity(similarity: Similarity) -> dict[str, Any]:
    return {**asdict(similarity), "coverage": similarity.coverage}


def _analogies(analogies: Analogies) -> dict[str, Any]:
    def part(section: AnalogyCounts) -> dict[str, Any]:
        return {**asdict(section), "accuracy": section.accuracy, "coverage": section.coverage}

    return {
        "method": analogies.method, "words": analogies.words, "restrict": analogies.restrict,
        "sections": {name: part(section) for name, section in analogies.sections.items()},
        "groups": {name: part(section) for name, section in analogies.groups.items()},
        "missing": list(analogies.missing), "remarks": list(analogies.remarks),
    }  # fmt: skip
