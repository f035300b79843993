"""Films with a narrator, photographs and drawings with captions, and sentences that are true or false of a picture.

    python reproductions/data/moving_scenes.py PACKAGES FILMS
    python reproductions/data/stamps.py PACKAGES STAMPS --languages en
    python reproductions/data/nlvr.py ../shared/data/vl_en_nlvr NLVR
    python reproductions/data/clip_art.py PACKAGES CLIPART
    python reproductions/more_pictures.py --films FILMS --stamps STAMPS --nlvr NLVR --clipart CLIPART --work runs/more-pictures
    python reproductions/more_pictures.py --scenes SCENES --starts runs/pictures
    python reproductions/more_pictures.py --table

All networks have 2 layers of width 128 and 4 heads.

- `films towers`: the first stage of `univilm` (pictures.py) finds the clip for a narration, and the narration for a clip,
  among all held-out clips.
- `films videobert`: `videobert` with 8 x 8 x 8 visual words, mostly on rows of narration and clip. Of a held-out narration the
  word of the way and that of the colour are hidden, each alone, next to the words of its clip, without a clip, and next to those
  of a clip of another film.
- `stamps towers`: as for films, with photographs and drawings of Tux Paint in 3 x 3 cells; every tenth picture is held out. The
  twin `shuffled` has the features of random other cells.
- `clipart towers`: the same with 800 drawings of the Open Clip Art Library, their titles and their keywords.
- `nlvr uniter`: `uniter` is pre-trained on the true sentences and then fine-tuned to say whether a sentence is true of a picture.
  The twin `text` is fine-tuned from the same checkpoint without pictures.
- `scenes uniter`: the same for the emoji scenes of pictures.py, from its checkpoints and with its features, which `--starts`
  holds. A statement names one thing of a scene, on its own colour or on another one: "a rocket on green".

A part whose folder is not given is left out. A finished cell is a line in results/more-pictures.jsonl and is not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cells import shown
from ledger import RESULTS, Ledger
from pictures import COLOURS, SEEDS, TOWERS, command, losses
from pictures import STEPS as STARTS

STEPS = {"towers": 400, "videobert": 1200, "uniter": 600}
STARTED = STARTS["uniter", "en"]  # those of the checkpoints of pictures.py
STATEMENTS = 2000  # of the scenes, in training
CAPTIONS = {"stamps": "en.jsonl", "clipart": "captions.jsonl"}  # of sets of pictures that are no scenes
WAYS = ("left", "right", "up", "down")
SMALL = ["--size", "tiny", "--device", "cpu"]
VIDEOBERT = {
    "network.heads": 4, "networks.main.dropout": 0.0, "training.batch": 64, "training.rate.linear.peak": 2e-3,
    "mixture.both.exercise.write_items.steps": 1, "mixture.video.exercise.write_items.steps": 1, "mixture.both.odds": 6,
    "mixture.both.exercise.mask.rate": 0.3, "mixture.both.exercise.append.rate": 0.0,
}  # fmt: skip
UNITER = {"network.heads": 4, "training.batch": 32, "training.rate.linear.peak": 1e-3}
TUNED = {"training.epochs": 12, "training.batch": 32, "training.rate.linear.peak": 5e-4, "task.patience": 12}
STATED = {"training.epochs": 4, "training.batch": 32, "training.rate.linear.peak": 5e-4}
EVERY = ("--task", "retrieval", "--candidates", "all", "--batch", 256, "--json")
Cell = dict[str, Any]


def cells() -> Iterator[Cell]:
    """What is run, the most important first."""
    kinds = [("films", "towers", "pixels"), ("stamps", "towers", "cells"), ("nlvr", "uniter", "objects"),
             ("films", "videobert", "words"), ("nlvr", "uniter", "text"), ("stamps", "towers", "shuffled")]  # fmt: skip
    kinds += [("scenes", "uniter", "objects"), ("scenes", "uniter", "text")]
    kinds += [("clipart", "towers", "cells"), ("clipart", "towers", "shuffled")]
    for seed in SEEDS:
        for data, system, features in kinds:
            steps = STARTED if data == "scenes" else STEPS[system]
            yield {"data": data, "system": system, "features": features, "steps": steps, "seed": seed}


def sets(values: Mapping[str, Any]) -> list[str]:
    """Values of a recipe as options."""
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def stores(folder: Path, features: Path, train: Path, test: Path, *more: object) -> None:
    """The stores of training and held-out captions in `folder`, made if they are missing."""
    if (folder / "test").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    items = [word for name in ("regions", "frames") for word in ("--items", f"{name}={features}")]
    command("corpus", "build", train, *items, *more, "--out", folder / "train")
    command("corpus", "build", test, *items, "--tokenizer", folder / "train/tokenizer", "--out", folder / "test")


def towers(folder: Path, run: Path, cell: Cell) -> dict[str, float]:
    """Train vectors of texts and pictures, and search the held-out ones."""
    recipe = run.with_suffix(".yaml")
    recipe.write_text(TOWERS, encoding="utf-8")
    given = ["--corpus", folder / "train", "--seed", cell["seed"], "--device", "cpu", "--budget", f"{cell['steps']}steps"]
    command("pretrain", recipe, *given, "--as-published", "--out", run)
    (found,) = json.loads(command("evaluate", run, folder / "test", *EVERY)).values()
    names = ("mrr", "recall@1", "recall@10")
    sides = {f"{row['direction']} {name}": row[name] for row in found["report"] for name in names}
    return sides | {f"chance {name}": found["baseline"][name] for name in names} | losses(run)


def films_towers(given: argparse.Namespace, cell: Cell, run: Path) -> dict[str, float]:
    """Clips and what the narrator says of them."""
    folder = given.work / "films"
    stores(folder, given.films / "clips.npz", given.films / "train.jsonl", given.films / "test.jsonl", "--size", 200)
    return towers(folder, run, cell)


def films_videobert(given: argparse.Namespace, cell: Cell, run: Path) -> dict[str, float]:
    """Hidden words of the narration, next to the words of a clip."""
    plain, folder = given.work / "films", given.work / "films-words"
    clips = given.films / "clips.npz"
    stores(plain, clips, given.films / "train.jsonl", given.films / "test.jsonl", "--size", 200)
    if not (folder / "test").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tree = ["--tokenizer", plain / "train/tokenizer", "--branches", 8, "--levels", 3]
        command("vocab", "visual", clips, *tree, "--out", folder / "words")
        command("vocab", "assign", folder / "words", clips, "--out", folder / "words.npz")
        items = ["--items", f"frames={folder / 'words.npz'}", "--tokenizer", folder / "words"]
        for part in ("train", "test"):
            command("corpus", "build", given.films / f"{part}.jsonl", *items, "--out", folder / part)
    options = [*SMALL, "--seed", cell["seed"], "--budget", f"{cell['steps']}steps", *sets(VIDEOBERT)]
    command("pretrain", "videobert", *options, "--corpus", folder / "train", "--out", run)
    lines = [json.loads(line) for line in (given.films / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    return hidden_words(run, lines, folder / "words.npz") | losses(run)


def hidden_words(run: Path, lines: Sequence[Mapping[str, str]], words: Path) -> dict[str, float]:
    """The share of hidden ways and colours that are right next to their clip, without one, and next to one of another film."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.filling import fill
    from cloze.decoding.reader_and_head import to_fill

    ready = to_fill(load_checkpoint(run))
    with np.load(words) as file:
        ends, number = file["offsets"], {str(key): place for place, key in enumerate(file["keys"])}
        said = {key: " ".join(f"[frames/{word}]" for word in file["word"][ends[n] : ends[n + 1]]) for key, n in number.items()}
    found: dict[str, float] = {}
    for asked, among in (("way", WAYS), ("colour", COLOURS["en"])):
        hidden = [question(line["text"], among) for line in lines]
        keys = [line["image"] for line in lines]
        answers = [answer for _, answer in hidden]
        for how, step in (("clip", 0), ("none", None), ("another", len(keys) // 2)):
            clips = ["" if step is None else said[keys[(place + step) % len(keys)]] for place in range(len(keys))]
            texts = [f"{text} [>] {clip}" if clip else text for (text, _), clip in zip(hidden, clips, strict=True)]
            filled = fill(ready.reader, ready.head, texts, top=1)
            right = [one.masks[0][0].word == answer for one, answer in zip(filled, answers, strict=True)]
            found[f"{asked} {how}"] = float(np.mean(right))
        found[f"{asked} prior"] = max(answers.count(answer) for answer in set(answers)) / len(answers)
    return found


def question(text: str, among: Sequence[str]) -> tuple[str, str]:
    """A text with its only word of some hidden, and the word."""
    words = text.split()
    (place,) = [place for place, word in enumerate(words) if word in among]
    return " ".join([*words[:place], "[MASK]", *words[place + 1 :]]), words[place]


def drawings_towers(given: argparse.Namespace, cell: Cell, run: Path) -> dict[str, float]:
    """Photographs and drawings with their captions."""
    data = cell["data"]
    source, folder, features = vars(given)[data], given.work / f"{data}-{cell['features']}", given.work / f"{data}.npz"
    if not features.exists():
        command("features", source / "pictures", "--grid", 3, "--with", "random_conv", "--out", features)
    chosen = features
    if cell["features"] == "shuffled" and not (folder / "test").exists():
        with np.load(features) as file:
            arrays = dict(file)
        arrays["features"] = arrays["features"][np.random.default_rng(0).permutation(len(arrays["features"]))]
        chosen = given.work / f"{data}-shuffled.npz"
        np.savez(chosen, **arrays)
    lines = (source / CAPTIONS[data]).read_text(encoding="utf-8").splitlines()
    for part, own in (("test", lines[9::10]), ("train", [line for place, line in enumerate(lines) if place % 10 != 9])):
        (given.work / f"{data}-{part}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")
    stores(folder, chosen, given.work / f"{data}-train.jsonl", given.work / f"{data}-test.jsonl", "--size", 1500)
    return towers(folder, run, cell)


def nlvr_uniter(given: argparse.Namespace, cell: Cell, run: Path) -> dict[str, float]:
    """Sentences that are true or false of a picture, with it and without."""
    store, start, items = given.work / "nlvr", given.work / f"nlvr-start-{cell['seed']}", given.nlvr / "objects.npz"
    if not store.exists():
        command("corpus", "build", given.nlvr / "captions.jsonl", "--items", f"regions={items}", "--size", 400, "--out", store)
    if not (start / "config.json").exists():
        shutil.rmtree(start, ignore_errors=True)
        options = [*SMALL, "--seed", cell["seed"], "--budget", f"{cell['steps']}steps", *sets(UNITER)]
        command("pretrain", "uniter", "--corpus", store, *options, "--out", start)
    return true_or_false(start, given.nlvr, items, cell, run, TUNED)


def true_or_false(
    start: Path, folder: Path, items: Path, cell: Cell, run: Path, values: Mapping[str, Any]
) -> dict[str, float]:
    """Fine-tune a checkpoint on statements about pictures, with these or, for the twin, without."""
    files = [word for part in ("train", "dev", "test") for word in (f"--{part}", folder / f"{part}.jsonl")]
    shows = [] if cell["features"] == "text" else ["--items", items]
    command("finetune", start, *files, *shows, *sets(values), "--seeds", cell["seed"], "--device", "cpu", "--out", run)
    told = json.loads((run / "cloze/task.json").read_text(encoding="utf-8"))
    labels = [json.loads(line)["label"] for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    prior = max(labels.count(label) for label in set(labels)) / len(labels)
    return {"dev accuracy": told["dev"]["accuracy"], "test accuracy": told["test"]["accuracy"], "prior": prior}


def scenes_uniter(given: argparse.Namespace, cell: Cell, run: Path) -> dict[str, float]:
    """Statements about the colour of a thing in a scene."""
    if given.starts is None:
        raise SystemExit("--starts: expected the folder that pictures.py was given as --work.")
    folder, draw = given.work / "statements", np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for part, most in (("train", STATEMENTS + 200), ("test", None)):
        lines = (given.scenes / f"en-{part}.jsonl").read_text(encoding="utf-8").splitlines()[:most]
        made = [json.dumps(statement(json.loads(line), draw)) for line in lines]
        for name, own in {"train": made[:STATEMENTS], "dev": made[STATEMENTS:]}.items() if part == "train" else [("test", made)]:
            (folder / f"{name}.jsonl").write_text("\n".join(own) + "\n", encoding="utf-8")
    start = given.starts / f"uniter-en-pixels-{STARTED}-{cell['seed']}"
    return true_or_false(start, folder, given.starts / "en-pixels/features.npz", cell, run, STATED)


def statement(scene: Mapping[str, Any], draw: np.random.Generator) -> dict[str, str]:
    """A statement on one thing of a scene, with its colour or with another one."""
    phrases = scene["caption"][0].split(" and ")
    thing, _, colour = phrases[int(draw.integers(len(phrases)))].rpartition(" ")
    true = bool(draw.integers(2))
    others = [other for other in COLOURS["en"] if other != colour]
    said = colour if true else others[int(draw.integers(len(others)))]
    return {"image": scene["image"], "text": f"{thing} {said}", "label": "true" if true else "false"}


MEASURES = {
    ("films", "towers"): films_towers, ("films", "videobert"): films_videobert, ("stamps", "towers"): drawings_towers,
    ("nlvr", "uniter"): nlvr_uniter, ("scenes", "uniter"): scenes_uniter,
    ("clipart", "towers"): drawings_towers,
}  # fmt: skip


def table(ledger: Ledger) -> str:
    """The means over seeds, a table for each system."""
    made: list[str] = []
    for data, system in MEASURES:
        kinds = list(dict.fromkeys(c["features"] for c in cells() if (c["data"], c["system"]) == (data, system)))
        runs = {kind: ledger.results(data=data, system=system, features=kind) for kind in kinds}
        known = [name for kind in kinds for run in runs[kind] for name, value in run.items() if isinstance(value, float)]
        rows = [name for name in dict.fromkeys(known) if not name.startswith("held-out")]
        lines = [f"| {data}, {system} | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
        for row in rows:
            values = [[100 * run[row] for run in runs[kind] if row in run] for kind in kinds]
            lines.append(f"| {row} | " + " | ".join(shown(one, len(SEEDS), digits=1) for one in values) + " |")
        made.append("\n".join(lines))
    return "\n\n".join(made)


def main() -> None:
    """Run what the ledger lacks, then print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name in ("films", "stamps", "nlvr", "scenes", "clipart"):
        options.add_argument(f"--{name}", type=Path, help=f"the folder of reproductions/data for {name}")
    options.add_argument("--starts", type=Path, help="for --scenes: the folder that pictures.py was given as --work")
    options.add_argument("--work", type=Path, default=Path("runs/more-pictures"))
    options.add_argument("--only", default="", help="cells such as films-towers-pixels-400-1")
    options.add_argument("--table", action="store_true", help="run nothing")
    given = options.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(RESULTS / "more-pictures.jsonl")
    for cell in () if given.table else cells():
        name = "-".join(str(value) for value in cell.values())
        if ledger.has(cell) or not name.startswith(given.only) or vars(given)[cell["data"]] is None:
            continue
        run = given.work / name
        shutil.rmtree(run, ignore_errors=True)
        ledger.add(cell, MEASURES[cell["data"], cell["system"]](given, cell, run))
    print(table(ledger))


if __name__ == "__main__":
    main()
