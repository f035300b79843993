"""The sets of `few_labels.py`: labelled rows, of which a few keep their labels, and the text of all of them as the corpus.

A set has rows to draw training labels from, rows to test on, and a corpus: every text of the set that is not a test row, without
its label. Anyone can make the sets of Debian packages: short descriptions, with the section of the archive as label, in English
and Danish. The two texts of a pair are one text with a tab between them. Where words are labelled,
a row is a sentence as the file has it, and all rows are of one class.
"""

from __future__ import annotations

import bz2
import json
import lzma
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import task_files

TEST_ROWS = 2_000
MIRROR = "http://deb.debian.org/debian/dists/bookworm/main"
SECTIONS = ("admin", "fonts", "games", "graphics", "mail", "math", "net", "science", "sound", "text")


@dataclass(frozen=True)
class Labelled:
    """A set: texts with labels to draw from, test rows, and further texts without labels."""

    name: str
    language: str
    pool: list[tuple[str, str]]
    test: list[tuple[str, str]]
    further: list[str]
    task: str = "sentence_classification"
    metric: str = "accuracy"
    ending: str = "jsonl"

    @property
    def classes(self) -> list[str]:
        """The labels, sorted."""
        return sorted({label for _, label in self.pool})

    def corpus(self) -> list[str]:
        """The texts of all rows that are not test rows, in a fixed order that does not follow the labels."""
        texts = [part for text, _ in self.pool for part in self.plain(text)] + self.further
        return [texts[number] for number in np.random.default_rng(0).permutation(len(texts))]

    def plain(self, text: str) -> list[str]:
        """What a row adds to the corpus."""
        return text.split("\t")

    def record(self, text: str, label: str) -> str:
        """A row as a line of a file of the task."""
        first, *others = text.split("\t")
        return task_files.line(text=first, **({"text_b": others[0]} if others else {}), label=label)

    def draw(self, labels: int, seed: int) -> list[tuple[str, str]]:
        """So many rows of the pool, the same number of every class; at least one, so there may be more than `labels`."""
        draw = np.random.default_rng([seed, 46])
        rows: list[tuple[str, str]] = []
        each = max(1, labels // len(self.classes))
        for label in self.classes:
            own = [row for row in self.pool if row[1] == label]
            rows += [own[number] for number in draw.permutation(len(own))[:each]]
        return [rows[number] for number in draw.permutation(len(rows))]


@dataclass(frozen=True)
class Tagged(Labelled):
    """A set of sentences whose words are labelled."""

    def plain(self, text: str) -> list[str]:
        """The words with the spaces that the language writes."""
        cells = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        column = 1 if self.ending == "conllu" else 0
        return [("" if self.language == "zh" else " ").join(row[column] for row in cells)]

    def record(self, text: str, label: str) -> str:
        """The sentence as it is."""
        return text


def _split(
    name: str, language: str, rows: list[tuple[str, str]], further: list[str] | None = None,
    test: list[tuple[str, str]] | None = None,
) -> Labelled:
    """A set whose test rows are drawn from its rows where it has none of its own. A text occurs once."""
    rows = list({text: (text, label) for text, label in rows}.values())
    order = np.random.default_rng(46).permutation(len(rows))
    mixed = [rows[number] for number in order]
    if test is None:
        test, mixed = mixed[:TEST_ROWS], mixed[TEST_ROWS:]
    held = {text for text, _ in test}
    return Labelled(
        name, language, [row for row in mixed if row[0] not in held], test[:TEST_ROWS],
        [text for text in dict.fromkeys(further or []) if text not in held],
    )


def _text(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode("utf-8", errors="replace")


def _lines(path: Path) -> list[str]:
    return [line for line in _text(path).split("\n") if line.strip()]


def polarity(data: Path, _: Path) -> Labelled:
    """Film reviews, positive or negative."""
    folder = data / "cls_en_sentence_polarity"
    rows = [(line, label) for label in ("pos", "neg") for line in _lines(folder / f"rt-polarity.{label}.xz")]
    return _split("polarity", "en", rows)


def subjectivity(data: Path, _: Path) -> Labelled:
    """Sentences of reviews against sentences of plots."""
    folder = data / "cls_en_subjectivity"
    rows = [(line, label) for label in ("plot", "quote") for line in _lines(folder / f"{label}.tok.gt9.5000.xz")]
    return _split("subjectivity", "en", rows)


def clinc150(data: Path, _: Path) -> Labelled:
    """Requests to an assistant, with one of 150 intents."""
    parts = json.loads(_text(data / "cls_en_clinc150/data_full.json.xz"))
    further = [text for name in ("oos_train", "oos_val") for text, _ in parts[name]]
    test = [tuple(row) for row in parts["test"]]
    order = np.random.default_rng(46).permutation(len(test))
    return _split("clinc150", "en", [tuple(row) for row in (*parts["train"], *parts["val"])], further, [test[n] for n in order])


def fewrel(data: Path, _: Path) -> Labelled:
    """Sentences with two marked mentions, and one of 16 relations between them."""
    relations = json.loads(_text(data / "rel_en_fewrel/val_wiki.json.xz"))
    rows = [(_marked(row), relation) for relation, of_relation in relations.items() for row in of_relation]
    return _split("fewrel", "en", rows)


def _marked(row: dict) -> str:
    """The sentence with marks around its mentions, as plain text."""
    words = list(row["tokens"])
    for key, mark in (("h", "@"), ("t", "#")):
        for place in row[key][2]:
            words[place[0]], words[place[-1]] = f"{mark} {words[place[0]]}", f"{words[place[-1]]} {mark}"
    return " ".join(" ".join(words).split())


def chnsenticorp(data: Path, _: Path) -> Labelled:
    """Chinese reviews of hotels, books and laptops, positive or negative."""
    def rows(part: str) -> Iterator[tuple[str, str]]:
        for line in _lines(data / f"care_cls_zh_chnsenticorp/{part}.tsv.xz")[1:]:
            label, text = line.split("\t", 1)
            yield text.strip(), label

    return _split("chnsenticorp", "zh", [*rows("train"), *rows("dev")], test=list(rows("test")))


def pawsx(data: Path, _: Path) -> Labelled:
    """Two sentences of nearly the same words: do they mean the same?"""
    def rows(part: str) -> list[tuple[str, str]]:
        records = map(json.loads, task_files.pawsx("en")(data)[part])
        return [(f"{row['text']}\t{row['text_b']}", row["label"]) for row in records]

    return replace(_split("pawsx", "en", rows("train"), test=rows("test")), task="pair_classification")


def tagged(name: str, language: str, metric: str) -> Callable[[Path, Path], Labelled]:
    """A set of task_files.py with labelled words."""
    def load(data: Path, _: Path) -> Labelled:
        ending, read = task_files.SETS[name]
        parts = read(data)
        rows = {part: [(text, "") for text in parts.get(part, [])] for part in ("train", "dev", "test")}
        whole = _split(name, language, [*rows["train"], *rows["dev"]], test=rows["test"])
        return Tagged(name, language, whole.pool, whole.test, [], "token_labelling", metric, ending)

    return load


def debian(language: str) -> Callable[[Path, Path], Labelled]:
    """Short descriptions of Debian packages in a language, with the section as label; `cache` keeps the downloaded lists."""
    def load(_: Path, cache: Path) -> Labelled:
        packages = lzma.decompress(_download(f"{MIRROR}/binary-amd64/Packages.xz", cache)).decode()
        sections = dict(_fields(packages, "Section"))
        if language == "en":
            described = dict(_fields(packages, "Description"))
        else:
            translated = bz2.decompress(_download(f"{MIRROR}/i18n/Translation-{language}.bz2", cache)).decode()
            described = dict(_fields(translated, f"Description-{language}"))
        rows = [(text, sections[name]) for name, text in described.items() if sections.get(name) in SECTIONS]
        return _split(f"debian-{language}", language, rows, list(described.values()))

    return load


def _fields(stanzas: str, key: str) -> Iterator[tuple[str, str]]:
    """The package and the value of `key` of every stanza that has one."""
    for stanza in stanzas.split("\n\n"):
        values = dict(line.split(": ", 1) for line in stanza.split("\n") if ": " in line and not line.startswith(" "))
        if key in values:
            yield values["Package"], values[key].strip()


def _download(address: str, cache: Path) -> bytes:
    path = cache / address.rsplit("/", 1)[1]
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.part")
        fresh.write_bytes(urllib.request.urlopen(address, timeout=60).read())
        fresh.rename(path)
    return path.read_bytes()


SETS: dict[str, Callable[[Path, Path], Labelled]] = {
    "polarity": polarity, "subjectivity": subjectivity, "clinc150": clinc150, "fewrel": fewrel, "chnsenticorp": chnsenticorp,
    "debian-en": debian("en"), "debian-da": debian("da"), "pawsx": pawsx,
    "ewt": tagged("ewt", "en", "accuracy"), "gsd": tagged("gsd", "zh", "accuracy"),
    "wnut": tagged("wnut", "en", "span_f1"), "weibo": tagged("weibo", "zh", "span_f1"),
}


def describe(labelled: Labelled) -> str:
    """Sizes of a set in a line."""
    texts = labelled.corpus()
    counts = Counter(label for _, label in labelled.test)
    return (
        f"{labelled.name}: {len(labelled.pool):,} rows to draw from, {len(labelled.test):,} test rows, {len(labelled.classes)} "
        f"classes (largest {max(counts.values()) / len(labelled.test):.2f}), corpus of {len(texts):,} texts, "
        f"{sum(len(text.encode()) for text in texts) / 1e6:.1f} MB"
    )
