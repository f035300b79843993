"""Whether models of pictures and captions see the pictures: emoji scenes, held-out scenes, in English and Chinese.

    python reproductions/data/emoji_scenes.py PACKAGES SCENES --scenes 3000 --languages en zh
    python reproductions/pictures.py --scenes SCENES --work runs/pictures
    python reproductions/pictures.py --table

Every tenth scene is held out. Systems, all with 2 layers of width 128 and 4 heads:

- `uniter`: one stream; of ten steps four hide 30 % of the words, four tell whether text and picture belong together, and one each
  asks for features and classes of hidden regions;
- `towers`: the first stage of `univilm`, with regions in place of frames: vectors of text and regions find each other.

Twins of `uniter` differ in their features alone: `zero` has zeros in place of all features, and `shuffled` gives each region the
features of a random other one, in training and in evaluation. Regions keep their boxes.

Measured on the held-out scenes: `colours`, how many colour words are right if each is hidden alone, next to the right picture,
without one, and next to that of the next scene; `cloze evaluate --task retrieval` among the right and 100 random wrong ones of
the held-out pictures and captions, and its `matching`. A finished cell is a line in results/pictures.jsonl and is not repeated
(ledger.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import shown
from ledger import RESULTS, Ledger

#: Updates by system and language. In English a fifth of the hidden tokens are colours, in Chinese a seventh, so that the share of
#: a colour in the loss is two thirds of that in English.
STEPS = {("uniter", "en"): 1800, ("uniter", "zh"): 2700, ("towers", "en"): 300, ("towers", "zh"): 300}
SEEDS = (1, 2, 3)
COLOURS = {
    "en": ("red", "orange", "yellow", "green", "blue", "purple", "brown"),
    "zh": ("红色", "橙色", "黄色", "绿色", "蓝色", "紫色", "棕色"),
}
TOWERS = """\
name: towers
paper: "UniVL: A Unified Video and Language Pre-Training Model for Multimodal Understanding and Generation (Luo et al., 2020)"
notes: The first stage of univilm alone, with regions of pictures in place of frames.
text: {normalise: {lower: true, strip_accents: true, cjk_spacing: true, clean: true}, tokenizer: {wordpiece: {size: 30522}}}
corpus: {records: {answer: none, items: {frames: [features]}, length: 48}}
network:
  joint_modal:
    layers: 2
    width: 128
    heads: 4
    items: {set: frames, width: 192, layers: 1, most: 16, normed: true}
    joint_layers: 1
    max_length: 64
    dropout: 0.0
    initial: {normal: {std: 0.05}}
order: open
exercise: [{frame: "[CLS] {A} [SEP]"}]
objectives:
  - contrast: {read: {query: text_mean, key: item_mean}, head: films}
  - contrast: {read: {query: item_mean, key: text_mean}, head: texts}
training:
  optimizer: {bert_adam: {betas: [0.9, 0.98], epsilon: 1e-6, weight_decay: 0.01}}
  rate: {linear: {peak: 1e-3, warmup: 0.1}}
  batch: 64
  steps: 300
  clip: 1.0
  packing: false
reading: {single: "[CLS] {A} [SEP]", pair: null, summary: first}
"""
UNITER = {
    "network.heads": 4, "networks.main.dropout": 0.0, "training.batch": 64, "training.rate.linear.peak": 2e-3,
    "mixture.words.exercise.mask.rate": 0.3, "mixture.words.odds": 4, "mixture.matching.odds": 4,
}  # fmt: skip
SEARCH = ("--task", "retrieval", "--candidates", 100, "--batch", 256, "--json")
Cell = dict[str, Any]


def cells() -> Iterator[Cell]:
    """What is run, the most important first."""
    for seed in SEEDS:
        for language in COLOURS:
            for system in ("uniter", "towers"):
                steps = STEPS[system, language]
                yield {"system": system, "language": language, "features": "pixels", "steps": steps, "seed": seed}
        for features in ("zero", "shuffled"):
            yield {"system": "uniter", "language": "en", "features": features, "steps": STEPS["uniter", "en"], "seed": seed}


def command(*words: object) -> str:
    """Run a command of cloze; what it prints."""
    made = subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"cloze {' '.join(map(str, words))}\n{made.stdout}{made.stderr}")
    return made.stdout


def prepared(scenes: Path, work: Path, language: str, features: str) -> Path:
    """The folder with the stores of training and held-out captions, made if it is missing."""
    folder = work / f"{language}-{features}"
    if (folder / "test").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pixels = work / "pixels.npz"
    if not pixels.exists():
        command("features", scenes / "pictures", "--boxes", scenes / "boxes.json", "--with", "pixels", "--out", pixels)
    with np.load(pixels) as file:
        arrays = dict(file)
    if features == "zero":
        arrays["features"] = np.zeros_like(arrays["features"])
    if features == "shuffled":
        arrays["features"] = arrays["features"][np.random.default_rng(0).permutation(len(arrays["features"]))]
    np.savez(folder / "features.npz", **arrays)
    items = [word for name in ("regions", "frames") for word in ("--items", f"{name}={folder / 'features.npz'}")]
    train, test = (scenes / f"{language}-{part}.jsonl" for part in ("train", "test"))
    command("corpus", "build", train, *items, "--recipe", "uniter", "--size", 300, "--out", folder / "train")
    command("corpus", "build", test, *items, "--tokenizer", folder / "train/tokenizer", "--out", folder / "test")
    return folder


def measured(cell: Cell, scenes: Path, work: Path) -> dict[str, Any]:
    """Train and measure a cell."""
    folder = prepared(scenes, work, cell["language"], cell["features"])
    run = work / "-".join(str(value) for value in cell.values())
    shutil.rmtree(run, ignore_errors=True)
    given: list[object] = ["--corpus", folder / "train", "--seed", cell["seed"], "--device", "cpu"]
    given += ["--budget", f"{cell['steps']}steps"]
    if cell["system"] == "towers":
        recipe = work / "towers.yaml"
        recipe.write_text(TOWERS, encoding="utf-8")
        command("pretrain", recipe, *given, "--as-published", "--out", run)
    else:
        sets = [word for name, value in UNITER.items() for word in ("--set", f"{name}={value}")]
        command("pretrain", "uniter", "--size", "tiny", *given, *sets, "--out", run)
    said = json.loads(command("evaluate", run, folder / "test", *SEARCH))
    (found,) = said.values()
    names = ("mrr", "recall@1", "recall@5", "recall@10")
    sides = {f"{row['direction']} {name}": row[name] for row in found["report"] for name in names}
    chance = {"chance recall@1": found["baseline"]["recall@1"], "chance mrr": found["baseline"]["mrr"]}
    made = {**sides, **chance, **({"matching": found["metrics"]["matching"]} if "matching" in found["metrics"] else {})}
    if cell["system"] == "uniter":
        made |= colours(run, scenes / f"{cell['language']}-test.jsonl", folder / "features.npz", cell["language"])
    return {**made, **losses(run)}


def losses(run: Path) -> dict[str, float]:
    """The last held-out loss of each objective."""
    read = [json.loads(line) for line in (run / "cloze/log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        f"held-out {name}": value for one in read if one["event"] == "held_out" for name, value in one["objectives"].items()
    }


def colours(run: Path, captions: Path, features: Path, language: str) -> dict[str, float]:
    """The share of colour words that are right next to their picture, without one, and next to another; and of the most
    frequent colour."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.filling import fill
    from cloze.decoding.pictures import shown_picture
    from cloze.decoding.reader_and_head import to_fill

    loaded = load_checkpoint(run)
    ready = to_fill(loaded)
    scenes = [json.loads(line) for line in captions.read_text(encoding="utf-8").splitlines()]
    keys = [scene["image"] for scene in scenes]
    right = dict.fromkeys(("picture", "none", "another"), 0)
    asked: list[str] = []
    for number, scene in enumerate(scenes):
        hidden = [one for text in scene["caption"] for one in masked(text, language)]
        texts, answers = [text for text, _ in hidden], [answer for _, answer in hidden]
        asked += answers
        for how, key in (("picture", keys[number]), ("another", keys[(number + 1) % len(keys)]), ("none", None)):
            shown = None if key is None else shown_picture(loaded, [str(features)], key)
            reader = replace(ready.reader, pictures=shown)
            filled = fill(reader, ready.head, texts, top=1)
            right[how] += sum(one.masks[0][0].word == answer for one, answer in zip(filled, answers, strict=True))
    usual = max(asked.count(answer) for answer in set(asked))
    shares = {f"colours {how}": number / len(asked) for how, number in right.items()}
    return {"colours asked": len(asked), "prior": usual / len(asked), **shares}


def masked(text: str, language: str) -> Iterator[tuple[str, str]]:
    """A text with each of its colour words hidden alone, and the word. Of Chinese colours the first character is hidden."""
    for colour in COLOURS[language]:
        start = text.find(colour)
        while start >= 0:
            stop = start + (1 if language == "zh" else len(colour))
            yield text[:start] + "[MASK]" + text[stop:], text[start:stop]
            start = text.find(colour, stop)


def table(ledger: Ledger) -> str:
    """The means over seeds."""
    rows = ["colours picture", "colours none", "colours another", "prior", "matching", "text to picture recall@1",
            "text to picture mrr", "picture to text recall@1", "picture to text mrr", "chance recall@1"]  # fmt: skip
    names = ("system", "language", "features", "steps")
    kinds = list(dict.fromkeys(tuple(cell[name] for name in names) for cell in cells()))
    runs = {kind: ledger.results(**dict(zip(names, kind, strict=True))) for kind in kinds}
    heads = [" ".join(kind[:3]).removesuffix(" pixels") for kind in kinds]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(kinds) + 1) + "|"]
    for row in rows:
        values = [[100 * run[row] for run in runs[kind] if row in run] for kind in kinds]
        lines.append(f"| {row} | " + " | ".join(shown(one, len(SEEDS), digits=1) for one in values) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--scenes", type=Path)
    options.add_argument("--work", type=Path, default=Path("runs/pictures"))
    options.add_argument("--only", default="", help="cells such as uniter-en-pixels-1800-1")
    options.add_argument("--table", action="store_true", help="run nothing")
    given = options.parse_args()
    ledger = Ledger(RESULTS / "pictures.jsonl")
    for cell in () if given.table else cells():
        if ledger.has(cell) or not "-".join(str(value) for value in cell.values()).startswith(given.only):
            continue
        if given.scenes is None:
            raise SystemExit("--scenes: expected the folder of reproductions/data/emoji_scenes.py.")
        ledger.add(cell, measured(cell, given.scenes, given.work))
    print(table(ledger))


if __name__ == "__main__":
    main()
