"""What a recipe reads from files besides its text, taken from the sample texts: lists, mentions, and tables of vectors."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from cloze.corpus.items.recordings import spoken_words
from cloze.corpus.items.visual_words import VisualWords
from cloze.corpus.records import Records
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.text import TextSpec, train

SAMPLES = Path(__file__).resolve().parents[1] / "cloze" / "samples"
WIDTH = 32  # of vectors.txt
#: What a table of each kind reads, by its argument `file`.
_FILES = {
    "triples": "chinese_facts.tsv", "vectors": "vectors.txt", "text_vectors": "vectors.txt", "senses": "supersenses.tsv",
    "surfaces": "candidates.tsv",
}
_LISTS = {
    "phrase": "chinese_phrases.txt", "entity": "chinese_entities.txt", "pos": "english_pos.tsv",
    "polarity": "english_polarity.tsv", "stars": "english_stars.tsv",
}


@cache
def scenes(answer: str) -> Path:
    """A store of captions of drawn scenes with their regions; with an answer, of captions and questions."""
    file = SAMPLES / ("scenes.jsonl" if answer == "none" else "scenes_answers.jsonl")
    texts = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    flat = [text for one in texts for text in (one if isinstance(one, list) else [one])]
    arrays = ["features", "boxes", "class", "score", "attribute", "attribute_score", "probabilities"]
    source = Records(
        answer=answer, items={"regions": arrays}, item_files={"regions": str(SAMPLES / "scenes.npz")}, length=32
    )
    folder = Path(tempfile.mkdtemp(prefix="scenes"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 120}), flat)
    source.build_store([file], tokenizer, folder / "store", base=None, report=lambda line: None)
    return folder / "store"


@cache
def films() -> Path:
    """A store of what a narrator says of a ball in films, with their frames and visual words."""
    g = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="films"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    colour, way, counts = g.integers(4, size=60), g.integers(4, size=60), g.integers(4, 9, size=60)
    rows = np.repeat(np.arange(60), counts)
    vectors = np.eye(12, dtype=np.float32)[colour[rows]] + np.eye(12, k=4, dtype=np.float32)[way[rows]] * g.random((len(rows), 1))
    keys = [f"film{number // 3}/{number % 3}" for number in range(60)]
    words = VisualWords.fit(vectors, branches=3, levels=2)
    np.savez(
        folder / "films.npz", keys=np.array(keys), offsets=np.append(0, np.cumsum(counts)), features=vectors.astype(np.float16),
        word=words.assign(vectors),
    )
    colours, ways = ("red", "green", "blue", "yellow"), ("left", "right", "up", "down")
    texts = [f"the {colours[c]} ball moves {ways[w]}" for c, w in zip(colour, way, strict=True)]
    lines = [json.dumps({"image": key, "text": text}) for key, text in zip(keys, texts, strict=True)]
    (folder / "films.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = Records(
        answer="none", items={"frames": ["features", "word"]}, item_files={"frames": str(folder / "films.npz")}, length=32
    )
    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 90, "visual": {"frames": words.size}}), texts)
    source.build_store([folder / "films.jsonl"], tokenizer, folder / "store", base=None, report=lambda line: None)
    return folder / "store"


@cache
def said() -> Path:
    """A store of texts whose words are recorded: 30 frames of two numbers each, alike in every recording of a word."""
    g = np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp(prefix="said"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = ["the", "red", "green", "ball", "moves", "left", "right", "again"]
    known = g.normal(size=(len(words), 60))
    chosen = [g.integers(len(words), size=g.integers(3, 7)) for _ in range(60)]
    every = np.concatenate(chosen)
    np.savez(
        folder / "sounds.npz", keys=np.arange(60).astype(str), offsets=np.cumsum([0, *map(len, chosen)]),
        features=(known[every] + g.normal(scale=0.1, size=(len(every), 60))).astype(np.float16),
    )
    texts = [" ".join(words[number] for number in one) for one in chosen]
    links = [[[*span, item] for item, span in enumerate(spoken_words(text))] for text in texts]
    lines = [json.dumps({"image": str(number), "text": text, "links": links[number]}) for number, text in enumerate(texts)]
    (folder / "said.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = Records(answer="none", items={"sounds": ["features"]}, item_files={"sounds": str(folder / "sounds.npz")}, length=32)
    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 60}), texts)
    source.build_store([folder / "said.jsonl"], tokenizer, folder / "store", base=None, report=lambda line: None)
    return folder / "store"


def items_of(part: PartSpec) -> str | None:
    """What a source of texts with items reads; None for another source."""
    if not part.arguments.get("items"):
        return None
    if "frames" in part.arguments["items"]:
        return str(films())
    if "sounds" in part.arguments["items"]:
        return str(said())
    answer = part.arguments["answer"]
    return str(scenes(answer.name if isinstance(answer, PartSpec) else str(answer)))


@cache
def linked() -> Path:
    """The mentions of a wiki made of the sample: the first line of each document is its title, and each other links to a page."""
    folder = Path(tempfile.mkdtemp(prefix="linked"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    documents = [one.split("\n") for one in (SAMPLES / "english.txt").read_text(encoding="utf-8").strip().split("\n\n")]
    records = []
    for number, rows in enumerate(documents):
        records.append({"text": rows[0], "spans": [{"start": 0, "end": len(rows[0]), "id": f"#page {number}"}]})
        for place, row in enumerate(rows[1:], 1):
            stop, goal = len(row.split()[0].rstrip(",.;")), f"page {(number + place) % len(documents)}"
            records.append({"text": row, "spans": [{"start": 0, "end": stop, "id": goal}]})
    (folder / "links.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return folder / "links.jsonl"


def from_samples(recipe: Recipe) -> list[str]:
    """The values, as of `--set`, that name the files of a recipe's annotators and tables."""
    values = []
    for name, part in [item for text in recipe.texts.values() for item in text.annotate.items()]:
        if part.name not in ("case", "repeats"):  # these read no file
            file = SAMPLES / ("english_mentions.jsonl" if part.name == "mentions" else _LISTS[name])
            values.append(f"text.annotate.{name}.file={linked() if name == 'link' else file}")
    for name, part in recipe.tables.items():
        if part.name in _FILES:
            values.append(f"tables.{name}.file={SAMPLES / _FILES[part.name]}")
        if part.name == "surfaces":
            values.append(f"tables.{name}.vectors={SAMPLES / 'vectors.txt'}")
        if part.name == "entities":
            networked = any("entities" in network.part.arguments for network in recipe.networks.values() if network.part)
            files = {"vectors": "vectors.txt"} if networked else {"names": "entities.tsv", "types": "entities.tsv"}
            values += [f"tables.{name}.{key}={SAMPLES / file}" for key, file in files.items()]
    networks = [network.part for network in recipe.networks.values() if network.part is not None]
    if any("entities" in part.arguments for part in networks):
        values.append(f"network.entities.width={WIDTH}")
    values += [f"network.linkers.{name}.width={WIDTH}" for part in networks for name in part.arguments.get("linkers", {})]
    objectives = [spec.part.name for entry in recipe.entries.values() for _, spec in entry.objectives()]
    return values + [f"objectives.entity_prediction.entity_width={WIDTH}"] * ("entity_prediction" in objectives)
