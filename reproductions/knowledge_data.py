"""What reproductions/knowledge.py reads: Wikipedia with the entities of FB15k-237, their facts, and the tasks.

`write(data, work)` makes these files, unless they are there:

- `text.txt`: the text as it is; `mentions.jsonl`: the names of entities in it, found by `cloze link`.
- `entities.tsv`: id, name and type of an entity; its type is the table of Freebase that most of its facts as a head come from.
- `graph.tsv`: four fifths of the training facts. Networks read these alone.
- `names-PART.jsonl`: sentences that name one entity of the graph, and what it is: a person, a work, a place, a school, a team or
  a subject. No entity is in two parts.
- `relations-PART.jsonl`: sentences with two names, and their relation. The facts of the training rows are the other fifth, those
  of dev and test rows are the graph's own parts for validation and test. Pairs that `graph.tsv` relates are left out.
- `facts.tsv`: `graph.tsv` in words, two facts for each person at most, for networks that read facts as text.
- `wordnet-*.tsv`: WN18RR with its glosses. No fact of `wordnet-train.tsv` is about the entities of `wordnet-unseen.tsv`.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Fact = tuple[str, str, str]
Span = dict[str, Any]  # start and end in characters, and the id of the entity
Sentence = tuple[str, list[Span]]
PARTS = ("train", "dev", "test")
RELATIONS = 10  # how many of the most frequent ones are asked for
#: The rows about names, and the rows of one name.
ROWS, MENTIONS = {"test": 800, "dev": 300, "train": 1500}, 3
#: What a name may be: the types of its entity.
CLASSES = {
    "person": "people/person|award/award_nominee|film/actor|music/artist", "work": "film/film|tv/tv_program",
    "place": "location/.*|base/biblioness|base/aareas|olympics/olympic_participating_country",
    "school": "education/educational_institution", "team": "soccer/football_team|sports/.*",
    "subject": "music/genre|education/field_of_study",
}  # fmt: skip



def write(data: Path, work: Path) -> None:
    """Make the files; `data` is the folder with the data sets."""
    if (work / "ready").exists():
        return
    work.mkdir(parents=True, exist_ok=True)
    with lzma.open(data / "text_en_wiki" / "train.txt.xz") as packed:
        (work / "text.txt").write_bytes(packed.read())
    folder = data / "kg_fb15k237"
    with tarfile.open(folder / "FB15k-237.tar.gz") as archive:
        known = {part: [*facts(archive, f"{name}.txt")] for part, name in zip(PARTS, ("train", "valid", "test"), strict=True)}
    names = dict(rows(folder / "entity2text.txt.xz"))
    chance = random.Random(0)
    chance.shuffle(known["train"])
    cut = len(known["train"]) * 4 // 5
    graph, asked = known["train"][:cut], {**known, "train": known["train"][cut:]}
    table(work / "graph.tsv", graph)
    table(work / "entities.tsv", [("id", "label", "type"), *entities(graph, names)])
    cloze("link", work / "text.txt", "--entities", work / "entities.tsv", "--shortest", 4, "--out", work / "mentions.jsonl")
    rows_of = [json.loads(line) for line in (work / "mentions.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [piece for row in rows_of for piece in split(row["text"], row["spans"])]
    relations(work, found, graph, asked, chance)
    name_rows(work, found, chance)
    in_words(work, graph, names)
    wordnet(data / "kg_wn18rr", work, chance)
    (work / "ready").touch()


def facts(archive: tarfile.TarFile, name: str) -> Iterator[Fact]:
    """The facts of a file, whose lines may end in CRLF."""
    file = archive.extractfile(name)
    assert file is not None
    for line in file.read().decode("utf-8").splitlines():
        head, relation, tail = line.split("\t")
        yield head, relation, tail


def rows(path: Path) -> Iterator[tuple[str, str]]:
    """The two columns of a packed file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            first, _, second = line.rstrip("\r\n").partition("\t")
            yield first, second


def table(path: Path, lines: Iterable[Sequence[str]]) -> None:
    """Write rows with tabs between their columns."""
    path.write_text("".join("\t".join(row) + "\n" for row in lines), encoding="utf-8")


def cloze(*words: object) -> None:
    """Run a command of cloze."""
    subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], check=True)


def entities(graph: Sequence[Fact], names: dict[str, str]) -> list[tuple[str, str, str]]:
    """Id, name and type of every entity of the graph."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for head, relation, tail in graph:
        seen[head]["/".join(relation.split("/")[1:3])] += 1
        seen[tail]["thing"] += 0
    return [(entity, re.sub(r"\s+", " ", names[entity]), kinds.most_common(1)[0][0]) for entity, kinds in sorted(seen.items())]


def relations(
    work: Path, found: Sequence[Sentence], graph: Sequence[Fact], asked: dict[str, list[Fact]], chance: random.Random
) -> None:
    """Write the sentences with two names and their relation, but for relations to months."""
    read = {(head, tail) for head, _, tail in graph} | {(tail, head) for head, _, tail in graph}
    part_of = {(head, tail): (part, relation) for part, some in asked.items() for head, relation, tail in some}
    part_of = {pair: (part, relation) for pair, (part, relation) in part_of.items() if "month" not in relation}
    rows: dict[str, list[dict[str, object]]] = {part: [] for part in PARTS}
    for text, spans in found:
        for one in spans:
            for other in spans:
                pair = one["id"], other["id"]
                if pair in part_of and pair not in read and one["id"] != other["id"]:
                    part, relation = part_of[pair]
                    marks = [[span["start"], span["end"]] for span in (one, other)]
                    rows[part].append({"text": text, "spans": marks, "label": relation})
    kept = {name for name, _ in Counter(str(row["label"]) for row in rows["train"]).most_common(RELATIONS)}
    for part, some in rows.items():
        some = [row for row in some if row["label"] in kept]
        chance.shuffle(some)
        lines(work / f"relations-{part}.jsonl", some)


def name_rows(work: Path, found: Sequence[Sentence], chance: random.Random) -> None:
    """Write the sentences that name one entity, with what this entity is; no entity is in two parts."""
    classes: dict[str, str | None] = {}
    for line in (work / "entities.tsv").read_text(encoding="utf-8").splitlines():
        entity, _, kind = line.split("\t")
        classes[entity] = next((name for name, pattern in CLASSES.items() if re.fullmatch(pattern, kind)), None)
    of: dict[str, list[dict[str, object]]] = defaultdict(list)
    for text, spans in found:
        if len(spans) == 1 and 40 < len(text) < 300 and (label := classes[spans[0]["id"]]):
            of[spans[0]["id"]].append({"text": text, "label": label, "spans": spans})
    everything = sorted(of)
    chance.shuffle(everything)
    for part, number in ROWS.items():
        rows: list[dict[str, object]] = []
        while everything and len(rows) < number:
            some = of[everything.pop()]
            rows += chance.sample(some, min(MENTIONS, len(some)))
        lines(work / f"names-{part}.jsonl", rows[:number])


def in_words(work: Path, graph: Sequence[Fact], names: dict[str, str]) -> None:
    """Write two facts of each entity with names for their ids; a relation is called by the last of its names."""
    said = Counter[str]()
    told = []
    for head, relation, tail in graph:
        if said[head] < 2 and len(names[head]) > 3:
            said[head] += 1
            told.append((names[head], relation.rsplit("/", 1)[1].replace("_", " "), names[tail]))
    table(work / "facts.tsv", told)


def wordnet(folder: Path, work: Path, chance: random.Random) -> None:
    """Write WN18RR: texts of entities, facts without 2,000 entities, and the facts of the test part about those."""
    known = {part: [*wordnet_facts(folder / f"{part}.tsv.xz")] for part in PARTS}
    table(work / "wordnet-entities.tsv", rows(folder / "entity2text.txt.xz"))
    named = (folder / "relation2text.txt").read_text(encoding="utf-8").splitlines()
    table(work / "wordnet-relations.tsv", (line.split("\t") for line in named))
    unseen = set(chance.sample(sorted({fact[0] for fact in known["test"]}), 1000))
    seen = [fact for fact in known["train"] if not unseen & {fact[0], fact[2]}]
    trained = {entity for head, _, tail in seen for entity in (head, tail)}
    apart = [fact for fact in known["test"] + known["train"] if fact[0] in unseen and fact[2] in trained]
    table(work / "wordnet-train.tsv", seen)
    table(work / "wordnet-unseen.tsv", chance.sample(apart, 500))
    table(work / "wordnet-test.tsv", [fact for fact in known["test"] if {fact[0], fact[2]} <= trained][:500])


def wordnet_facts(path: Path) -> Iterator[Fact]:
    """The facts of a packed file of WN18RR."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            head, relation, tail = line.split()
            yield head, relation, tail


def lines(path: Path, some: Iterable[dict[str, object]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some), encoding="utf-8")


def split(text: str, spans: list[Span]) -> Iterator[Sentence]:
    """Sentences of a text with their mentions, whose places count from the start of the sentence."""
    ends = [match.end() for match in re.finditer(r"[.!?]\s+(?=[A-Z\"(])", text)] + [len(text)]
    start = 0
    for end in ends:
        inside = [
            {"start": span["start"] - start, "end": span["end"] - start, "id": span["id"]}
            for span in spans if start <= span["start"] and span["end"] <= end
        ]  # fmt: skip
        if inside:
            yield text[start:end].rstrip(), inside
        start = end
