"""Files, stores and vectors of reproductions/knowledge_words.py, each made once.

- `short.txt`: the first 25 MB of the text, which the base was trained on.
- `lexicon.tsv`: synonyms of PPDB and hypernyms of WordNet. Both words are single pieces of the base; pairs of SimLex-999 are left
  out, and so are two words with the same first four letters.
- `contexts.jsonl`: up to three sentences with each word of SimLex-999.
- `senses.tsv`: words and their supersenses, in the order of Open English WordNet.
- `occurrences.jsonl`: the nouns and verbs of STREUSLE that are one word, with the supersense that its annotators gave them.
- `short-names`: sentences in which a full name was shortened to one of its words that other entities of the graph have, too.
"""

from __future__ import annotations

import json
import random
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import knowledge_data
import task_files
from knowledge_runs import Choice, command, once

BYTES = 25_000_000
CONTEXTS = 3
TEST, PER_ENTITY, BEARERS = 1500, 40, 30  # sentences for the test; mentions of one entity, and entities of one name, at most
#: Supersenses, `FILES` by the number of the lexicographer's file.
NOUNS = (
    "Tops", "act", "animal", "artifact", "attribute", "body", "cognition", "communication", "event", "feeling", "food",
    "group", "location", "motive", "object", "person", "phenomenon", "plant", "possession", "process", "quantity",
    "relation", "shape", "state", "substance", "time",
)  # fmt: skip
VERBS = (
    "body", "change", "cognition", "communication", "competition", "consumption", "contact", "creation", "emotion",
    "motion", "perception", "possession", "social", "stative", "weather",
)  # fmt: skip
FILES = ("adj.all", "adj.pert", "adv.all", *(f"noun.{one}" for one in NOUNS), *(f"verb.{one}" for one in VERBS), "adj.ppl")
Word = tuple[str, str]  # form and lemma


def prepare(chosen: Choice, streusle: Path | None) -> None:
    """Make what is not there. `streusle` is the folder with the files `.vis` of STREUSLE, needed for the senses alone."""
    knowledge_data.write(chosen.data, chosen.work)
    made = chosen.file
    if not made("short.txt").exists():
        whole = made("text.txt").read_bytes()
        made("short.txt").write_bytes(whole[: whole.index(b"</doc>\n", BYTES) + 7])
    once(made("store"), "corpus", "build", made("short.txt"), "--tokenizer", chosen.base, "--workers", 1)
    once(made("graph"), "corpus", "build", made("graph.tsv"), "--format", "triples")
    width = ("--set", "network.width=100")
    once(made("kg"), "pretrain", "transe", "--corpus", made("graph"), *width, "--budget", "40epochs", "--seed", 1)
    once(made("vectors"), "pretrain", "word2vec-skipgram", "--corpus", made("short.txt"), "--budget", "3epochs", "--seed", 1)
    own = {"lexicon.tsv": lexicon, "contexts.jsonl": contexts, "senses.tsv": senses, "short-names": short_names}
    for name, write in own.items():
        if not made(name).exists():
            write(chosen, made(name))
    if streusle is not None and not made("occurrences.jsonl").exists():
        occurrences(chosen, streusle, made("occurrences.jsonl"))


def simlex(data: Path) -> list[tuple[str, str, float]]:
    """The pairs of SimLex-999 with their scores."""
    lines = (data / "wordsim_en" / "EN-SIMLEX-999.txt").read_text(encoding="utf-8").splitlines()
    return [(one, other, float(score)) for one, other, score in (line.split() for line in lines)]


def whole_words(base: Path) -> set[str]:
    """The words that are one piece of the base's vocabulary."""
    known = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return {word for word in known if word.isalpha()}


def lexicon(chosen: Choice, out: Path) -> None:
    """Write the pairs of related words."""
    (path,) = (chosen.data / "lexicon_en_ppdb_synonyms").glob("*.xz")
    synonyms = [tuple(line.split("\t")[:2]) for line in task_files.lines_of(path) if re.fullmatch(r"[a-z]+\t[a-z]+.*", line)]
    folder = chosen.data / "kg_wn18rr"
    texts = dict(knowledge_data.rows(folder / "entity2text.txt.xz"))
    names = {entity: text.split(",")[0].strip().lower() for entity, text in texts.items()}
    facts = knowledge_data.wordnet_facts(folder / "train.tsv.xz")
    hypernyms = [(names[head], names[tail]) for head, relation, tail in facts if relation == "_hypernym"]
    known = whole_words(chosen.base)
    asked = {frozenset(pair[:2]) for pair in simlex(chosen.data)}
    pairs = {
        (one, other) for one, other in [*synonyms, *hypernyms]
        if one in known and other in known and one[:4] != other[:4] and frozenset((one, other)) not in asked
    }  # fmt: skip
    knowledge_data.table(out, [("en", "en"), *sorted(pairs)])


def contexts(chosen: Choice, out: Path) -> None:
    """Write sentences of the text with the words of SimLex-999: `word`, `text` and the first character of the word."""
    words = {word for pair in simlex(chosen.data) for word in pair[:2]}
    found: Counter[str] = Counter()
    rows: list[dict[str, object]] = []
    for text in sentences(chosen.file("short.txt")):
        for match in re.finditer(r"[a-z]+", text):
            word = match.group()
            if word in words and found[word] < CONTEXTS:
                found[word] += 1
                rows.append({"word": word, "text": text, "start": match.start()})
    knowledge_data.lines(out, rows)


def sentences(path: Path) -> Iterator[str]:
    """Sentences of 40 to 200 characters."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith("<"):
                yield from (part for part in re.split(r"(?<=[.!?]) +(?=[A-Z])", line.strip()) if 40 <= len(part) <= 200)


def senses(chosen: Choice, out: Path) -> None:
    """Write the supersenses of each word, nouns first, in the order of the senses. Irregular forms have those of their lemma."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    with tarfile.open(chosen.data / "supersense_en_oewn" / "entries.tar.xz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            for lemma, forms, numbers in entries(file.read().decode("utf-8").splitlines() if file else []):
                for word in (lemma, *forms):
                    found[word] |= dict.fromkeys(supersense(lemma, number) for number in numbers)
    knowledge_data.table(out, ((word, "|".join(found[word])) for word in sorted(found)))


def supersense(lemma: str, number: int) -> str:
    """The name of a file; a word such as *food* stands among the tops of the hierarchy, and names a file of its own."""
    return f"noun.{lemma}" if FILES[number] == "noun.Tops" and f"noun.{lemma}" in FILES else FILES[number]


def entries(lines: Sequence[str]) -> Iterator[tuple[str, list[str], list[int]]]:
    """Lemma, irregular forms and the numbers of the files of its senses, for each part of speech of an entry of one word."""
    lemma, forms, numbers, listing = "", list[str](), list[int](), False
    for line in [*lines, "end:"]:
        if re.match(r"\S.*:$|  [nvars](-\d)?:$", line):
            if numbers and re.fullmatch(r"[a-z]+", lemma):
                yield lemma, forms, numbers
            forms, numbers = [], []
            lemma = line[:-1].strip("'\"") if not line.startswith(" ") else lemma
        elif found := re.match(r"    (?:- |  )id: '?[^%]+%\d:(\d\d):", line):
            numbers.append(int(found.group(1)))
        if listing and (found := re.match(r"    - ([a-z]+)$", line)):
            forms.append(found.group(1))
        else:
            listing = line == "    form:"


def occurrences(chosen: Choice, streusle: Path, out: Path) -> None:
    """Write the words of STREUSLE: `part`, `text`, `word`, `start`, `lemma` and `sense`."""
    trees = {name: words for part in knowledge_data.PARTS for name, words in trees_of(chosen, part)}
    rows: list[dict[str, object]] = []
    for part in knowledge_data.PARTS:
        for line in (streusle / f"streusle.ud_{part}.vis").read_text(encoding="utf-8").splitlines():
            name, _, marked = line.partition("\t")
            rows += ({"part": part, **row} for row in labelled(trees[name], marked))
    knowledge_data.lines(out, rows)


def labelled(words: Sequence[Word], marked: str) -> Iterator[dict[str, object]]:
    """The nouns and verbs of a sentence that stand alone, such as `place|N-n.LOCATION`, by their places in the text."""
    text, place, start = " ".join(form for form, _ in words), 0, 0
    for piece in marked.split():
        found = re.fullmatch(r"([^_~|]+)\|[NV]-([nv])\.([A-Za-z]+)", piece)
        if not found:
            continue
        here = next((i for i in range(place, len(words)) if words[i][0] == found.group(1)), None)
        name = {"NATURALOBJECT": "object"}.get(found.group(3), found.group(3).lower())
        sense = f"{'noun' if found.group(2) == 'n' else 'verb'}.{name}"
        if here is None or sense not in FILES:
            continue
        start = len(" ".join(form for form, _ in words[:here])) + (here > 0)
        place = here + 1
        yield {"text": text, "word": words[here][0], "start": start, "lemma": words[here][1], "sense": sense}


def trees_of(chosen: Choice, part: str) -> Iterator[tuple[str, list[Word]]]:
    """The name of every sentence of UD-EWT, and the forms and lemmas of its words."""
    (path,) = (chosen.data / "tag_en_ud_ewt").glob(f"*{part}*.conllu.xz")
    for block in task_files.unpacked(path).split("\n\n"):
        name = re.search(r"^# sent_id = (\S+)", block, re.MULTILINE)
        cells = [line.split("\t") for line in block.splitlines() if re.match(r"\d+\t", line)]
        if name:
            yield name.group(1), [(cell[1], cell[2].lower()) for cell in cells]


def short_names(chosen: Choice, folder: Path) -> None:
    """Write the sentences for training as a store with links, 1,500 others for the test, and the candidates with their shares in
    training.

    A person is called by the first or last word of the name, anything else by the first. Words that texts also write in small
    letters are no names.
    """
    folder.mkdir()
    rows = list(shortened(chosen))
    bearers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        bearers[row["name"]].add(row["id"])
    bearers = {name: some for name, some in bearers.items() if 1 < len(some) <= BEARERS}
    rows = [row for row in rows if row["name"] in bearers]
    asked = sorted({row["whole"] for row in rows})
    random.Random(0).shuffle(asked)
    apart = set(asked[:TEST])
    test, train = ([row for row in rows if (row["whole"] in apart) == held] for held in (True, False))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in train:
        counts[row["name"]][row["id"]] += 1
    shares = [
        (name, entity, f"{(counts[name][entity] + 0.1) / (sum(counts[name].values()) + 0.1 * len(some)):.4f}")
        for name, some in sorted(bearers.items()) for entity in sorted(some)
    ]  # fmt: skip
    knowledge_data.table(folder / "candidates.tsv", shares)
    usual = {name: max(sorted(some), key=lambda entity: counts[name][entity]) for name, some in bearers.items()}
    knowledge_data.lines(folder / "test.jsonl", ({**row, "prior": usual[row["name"]]} for row in test))
    (folder / "text.txt").write_text("".join(row["text"] + "\n" for row in train), encoding="utf-8")
    knowledge_data.lines(folder / "mentions.jsonl", (
        {"text": row["text"], "spans": [{"start": row["start"], "end": row["start"] + len(row["name"]), "id": row["id"]}]}
        for row in train
    ))  # fmt: skip
    command("corpus", "build", folder / "text.txt", "--format", "line", "--tokenizer", chosen.base,
            "--annotate", f"entity=mentions:{folder / 'mentions.jsonl'}", "--out", folder / "store")  # fmt: skip


def shortened(chosen: Choice) -> Iterator[dict[str, Any]]:
    """Sentences (`whole`) with one of their full names in short: `text`, `start`, `name` and `id`, at most 40 of an entity."""
    entities = [line.split("\t") for line in chosen.file("entities.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    of = {entity: (name, re.fullmatch(knowledge_data.CLASSES["person"], kind) is not None) for entity, name, kind in entities}
    written = Counter(re.findall(r"[A-Za-z]+", chosen.file("text.txt").read_text(encoding="utf-8")))
    chance, seen, done = random.Random(0), Counter[str](), set[str]()
    for line in chosen.file("mentions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for text, spans in knowledge_data.split(row["text"], row["spans"]):
            if not 40 <= len(text) <= 250 or "\n" in text or text in done:
                continue
            done.add(text)
            for span in spans:
                (full, person), before, after = of[span["id"]], text[: span["start"]], text[span["end"] :]
                name = chance.choice([full.split()[0], full.split()[-1]]) if person else full.split()[0]
                told = " " in full and text[span["start"] : span["end"]] == full and re.fullmatch(r"[A-Z][a-z]{2,}", name)
                usual = written[name.lower()] < 0.1 * written[name] and seen[span["id"]] < PER_ENTITY
                if told and usual and not re.search(rf"\b{name}\b", f"{before} {after}"):
                    seen[span["id"]] += 1
                    short = f"{before}{name}{after}"
                    yield {"whole": text, "text": short, "start": span["start"], "name": name, "id": span["id"]}
