"""Whether SpeechBERT finds a word from its recording: the nearest of the words of the training recordings.

    python reproductions/data/spoken_sentences.py cloze/samples/english.txt SAID --voices 16 --held-out 4
    python reproductions/speech.py --said SAID --work runs/speech --seed 1
    python reproductions/speech.py --table

Every fifth sentence is held out, and so are four of the sixteen voices. A BERT of 2 layers and width 128 learns the training
sentences for 100 updates; then the recipe `speechbert` learns their recordings for STEPS updates of 16, and takes 2 of its
second stage. Of each recorded word of the held-out sentences that also occurs in the training sentences, the vector is compared
with those of all their words, by absolute differences. A finished seed is a line in results/speech.jsonl and is not repeated
(ledger.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ledger import RESULTS, Ledger

STEPS = 400
FRAMES = 15
SEEDS = (1, 2, 3)
PARTS = ("training", "new sentences", "new sentences, new voices")
MEASURES = (*PARTS, *(f"{part}, 5 nearest" for part in PARTS[1:]), *(f"{part}, constant" for part in PARTS[1:]), "chance")


def command(*words: object) -> None:
    """Run a command of cloze."""
    made = subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"cloze {' '.join(map(str, words))}\n{made.stdout}{made.stderr}")


def lines(path: Path) -> list[dict[str, Any]]:
    """The recordings of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def part_of(line: dict[str, Any]) -> str | None:
    """The part that a recording belongs to; None for one that nothing reads, a new voice with a training sentence."""
    if line["line"] % 5:
        return None if line["held_out"] else "training"
    return "new sentences, new voices" if line["held_out"] else "new sentences"


def measured(said: Path, work: Path, seed: int) -> dict[str, float]:
    """Train on the training recordings and find the words of the others, in percent."""
    work.mkdir(parents=True, exist_ok=True)
    sounds = said / "sounds.npz"
    if not sounds.exists():
        command("corpus", "sounds", said / "said.jsonl", "--frames", FRAMES, "--out", sounds)
    parts: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
    for line, text in zip(lines(said / "said.jsonl"), lines(said / "sounds.said.jsonl"), strict=True):
        if (part := part_of(line)) is not None:
            parts[part].append(text)
    (work / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in parts["training"]), encoding="utf-8")
    sentences = list(dict.fromkeys(f"{line['text']} ." for line in parts["training"]))
    documents = ["\n".join(sentences[number : number + 5]) for number in range(0, len(sentences), 5)]
    (work / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    given = ("--items", f"sounds={sounds}", "--picture", "audio", "--size", 1200)
    if not (work / "store").exists():  # the other commands go on where they were
        command("corpus", "build", work / "train.jsonl", *given, "--out", work / "store")
    tiny = ("--size", "tiny", "--seed", seed, "--device", "cpu")
    corpus = work / "text.txt"
    command("pretrain", "bert", *tiny, "--tokenizer", work / "store/tokenizer", "--corpus", corpus, "--budget", "100steps",
            "--out", work / "bert")  # fmt: skip
    values = {
        "stages.sounds.training.batch": 16, "stages.sounds.training.steps": STEPS,
        "stages.sounds.training.rate.linear.peak": 3e-3, "stages.sounds.objectives.reconstruct.weight": 0.1,
        "stages.sounds.objectives.reconstruct.frames": FRAMES, "stages.sounds.networks.main.dropout": 0.0,
        "stages.joint.training.batch": 16, "stages.joint.training.steps": 2, "network.items.frames": FRAMES,
    }  # fmt: skip
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    command("pretrain", "speechbert", *tiny, "--as-published", "--init", work / "bert", "--corpus", work / "store", "--bind",
            f"text={text}", *sets, "--out", work / "run")  # fmt: skip
    return found(work, sounds, parts)


def found(work: Path, sounds: Path, parts: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """How many words are found, in percent, by the network after the first stage."""
    import numpy as np
    import torch

    from cloze.checkpoint.build import load_checkpoint

    loaded = load_checkpoint(work / "run/cloze/stages/sounds")
    network: Any = loaded.network.eval()
    with np.load(sounds) as file:
        keys, offsets, features = file["keys"].tolist(), file["offsets"], torch.from_numpy(file["features"].astype(np.float32))
    place = {key: number for number, key in enumerate(keys)}
    counts = Counter(word for line in parts["training"] for word in line["text"].split())
    types = sorted(counts)
    table = network.embeddings.tokens.weight
    made: dict[str, float] = {"chance": 100 / len(types)}
    with torch.no_grad():
        pieces = [loaded.tokenizer.encode(word).ids for word in types]
        vectors = torch.stack([table[torch.as_tensor(ids).long()].mean(0) for ids in pieces])
        for part, recordings in parts.items():
            first, five, asked = 0, 0, []
            for line in recordings[:: 4 if part == "training" else 1]:
                number = place[line["audio"]]
                states = network.sounds(features[None, offsets[number] : offsets[number + 1]])[0]
                near = torch.cdist(states, vectors, p=1.0).argsort(1)[:, :5].tolist()
                known = [(word, [types[n] for n in best]) for word, best in zip(line["text"].split(), near, strict=True)
                         if word in counts]  # fmt: skip
                first += sum(best[0] == word for word, best in known)
                five += sum(word in best for word, best in known)
                asked += [word for word, _ in known]
            made[part], made[f"{part}, 5 nearest"] = 100 * first / len(asked), 100 * five / len(asked)
            made[f"{part}, constant"] = 100 * asked.count(counts.most_common(1)[0][0]) / len(asked)
            made[f"{part}, words"] = len(asked)
    return made


def table(ledger: Ledger) -> str:
    """Mean ± standard deviation over seeds."""
    runs = ledger.results(steps=STEPS, frames=FRAMES)
    rows = [(name, [run[name] for run in runs]) for name in MEASURES]
    cells = [f"| {name} | {mean(values):.1f} ± {stdev(values) if len(values) > 1 else 0:.1f} |" for name, values in rows]
    return "\n".join(["| measure | % |", "|---|---|", *cells])


def main() -> None:
    """Run one seed, or print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--said", type=Path)
    options.add_argument("--work", type=Path, default=Path("runs/speech"))
    options.add_argument("--seed", type=int, choices=SEEDS, default=1)
    options.add_argument("--table", action="store_true", help="run nothing")
    given = options.parse_args()
    ledger = Ledger(RESULTS / "speech.jsonl")
    run = {"system": "speechbert", "steps": STEPS, "frames": FRAMES, "seed": given.seed}
    if not given.table and not ledger.has(run):
        if given.said is None:
            raise SystemExit("--said: expected the folder of reproductions/data/spoken_sentences.py.")
        ledger.add(run, measured(given.said, given.work / str(given.seed), given.seed))
    print(table(ledger))


if __name__ == "__main__":
    main()
