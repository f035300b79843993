"""What knowledge is worth: each system that reads facts, next to the same network without them and with wrong ones.

    python reproductions/knowledge.py --data ../shared/data --work runs/knowledge --base RUN [--jobs 2]
    python reproductions/knowledge.py --table

RUN is a RoBERTa of `cloze pretrain` that has learned; every network starts from it, and takes STEPS updates of 32 rows on
Wikipedia text whose names of entities of FB15k-237 are known (knowledge_data.py). Arms of a system: `true`; `shuffled`, the same
knowledge given to other words or entities; `twin`, equal steps of masked words alone. Seeds change the order of the text, the
masks, the shuffling and the new weights. The function of each system says what is measured. A finished cell is a line in
results/knowledge.jsonl and is not repeated (ledger.py).
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import knowledge_data
from cells import parser, share, shown, tuned
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3)
STEPS, ROWS, LENGTH = 250, 32, 128
TRAINING: Mapping[str, Any] = {
    "optimizer": {"adamw": {"betas": [0.9, 0.98], "epsilon": 1e-6, "weight_decay": 0.01}},
    "rate": {"linear": {"peak": 5e-4, "warmup": 0.1}}, "batch": ROWS, "steps": STEPS,
}  # fmt: skip
KINDS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}  # of words in UD and in WordNet
Measures = dict[str, float]


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    work: Path
    base: Path
    ledger: Ledger

    def file(self, name: str) -> Path:
        """A file that all cells share."""
        return self.work / name


@dataclass(frozen=True)
class Cell:
    """One network: a system, an arm and a seed."""

    system: str
    arm: str
    seed: int

    @property
    def run(self) -> dict[str, Any]:
        """What it is known by in the ledger."""
        return {"system": self.system, "arm": self.arm, "steps": STEPS, "seed": self.seed}

    def __str__(self) -> str:
        return f"{self.system}:{self.arm}:{self.seed}"


# ---- commands and recipes -----------------------------------------------------------------------------------------------


def command(*words: object) -> str:
    """Run a command of cloze; returns what it prints."""
    made = subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"cloze {' '.join(map(str, words))}\n{made.stdout}{made.stderr}")
    return made.stdout


def adapted(name: str, change: Callable[[dict[str, Any]], None] = lambda recipe: None) -> dict[str, Any]:
    """A recipe with our training, without dropout and segments, which the base lacks, and with short rows."""
    from ruamel.yaml import YAML

    import cloze

    path = Path(str(cloze.__file__)).parent / "recipes" / f"{name}.yaml"
    recipe: dict[str, Any] = YAML(typ="safe").load(path)
    recipe["training"] = dict(TRAINING)
    recipe.pop("schedule", None)
    (network,) = recipe["network"].values()
    network.update(segments=0, dropout=0.0)
    if "embedding" not in network:
        network["initial"] = "normal"
    for source in ([recipe["corpus"]] if "corpus" in recipe else recipe["sources"].values()):
        for options in source.values():
            options["length"] = min(options.get("length", LENGTH), LENGTH)
    change(recipe)
    return recipe


def pretrain(chosen: Choice, cell: Cell, recipe: Mapping[str, Any], out: Path, *options: object, start: bool = True) -> str:
    """Train a recipe from the base; returns what the run prints."""
    file = out.with_suffix(".yaml")
    file.write_text(json.dumps(recipe), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    first = ("--init", chosen.base) if start else ("--tokenizer", chosen.base)
    scaled = ("--size", "tiny", "--as-published", *first)
    return command("pretrain", file, *scaled, *options, "--seed", cell.seed, "--device", "cpu", "--out", out)


def on_names(start: Path, files: Sequence[Path], seed: int, out: Path, **options: Any) -> Measures:
    """Test accuracy and macro-F1 on what a name in a sentence is, in percent, after tuning on 1,500 sentences."""
    overrides = [
        "training.epochs=5", "training.rate.peak=1e-3", "training.batch=16", "task.metric=macro_f1", "task.patience=0",
    ]  # fmt: skip
    found = tuned(start, tuple(map(str, files)), seed, out, overrides=overrides, **options)  # type: ignore[arg-type]
    return {"names": 100 * found["test"]["accuracy"], "names, macro-F1": 100 * found["test"]["macro_f1"]}


def names(chosen: Choice) -> list[Path]:
    """Training, dev and test rows of the task."""
    return [chosen.file(f"names-{part}.jsonl") for part in knowledge_data.PARTS]


def shuffled_column(path: Path, column: int, seed: int, out: Path) -> Path:
    """The table with the values of a column given to other rows; a first line that begins with `id` stays."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    head = [rows.pop(0)] if rows[0][0] == "id" else []
    values = [row[column] for row in rows]
    random.Random(seed).shuffle(values)
    made = [[*row[:column], value, *row[column + 1 :]] for row, value in zip(rows, values, strict=True)]
    knowledge_data.table(out, [*head, *made])
    return out


# ---- what is made once --------------------------------------------------------------------------------------------------


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


def once(out: Path, *words: object) -> None:
    """Run a command that writes `out`, unless it is there."""
    if not out.exists():
        print(command(*words, "--out", out).strip().splitlines()[-1], flush=True)


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
    import task_files

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
    words = [tuple(line.split("\t")[:2]) for line in lines_of(path) if re.fullmatch(r"[a-z]+\t[a-z]+.*", line)]
    knowledge_data.table(out, [("en", "en"), *sorted(set(words))])


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a packed file."""
    import task_files

    return task_files.lines_of(path)


def reviews(chosen: Choice, folder: Path) -> None:
    """Sentences on films with their polarity, which stands for 1 and 5 stars, and the word lists of SentiLARE.

    `text.txt` are 8,000 sentences to pre-train on; the rows of the task are 500 of these, and others for dev and test.
    """
    import task_files

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


PREFIX = "entityx"


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


# ---- systems ------------------------------------------------------------------------------------------------------------


def mlm(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """The twin of all that read Wikipedia: the base with equal steps of masked words."""
    start = pretrained_twin(chosen, cell)
    return {**on_names(start, names(chosen), cell.seed, out), **similarity(chosen, start)}


def pretrained_twin(chosen: Choice, cell: Cell) -> Path:
    """The base after equal steps of masked words with the seed of a cell, made once."""
    kept = chosen.file(f"twin-{cell.seed}")
    if not kept.exists():
        made = chosen.file(f"making-{cell.system}-{cell.arm}-{cell.seed}")
        pretrain(chosen, cell, adapted("roberta"), made, "--corpus", chosen.file("store"))
        made.rename(kept)
    return kept


def similarity(chosen: Choice, run: Path) -> Measures:
    """Spearman's correlation with SimLex-999, in percent, of the cosines of words, each a text, less their mean vector."""
    import numpy as np
    from scipy.stats import spearmanr

    import cloze

    rows = [line.split() for line in (chosen.data / "wordsim_en" / "EN-SIMLEX-999.txt").read_text("utf-8").splitlines()]
    words = sorted({word for row in rows for word in row[:2]})
    place = {word: i for i, word in enumerate(words)}
    found = {}
    for name, layer in (("simlex", -1), ("simlex, embeddings", 0)):
        vectors = np.asarray(cloze.load(str(run)).embed(words, layer=layer))
        vectors = vectors - vectors.mean(0)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = [float(vectors[place[row[0]]] @ vectors[place[row[1]]]) for row in rows]
        found[name] = 100 * float(spearmanr(cosines, [float(row[2]) for row in rows]).statistic)
    return found


def wklm(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, after WKLM; `shuffled`: names are replaced by those of any entity."""
    entities = types = chosen.file("entities.tsv")
    if cell.arm == "shuffled":
        types = shuffled_column(entities, 2, cell.seed, out.with_suffix(".tsv"))
    recipe = adapted("wklm")
    recipe["tables"] = {"entities": {"entities": {"names": str(entities), "types": str(types)}}}
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"))
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"))


def ernie_thu(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with the vector of TransE of every name; `shuffled`: entities have the vectors of others."""
    vectors = out.with_name("vectors.txt")
    command("export", chosen.file("kg"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith("/m/"), cell.seed)
    recipe = adapted("ernie-thu")
    recipe["network"]["knowledge_fusion"]["mix_at"] = 1  # of two layers
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), "--bind", f"entities={vectors}")
    linker = f"entity=linker:{chosen.file('entities.tsv')}"
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"), annotate=[linker])


def exchange(vectors: Path, some: Callable[[str], bool], seed: int) -> None:
    """Give the vectors of some words of a file to others of these words."""
    head, *rows = vectors.read_text(encoding="utf-8").splitlines()
    own = [i for i, row in enumerate(rows) if some(row.split(" ", 1)[0])]
    words = [rows[i].split(" ", 1)[0] for i in own]
    random.Random(seed).shuffle(words)
    for i, word in zip(own, words, strict=True):
        rows[i] = f"{word} {rows[i].split(' ', 1)[1]}"
    vectors.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def knowbert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Which person a surname means, in percent of held-out surnames that several people have, who all have vectors of TransE.

    `shuffled`: people have the vectors of others; `prior` is the person whom the surname means most often in training."""
    folder, vectors = chosen.file("surnames"), out.with_name("vectors.txt")
    command("export", chosen.file("kg"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith("/m/"), cell.seed)
    recipe = adapted("knowbert")
    recipe["network"]["linked"]["link_after"] = 1  # of two layers
    recipe["network"]["linked"]["entities"]["width"] = 100
    recipe["tables"]["surfaces"]["surfaces"]["vectors"] = str(vectors)
    recipe["exercise"] = [edit for edit in recipe["exercise"] if "pair" not in edit]  # every text stands alone
    recipe["exercise"][0] = {"frame": "[CLS] {A} [SEP]"}
    recipe["objectives"] = [one for one in recipe["objectives"] if "relation_prediction" not in one]
    pretrain(chosen, cell, recipe, out, "--corpus", folder / "store", "--bind", f"surfaces={folder / 'candidates.tsv'}")
    rows = [json.loads(line) for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    return {**linked(out, rows), "prior": 100 * sum(row["prior"] == row["id"] for row in rows) / len(rows)}


def linked(run: Path, rows: Sequence[Mapping[str, Any]]) -> Measures:
    """How often the candidate of the highest score is the right one."""
    import torch

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.reader import Reader

    loaded = load_checkpoint(run, "cpu")
    reader, ids = Reader.of(loaded), loaded.tables["surfaces"].ids
    right = 0
    for row in rows:
        batch = reader.batch(reader.encode([row["text"]]))
        with torch.inference_mode():
            scores = reader.states(batch, frozenset({"linking"}))["linking"].tolist()
        pairs = reader.network.candidates(batch["items/surface"])
        candidates = [ids[entity - 1] if entity <= len(ids) else "" for entity in pairs.entity.tolist()]
        if row["id"] in candidates:
            name = pairs.item[candidates.index(row["id"])]
            best = max((pairs.item == name).nonzero().flatten().tolist(), key=scores.__getitem__)
            right += candidates[best] == row["id"]
    return {"linked": 100 * right / len(rows)}


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


def ernie2(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, after the five tasks of ERNIE 2.0, all at once."""
    recipe = adapted("ernie-2.0")
    for name in ("phrase", "entity"):
        recipe["text"]["annotate"][name]["list"]["file"] = str(chosen.file("lists") / f"{name}.txt")
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store-tasks"))
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"))


def sensebert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """The right supersense of ambiguous words, in percent: the word is read, or masked; `first` is the most frequent one."""
    bound = ("--bind", f"senses={chosen.file('senses.tsv')}")
    pretrain(chosen, cell, adapted("sensebert"), out, "--corpus", chosen.file("store"), *bound)
    gold = str(chosen.file("occurrences.tsv"))
    found = json.loads(command("evaluate", out, "--senses", gold, "--json"))[gold]
    return {name: 100 * found[name] for name in ("shown", "masked", "first")} | {"words": found["words"]}


def libert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """SimLex-999; `shuffled`: each word has the synonym of another; its twin is `mlm`, which reads as much text.

    Texts have half the length and steps are four times as many, every other one on pairs of words.
    """
    pairs = chosen.file("synonyms.tsv")
    if cell.arm == "shuffled":
        pairs = shuffled_pairs(pairs, cell.seed, out.with_suffix(".tsv"))
    recipe = adapted("libert")
    recipe["sources"]["main"]["passages"]["length"] = LENGTH // 2
    recipe["training"] = {**TRAINING, "steps": 4 * STEPS}
    bound = ("--bind", f"lexicon={pairs}", "--bind", f"words={chosen.file('named')}")
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), *bound)
    return similarity(chosen, out)


def shuffled_pairs(path: Path, seed: int, out: Path) -> Path:
    """A lexicon whose second words belong to other first words; the first line stays."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in rest]
    seconds = [row[1] for row in rows]
    random.Random(seed).shuffle(seconds)
    pairs = {(one, other) for (one, _), other in zip(rows, seconds, strict=True) if one != other}
    knowledge_data.table(out, [tuple(first.split("\t")), *sorted(pairs)])
    return out


def sentilare(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Polarity of sentences on films in percent, 500 labels; `twin`: masked words of the same sentences."""
    folder = chosen.file("reviews")
    store = chosen.file("store-reviews")
    if cell.arm == "shuffled":
        store = out.with_name("store")
        files = {name: folder / f"{name}.tsv" for name in ("pos", "polarity", "stars")}
        layers = labelled({name: shuffled_column(file, 1, cell.seed, out.with_name(file.name)) for name, file in files.items()})
        source = (folder / "text.txt", "--format", "line", "--tokenizer", chosen.base)
        command("corpus", "build", *source, *layers, "--out", store)
    pretrain(chosen, cell, adapted("roberta" if cell.arm == "twin" else "sentilare"), out, "--corpus", store)
    train, dev, test = (folder / f"polarity-{part}.jsonl" for part in knowledge_data.PARTS)
    few = out.with_name(f"{out.name}-train.jsonl")
    few.write_text("".join(line + "\n" for line in train.read_text(encoding="utf-8").splitlines()[:500]), encoding="utf-8")
    return {"polarity": on_names(out, [few, dev, test], cell.seed, out.with_name(f"{out.name}-tuned"))["names"]}


def kepler(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Hits@10 in percent among 100 random entities, of facts of WN18RR about entities that no fact in training has.

    `shuffled`: entities have the glosses of others in training; `twin`: facts have no weight, so distances are those of a network
    that has learned masked words alone."""
    graph = wordnet_of(chosen, cell, out)
    recipe = adapted("kepler")
    for source in recipe["sources"].values():
        for options in source.values():
            options["length"] = min(options["length"], 64)
    if cell.arm == "twin":
        recipe["mixture"]["facts"]["objectives"][0]["triple_contrast"]["weight"] = 1e-9
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), "--bind", f"facts={graph}")
    return ranked(chosen, out, "wordnet-unseen.tsv")


def wordnet_of(chosen: Choice, cell: Cell, out: Path) -> Path:
    """The graph of WN18RR; for `shuffled` one whose entities have the glosses of others."""
    if cell.arm != "shuffled":
        return chosen.file("wordnet")
    graph, glosses = out.with_name("graph"), out.with_suffix(".tsv")
    shuffled_column(chosen.file("wordnet-entities.tsv"), 1, cell.seed, glosses)
    texts = ("--entities", glosses, "--relations", chosen.file("wordnet-relations.tsv"))
    command("corpus", "build", chosen.file("wordnet-train.tsv"), "--format", "triples", *texts, "--out", graph)
    return graph


def ranked(chosen: Choice, run: Path, facts: str) -> Measures:
    """Hits@10 and mean reciprocal rank of facts among 100 random entities, in percent."""
    file = str(chosen.file(facts))
    graph = ("--graph", chosen.file("wordnet"), "--known", chosen.file("wordnet-train.tsv"), "--candidates", 100)
    found = json.loads(command("evaluate", run, file, "--task", "link_prediction", *graph, "--json"))[file]["metrics"]
    return {"hits@10": 100 * found["hits@10"], "mrr": 100 * found["mrr"]}


def kg_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Hits@10 in percent among 100 random entities, of test facts of WN18RR; `twin`: from random weights."""
    graph = wordnet_of(chosen, cell, out)
    recipe = adapted("kg-bert")
    recipe["training"] = {**TRAINING, "steps": 3 * STEPS}
    pretrain(chosen, cell, recipe, out, "--corpus", graph, start=cell.arm != "twin")
    return ranked(chosen, out, "wordnet-test.tsv")


def k_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with two facts about each; an empty graph is the twin `mlm`, bit for bit."""
    start = pretrained_twin(chosen, cell)
    facts = chosen.file("facts.tsv")
    if cell.arm == "shuffled":
        facts = shuffled_column(facts, 0, cell.seed, out.with_suffix(".tsv"))
    return on_names(start, names(chosen), cell.seed, out, recipe="k-bert_classification", binds=[f"facts={facts}"])


def k_adapter(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with an adapter that has learned relations; `shuffled`: its relations were those of other sentences."""
    start, files = pretrained_twin(chosen, cell), [chosen.file(f"relations-{part}.jsonl") for part in knowledge_data.PARTS]
    if cell.arm == "shuffled":
        files[0] = shuffled_labels(files[0], cell.seed, out.with_name(f"{out.name}-relations.jsonl"))
    adapter = out.with_name(f"{out.name}-adapter")
    overrides = ["training.epochs=3", "training.rate.peak=1e-3", "training.batch=16", "task.patience=0",
                 "network.change.0.knowledge_adapter.width=64", "network.change.0.knowledge_adapter.heads=2"]  # fmt: skip
    tuned(start, tuple(map(str, files)), cell.seed, adapter, recipe="k-adapter", overrides=overrides)  # type: ignore[arg-type]
    return on_names(adapter, names(chosen), cell.seed, out, changes=["tune_trunk"])


def shuffled_labels(path: Path, seed: int, out: Path) -> Path:
    """JSON lines with the labels of other rows."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    labels = [row["label"] for row in rows]
    random.Random(seed).shuffle(labels)
    knowledge_data.lines(out, ({**row, "label": label} for row, label in zip(rows, labels, strict=True)))
    return out


def e_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with a token for each name in front of it; `shuffled`: entities have the vectors of others."""
    start, vectors = pretrained_twin(chosen, cell), out.with_name(f"{out.name}.txt")
    command("export", chosen.file("named"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith(PREFIX), cell.seed)
    aligned = out.with_name(f"{out.name}-aligned")
    shutil.rmtree(aligned, ignore_errors=True)
    command("vocab", "entities", start, "--vectors", vectors, "--prefix", PREFIX, "--out", aligned)
    return on_names(aligned, [told(chosen, aligned, path, out) for path in names(chosen)], cell.seed, out)


def told(chosen: Choice, run: Path, path: Path, out: Path) -> Path:
    """Rows whose texts have the tokens of the entities that they mention."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    mentions, texts = out.with_name(f"{out.name}-{path.name}"), out.with_name(f"{out.name}-{path.stem}.txt")
    spans = ([{**span, "id": plain(span["id"])} for span in row["spans"]] for row in rows)
    knowledge_data.lines(mentions, ({"text": row["text"], "spans": own} for row, own in zip(rows, spans, strict=True)))
    texts.unlink(missing_ok=True)
    command("vocab", "mentions", run, mentions, "--as", "concat", "--prefix", PREFIX, "--out", texts)
    found = texts.read_text(encoding="utf-8").splitlines()
    knowledge_data.lines(mentions, ({"text": text, "label": row["label"]} for text, row in zip(found, rows, strict=True)))
    return mentions


#: Systems: how a cell is made, its arms, and the measure that the table shows first.
SYSTEMS: Mapping[str, tuple[Callable[[Choice, Cell, Path], Measures], Sequence[str]]] = {
    "mlm": (mlm, ("twin",)),
    "kepler": (kepler, ("true", "shuffled", "twin")),
    "sensebert": (sensebert, ("true",)),
    "libert": (libert, ("true", "shuffled")),
    "ernie-thu": (ernie_thu, ("true", "shuffled")),
    "knowbert": (knowbert, ("true", "shuffled")),
    "k-bert": (k_bert, ("true", "shuffled")),
    "e-bert": (e_bert, ("true", "shuffled")),
    "sentilare": (sentilare, ("true", "shuffled", "twin")),
    "kg-bert": (kg_bert, ("true", "shuffled", "twin")),
    "wklm": (wklm, ("true", "shuffled")),
    "k-adapter": (k_adapter, ("true", "shuffled")),
    "ernie-2.0": (ernie2, ("true",)),
}


def one(chosen: Choice, cell: Cell) -> None:
    """One cell, into the ledger."""
    folder = chosen.work / "cells" / str(cell).replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.time()
    found = SYSTEMS[cell.system][0](chosen, cell, folder / "run")
    chosen.ledger.add(cell.run, {**found, "seconds": round(time.time() - started)})
    shutil.rmtree(folder)
    print(cell, json.dumps(found), flush=True)


def tables(ledger: Ledger) -> Iterator[str]:
    """Mean ± standard deviation over seeds of every measure, a row for each arm."""
    yield "| system | measure | true | shuffled | twin |"
    yield "|---|---|---|---|---|"
    twins = ledger.results(system="mlm", steps=STEPS)
    for system, (_, arms) in SYSTEMS.items():
        found = {arm: ledger.results(system=system, arm=arm, steps=STEPS) for arm in arms}
        measures = {name for runs in found.values() for run in runs for name in run if isinstance(run[name], float)}
        for name in sorted(measures):
            cells = [shown([run[name] for run in found.get(arm, [])], len(SEEDS), 1) for arm in ("true", "shuffled", "twin")]
            if not found.get("twin"):
                cells[2] = shown([run[name] for run in twins if name in run], len(SEEDS), 1)
            yield f"| {system} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = parser(__doc__, "runs/knowledge", "SYSTEM:ARM:SEED")
    options.add_argument("--base", type=Path, help="the run that every network starts from")
    options.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    given = options.parse_args()
    ledger = Ledger(RESULTS / "knowledge.jsonl")
    if not given.table:
        chosen = Choice(given.data, given.work, given.base, ledger)
        if given.only:
            system, arm, seed = given.only.split(":")
            one(chosen, Cell(system, arm, int(seed)))
            return
        given.work.mkdir(parents=True, exist_ok=True)
        prepare(chosen)
        cells = [Cell(system, arm, seed) for seed in SEEDS for system in given.systems for arm in SYSTEMS[system][1]]
        share([str(cell) for cell in cells if not ledger.has(cell.run)], given.jobs)
    print("\n".join(tables(ledger)))


if __name__ == "__main__":
    main()
