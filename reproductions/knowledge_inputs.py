"""Files, stores, graphs and vectors that the cells of knowledge.py share, each made once."""

from __future__ import annotations

import json
import random
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import knowledge_data
import task_files
from knowledge_runs import Choice, command, once

KINDS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}  # of words in UD and in WordNet
PREFIX = "entityx"


def prepare(chosen: Choice) -> None:
    """Files, stores, graphs and vectors that cells share; what is there is not made again."""
    knowledge_data.write(chosen.data, chosen.work)
    made = chosen.file
    store = [made("text.txt"), "--tokenizer", chosen.base]
    once(made("store"), "corpus", "build", *store, "--annotate", f"entity=mentions:{made('mentions.jsonl')}")
    once(made("graph"), "corpus", "build", made("graph.tsv"), "--format", "triples")
    width = ("--set", "network.width=100")
    once(made("kg"), "pretrain", "transe", "--corpus", made("graph"), *width, "--budget", "4m", "--seed", 1)
    once(made("wordnet"), "corpus", "build", made("wordnet-train.tsv"), "--format", "triples",
         "--entities", made("wordnet-entities.tsv"), "--relations", made("wordnet-relations.tsv"))  # fmt: skip
    own = {"senses.tsv": senses, "occurrences.tsv": occurrences, "synonyms.tsv": synonyms, "reviews": reviews}
    for name, write in {**own, "named.txt": named_text, "lists": lists, "surnames": surnames}.items():
        if not made(name).exists():
            write(chosen, made(name))
    words = ("--corpus", made("named.txt"), "--format", "line")
    once(made("named"), "pretrain", "word2vec-skipgram", *words, "--budget", "3epochs", "--seed", 1)
    lists_of = [part for name in ("phrase", "entity") for part in ("--annotate", f"{name}={made('lists') / f'{name}.txt'}")]
    once(made("store-tasks"), "corpus", "build", *store, *lists_of, "--annotate", "case=case", "--annotate", "repeats=repeats")
    folder = made("reviews")
    layers = labelled({name: folder / f"{name}.tsv" for name in ("pos", "polarity", "stars")})
    once(made("store-reviews"), "corpus", "build", folder / "text.txt", "--format", "line", "--tokenizer", chosen.base, *layers)


def labelled(files: Mapping[str, Path]) -> list[str]:
    """The options of `cloze corpus build` for layers from lists of words and labels."""
    return [part for name, file in files.items() for part in ("--annotate", f"{name}=lexicon:{file}")]


def senses(chosen: Choice, out: Path) -> None:
    """Words and their supersenses in Open English WordNet, by the number of the lexicographer's file: `n05` is noun.animal.

    Senses of the part of speech that a word has most often in the training part of UD-EWT come first.
    """
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for text in sentences(chosen, "train"):
        for _, lemma, tag in text:
            seen[lemma][KINDS.get(tag, "")] += 1
    found: dict[str, dict[str, None]] = defaultdict(dict)
    with tarfile.open(chosen.data / "supersense_en_oewn" / "entries.tar.xz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            for lemma, kind, number in re.findall(r"([a-z]+)%(\d):(\d\d):", file.read().decode("utf-8") if file else ""):
                found[lemma]["?nvara"[int(kind)] + number] = None
    ordered = ((lemma, sorted(some, key=lambda sense: -seen[lemma][sense[0]])) for lemma, some in sorted(found.items()))
    knowledge_data.table(out, ((lemma, "|".join(some)) for lemma, some in ordered))


def occurrences(chosen: Choice, out: Path) -> None:
    """Words of the dev and test parts of UD-EWT whose part of speech leaves one of several supersenses."""
    lines = chosen.file("senses.tsv").read_text(encoding="utf-8").splitlines()
    known = {lemma: several.split("|") for lemma, several in (line.split("\t") for line in lines)}
    rows = [("text", "word", "sense", "start")]
    for text in [*sentences(chosen, "dev"), *sentences(chosen, "test")]:
        shown = " ".join(word for word, _, _ in text)
        start = 0
        for word, lemma, tag in text:
            several = known.get(lemma, [])
            right = [sense for sense in several if sense[0] == KINDS.get(tag)]
            if word.lower() == lemma and len(right) == 1 and len({sense[0] for sense in several}) > 1:
                rows.append((shown, word, right[0], str(start)))
            start += len(word) + 1
    knowledge_data.table(out, [rows[0], *random.Random(0).sample(rows[1:], min(3000, len(rows) - 1))])


def sentences(chosen: Choice, part: str) -> Iterator[list[tuple[str, str, str]]]:
    """Form, lemma and part of speech of the words of each sentence of UD-EWT."""
    found: list[tuple[str, str, str]] = []
    (path,) = (chosen.data / "tag_en_ud_ewt").glob(f"*{part}*.conllu.xz")
    for line in [*task_files.unpacked(path).splitlines(), ""]:
        cells = line.split("\t")
        if len(cells) > 3 and cells[0].isdigit():
            found.append((cells[1], cells[2].lower(), cells[3]))
        elif not line.strip() and found:
            if all("\t" not in word and '"' not in word for word, _, _ in found):
                yield found
            found = []


def synonyms(chosen: Choice, out: Path) -> None:
    """Pairs of words that PPDB calls synonyms."""
    (path,) = (chosen.data / "lexicon_en_ppdb_synonyms").glob("*.xz")
    words = [tuple(line.split("\t")[:2]) for line in task_files.lines_of(path) if re.fullmatch(r"[a-z]+\t[a-z]+.*", line)]
    knowledge_data.table(out, [("en", "en"), *sorted(set(words))])


def reviews(chosen: Choice, folder: Path) -> None:
    """Sentences on films with their polarity, which stands for 1 and 5 stars, and the word lists of SentiLARE.

    `text.txt` are 8,000 sentences to pre-train on; the rows of the task are 500 of these, and others for dev and test.
    """
    folder.mkdir()
    train, _, _ = task_files.write("polarity", (8000, 300, 1500), chosen.data, folder)
    rows = [json.loads(line) for line in train.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["text"] = re.sub(r"\s+", " ", row["text"]).strip()
    (folder / "text.txt").write_text("".join(row["text"] + "\n" for row in rows), encoding="utf-8")
    positive = max({row["label"] for row in rows}, key=str)
    knowledge_data.table(folder / "stars.tsv", ((row["text"], "5" if row["label"] == positive else "1") for row in rows))
    tags: dict[str, Counter[str]] = defaultdict(Counter)
    for text in sentences(chosen, "train"):
        for word, _, tag in text:
            tags[word.lower()][tag] += 1
    named = {"VERB": "verb", "ADJ": "adjective", "ADV": "adverb", "NOUN": "noun", "PROPN": "noun"}
    usual = {word: some.most_common(1)[0][0] for word, some in sorted(tags.items()) if word.isalpha()}
    knowledge_data.table(folder / "pos.tsv", ((word, named[tag]) for word, tag in usual.items() if tag in named))
    polar: dict[str, str] = {}
    for name in ("positive", "negative"):
        path = chosen.data / "lexicon_en_sentiment" / "opinion_lexicon" / f"{name}-words.txt"
        polar |= {word: name for word in path.read_text(encoding="latin-1").splitlines() if word.isalpha()}
    knowledge_data.table(folder / "polarity.tsv", sorted(polar.items()))


def named_text(chosen: Choice, out: Path) -> None:
    """The sentences with names, each name behind a word for its entity: what Wikipedia2Vec would read (E-BERT)."""
    with out.open("w", encoding="utf-8") as file:
        for line in chosen.file("mentions.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            text = row["text"]
            for span in sorted(row["spans"], key=lambda span: -int(span["start"])):
                text = f"{text[: span['start']]}{PREFIX}{plain(span['id'])} {text[span['start'] :]}"
            file.write(text.replace("\n", " ") + "\n")


def plain(entity: str) -> str:
    """An id without punctuation, so that it stays one word."""
    return re.sub(r"\W", "", entity)


def lists(chosen: Choice, folder: Path) -> None:
    """Phrases (2,000 pairs of words that stand together more often than chance has it) and names, a list each (ERNIE 2.0)."""
    folder.mkdir()
    words, both = Counter[str](), Counter[tuple[str, str]]()
    for line in chosen.file("mentions.jsonl").read_text(encoding="utf-8").splitlines()[:60000]:
        found = re.findall(r"[a-z]+", json.loads(line)["text"])
        words.update(found)
        both.update(zip(found, found[1:], strict=False))
    best = sorted(both, key=lambda pair: -(both[pair] - 20) / (words[pair[0]] * words[pair[1]]))[:2000]
    (folder / "phrase.txt").write_text("".join(" ".join(pair) + "\n" for pair in best), encoding="utf-8")
    names = [line.split("\t")[1] for line in chosen.file("entities.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    (folder / "entity.txt").write_text("".join(name + "\n" for name in dict.fromkeys(names) if len(name) > 3), encoding="utf-8")


def surnames(chosen: Choice, folder: Path) -> None:
    """Sentences that name people by a surname that others have, too: the full name is shortened, so that the link is known.

    `candidates.tsv`: surname, entity, and the share of its mentions in training; `test.jsonl`: 300 held-out sentences.
    """
    folder.mkdir()
    people: dict[str, tuple[str, str]] = {}
    for line in chosen.file("entities.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        entity, name, kind = line.split("\t")
        if re.fullmatch(knowledge_data.CLASSES["person"], kind) and re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", name):
            people[entity] = (name, name.split()[-1])
    rows = []
    for line in chosen.file("mentions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for text, spans in knowledge_data.split(row["text"], row["spans"]):
            some = [span for span in spans if span["id"] in people]
            if len(some) == 1 and len(text) < 300 and text[some[0]["start"] : some[0]["end"]] == people[some[0]["id"]][0]:
                start, surname = some[0]["start"], people[some[0]["id"]][1]
                rest = text[some[0]["end"] :]
                if surname not in text[:start] + rest:
                    rows.append({"text": text[:start] + surname + rest, "start": start, "surname": surname, "id": some[0]["id"]})
    bearers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        bearers[row["surname"]].add(row["id"])
    bearers = {surname: some for surname, some in bearers.items() if len(some) > 1}
    rows = [row for row in rows if row["surname"] in bearers]
    random.Random(0).shuffle(rows)
    test, train = rows[:300], rows[300:]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in train:
        counts[row["surname"]][row["id"]] += 1
    knowledge_data.table(folder / "candidates.tsv", (
        (surname, entity, f"{(counts[surname][entity] + 0.1) / (sum(counts[surname].values()) + 0.1 * len(some)):.4f}")
        for surname, some in sorted(bearers.items()) for entity in sorted(some)
    ))  # fmt: skip
    usual = {surname: max(sorted(some), key=lambda entity: counts[surname][entity]) for surname, some in bearers.items()}
    knowledge_data.lines(folder / "test.jsonl", ({**row, "prior": usual[row["surname"]]} for row in test))
    (folder / "text.txt").write_text("".join(row["text"].replace("\n", " ") + "\n" for row in train), encoding="utf-8")
    knowledge_data.lines(folder / "mentions.jsonl", (
        {"text": row["text"], "spans": [{"start": row["start"], "end": row["start"] + len(row["surname"]), "id": row["id"]}]}
        for row in train
    ))  # fmt: skip
    command("corpus", "build", folder / "text.txt", "--format", "line", "--tokenizer", chosen.base,
            "--annotate", f"entity=mentions:{folder / 'mentions.jsonl'}", "--out", folder / "store")  # fmt: skip
