"""Files, stores, graphs and vectors that the cells of knowledge.py share, each made once."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import knowledge_data
import task_files
from knowledge_runs import Choice, once

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
    for name, write in {"reviews": reviews, "named.txt": named_text, "lists": lists}.items():
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
