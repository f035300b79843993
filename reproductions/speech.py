"""Whether SpeechBERT finds a word from its recording: the nearest of the words of the training recordings.

    python reproductions/data/recorded_words.py SAID
    python reproductions/speech.py --said SAID --work runs/speech --seed 1
    python reproductions/speech.py --table

Every fifth recording is held out. A BERT of 2 layers and width 128 learns the texts for 200 updates; then the recipe
`speechbert` learns recordings for STEPS updates of 32, and takes 2 updates of its second stage. Of each held-out recorded
word that also occurs in the training recordings, the vector is compared with those of all their words, by absolute
differences. A finished seed is a line in results/speech.jsonl and is not repeated (ledger.py).
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

STEPS = 700
SEEDS = (1, 2, 3)
MEASURES = ("held out", "held out, 5 nearest", "training", "most frequent", "chance")


def command(*words: object) -> None:
    """Run a command of cloze."""
    made = subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"cloze {' '.join(map(str, words))}\n{made.stdout}{made.stderr}")


def lines(path: Path) -> list[dict[str, Any]]:
    """The recordings of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measured(said: Path, work: Path, seed: int) -> dict[str, float]:
    """Train on four of five recordings and find the words of the others, in percent."""
    work.mkdir(parents=True, exist_ok=True)
    every = (said / "said.jsonl").read_text(encoding="utf-8").splitlines()
    parts = {"train": [line for n, line in enumerate(every) if n % 5], "test": every[::5]}
    for name, part in parts.items():
        (work / f"{name}.jsonl").write_text("\n".join(part) + "\n", encoding="utf-8")
    (work / "text.txt").write_text("".join(f"{json.loads(line)['text']}\n" for line in parts["train"]), encoding="utf-8")
    command("corpus", "sounds", said / "said.jsonl", "--out", work / "sounds.npz")
    given = ("--items", f"sounds={work / 'sounds.npz'}", "--picture", "audio", "--size", 1200)
    command("corpus", "build", work / "train.jsonl", *given, "--out", work / "store")
    tiny = ("--size", "tiny", "--seed", seed, "--device", "cpu")
    text = work / "text.txt"
    command("pretrain", "bert", *tiny, "--tokenizer", work / "store/tokenizer", "--corpus", text, "--budget", "200steps", "--out",
            work / "bert")  # fmt: skip
    values = {
        "sounds.training.batch": 32, "sounds.training.steps": STEPS, "sounds.training.rate.linear.peak": 1e-2,
        "sounds.objectives.regress.weight": 0.02, "sounds.networks.main.dropout": 0.0, "joint.training.batch": 16,
        "joint.training.steps": 2,
    }  # fmt: skip
    sets = [word for name, value in values.items() for word in ("--set", f"stages.{name}={value}")]
    command("pretrain", "speechbert", *tiny, "--as-published", "--init", work / "bert", "--corpus", work / "store", "--bind",
            f"text={text}", *sets, "--out", work / "run")  # fmt: skip
    return found(work)


def found(work: Path) -> dict[str, float]:
    """How many words are found, in percent, by the network after the first stage."""
    import numpy as np
    import torch

    from cloze.checkpoint.build import load_checkpoint

    loaded = load_checkpoint(work / "run/cloze/stages/sounds")
    network: Any = loaded.network.eval()
    with np.load(work / "sounds.npz") as file:
        keys, offsets, features = file["keys"].tolist(), file["offsets"], torch.from_numpy(file["features"].astype(np.float32))
    train = lines(work / "train.jsonl")
    counts = Counter(word for one in train for word in one["text"].split())
    types = sorted(counts)
    table = network.embeddings.tokens.weight
    made: dict[str, float] = {"chance": 100 / len(types)}
    with torch.no_grad():
        pieces = [loaded.tokenizer.encode(word).ids for word in types]
        vectors = torch.stack([table[torch.as_tensor(ids).long()].mean(0) for ids in pieces])
        for name, part in (("training", train), ("held out", lines(work / "test.jsonl"))):
            first, five, asked = 0, 0, []
            for one in part:
                place = keys.index(one["audio"])
                states = network.sounds(features[None, offsets[place] : offsets[place + 1]])[0]
                near = torch.cdist(states, vectors, p=1.0).argsort(1)[:, :5].tolist()
                known = [(word, [types[n] for n in best]) for word, best in zip(one["text"].split(), near, strict=True)
                         if word in counts]  # fmt: skip
                first += sum(best[0] == word for word, best in known)
                five += sum(word in best for word, best in known)
                asked += [word for word, _ in known]
            made[name], made[f"{name}, 5 nearest"] = 100 * first / len(asked), 100 * five / len(asked)
    made["most frequent"] = 100 * asked.count(counts.most_common(1)[0][0]) / len(asked)
    made["words"] = len(asked)
    return made


def table(ledger: Ledger) -> str:
    """Mean ± standard deviation over seeds."""
    runs = ledger.results(steps=STEPS)
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
    run = {"system": "speechbert", "steps": STEPS, "seed": given.seed}
    if not given.table and not ledger.has(run):
        if given.said is None:
            raise SystemExit("--said: expected the folder of reproductions/data/recorded_words.py.")
        ledger.add(run, measured(given.said, given.work / str(given.seed), given.seed))
    print(table(ledger))


if __name__ == "__main__":
    main()
