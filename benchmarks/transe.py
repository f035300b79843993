"""TransE on a knowledge graph: facts per second and filtered hits of cloze and PyKEEN, with equal settings in one session.

    python benchmarks/transe.py --data FOLDER --peer PYTHON [--epochs 3] [--rounds 3] [--quality 100] [--ranks 2000] [--threads 2]

FOLDER holds `train.txt`, `valid.txt` and `test.txt`, head, relation and tail per line. PYTHON is the interpreter of an
environment with PyKEEN (pip install torch==2.13.0 pykeen). Speed: `--rounds` times in turn, each side trains one epoch, and one
epoch and `--epochs` more, in processes of its own; the difference is what these take, without start, reading and compiling.
Quality: each side trains `--quality` epochs, and both tables of vectors are ranked by the same code, that of
`cloze evaluate --task link_prediction`. Ranks: the first `--ranks` test facts are ranked by both sides' own code, with cloze's
vectors of `--quality` epochs in both, of 3 if that is 0. 0 leaves a part out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from results import processor, write_results

SETTINGS = {"width": 200, "norm": 1, "margin": 5.0, "negatives": 25, "batch": 2721, "rate": 1.0}

PEER = '''
import json, sys
import numpy as np, torch
from pykeen.losses import MarginRankingLoss
from pykeen.models import TransE
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import TriplesFactory

asked = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
torch.manual_seed(asked["seed"])
text = open(asked["train"], encoding="utf-8").read().replace("\\r", "")
rows = np.array([line.split("\\t") for line in text.splitlines()])
facts = TriplesFactory.from_labeled_triples(rows)
model = TransE(
    triples_factory=facts, embedding_dim=asked["width"], scoring_fct_norm=asked["norm"], random_seed=asked["seed"],
    loss=MarginRankingLoss(margin=asked["margin"]),
)

loop = SLCWATrainingLoop(
    model=model, triples_factory=facts, optimizer=torch.optim.SGD(model.parameters(), lr=asked["rate"]),
    negative_sampler="bernoulli", negative_sampler_kwargs=dict(num_negs_per_pos=asked["negatives"], filtered=asked["filtered"]),
)
loop.train(
    triples_factory=facts, num_epochs=asked["epochs"], batch_size=asked["batch"], use_tqdm=False, use_tqdm_batch=False,
    num_workers=0, drop_last=False,
)
if asked["out"]:
    entities = sorted(facts.entity_to_id, key=facts.entity_to_id.get)
    relations = sorted(facts.relation_to_id, key=facts.relation_to_id.get)
    np.savez(
        asked["out"], entities=model.entity_representations[0](indices=None).detach().numpy(),
        relations=model.relation_representations[0](indices=None).detach().numpy(),
        names=np.array(entities), kinds=np.array(relations),
    )
'''

RANKS = '''
import json, sys
import numpy as np, torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import TransE
from pykeen.triples import TriplesFactory

asked = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
kept = np.load(asked["vectors"])
entities, relations = ({name: number for number, name in enumerate(kept[part].tolist())} for part in ("names", "kinds"))
known, test = (torch.from_numpy(kept[part]).long() for part in ("known", "test"))
facts = TriplesFactory(known, entity_to_id=entities, relation_to_id=relations)
model = TransE(triples_factory=facts, embedding_dim=kept["entities"].shape[1], scoring_fct_norm=asked["norm"]).eval()
with torch.no_grad():
    for own, part in ((model.entity_representations[0], "entities"), (model.relation_representations[0], "relations")):
        own._embeddings.weight.copy_(torch.from_numpy(kept[part]))
found = RankBasedEvaluator(filtered=True).evaluate(
    model, test, additional_filter_triples=[known], batch_size=64, use_tqdm=False,
)
print(json.dumps({name: found.get_metric(f"both.realistic.{given}") for name, given in (
    ("mrr", "inverse_harmonic_mean_rank"), ("hits@1", "hits_at_1"), ("hits@3", "hits_at_3"), ("hits@10", "hits_at_10"),
)}))
'''


class Done(NamedTuple):
    """What a process wrote, and its seconds, of the wall and of the processor."""

    out: Path
    wall: float
    processor: float


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True, help="the Python interpreter of PyKEEN's environment")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quality", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--filtered", action="store_true", help="PyKEEN also leaves out known facts, which makes it slower")
    parser.add_argument("--dry", action="store_true", help="write no results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloze-transe-") as name:
        found = {**speed(asked, Path(name)), **quality(asked, Path(name)), **ranks(asked, Path(name))}
    print(json.dumps(found, indent=1))
    if not asked.dry:
        write_results("transe", records(asked, found), hardware=processor())


def records(asked: argparse.Namespace, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per side."""
    made = []
    for side in ("cloze", "pykeen"):
        row: dict[str, Any] = {"side": side, **SETTINGS, "threads": asked.threads, "filtered": asked.filtered or side == "cloze"}
        row |= {name: found[name][side] for name in ("facts per second", "facts per CPU-second") if name in found}
        row |= {"epochs": asked.quality, **found["quality"][side]} if "quality" in found else {}
        row |= {f"own {name}": value for name, value in found["ranks"][side].items()} if "ranks" in found else {}
        made.append(row)
    return made


def speed(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Facts per second of the wall and of the processor, medians of interleaved rounds."""
    if not asked.epochs:
        return {}
    facts = sum(1 for line in (asked.data / "train.txt").open(encoding="utf-8") if line.strip())
    rates: dict[str, list[tuple[float, float]]] = {"cloze": [], "pykeen": []}
    for number in range(asked.rounds):
        for side, run in (("cloze", ours), ("pykeen", theirs)):
            few, many = (run(asked, folder / f"{side}{number}-{epochs}", epochs) for epochs in (1, 1 + asked.epochs))
            done = facts * asked.epochs
            rates[side].append((done / (many.wall - few.wall), done / (many.processor - few.processor)))
            wall, busy = rates[side][-1]
            print(f"round {number + 1}: {side} {wall:,.0f} facts/s, {busy:,.0f} per CPU-second", flush=True)
    made = {side: [statistics.median(one[k] for one in some) for k in (0, 1)] for side, some in rates.items()}
    return {
        "facts per second": {side: round(one[0]) for side, one in made.items()},
        "facts per CPU-second": {side: round(one[1]) for side, one in made.items()},
        "ratio": round(made["cloze"][0] / made["pykeen"][0], 2),
        "ratio per CPU-second": round(made["cloze"][1] / made["pykeen"][1], 2),
    }  # fmt: skip


def quality(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Filtered measures of both after `--quality` epochs, and the seconds of training."""
    if not asked.quality:
        return {}
    from cloze.checkpoint.build import load_checkpoint
    from cloze.tasks.intrinsic.link_prediction import VectorScorer, evaluate_links, read_questions, scorer_of

    known = [asked.data / "train.txt", asked.data / "valid.txt"]
    found: dict[str, Any] = {}
    for side, run in (("cloze", ours), ("pykeen", theirs)):
        done = run(asked, folder / f"{side}-quality", asked.quality)
        if side == "cloze":
            scorer: Any = scorer_of(load_checkpoint(done.out))
        else:
            kept = np.load(done.out)
            scorer = object.__new__(VectorScorer)
            scorer.entities, scorer.relations = kept["names"].tolist(), kept["kinds"].tolist()
            scorer.vectors, scorer.steps = (torch.from_numpy(kept[part]) for part in ("entities", "relations"))
            scorer.norm = float(SETTINGS["norm"])
        measured = evaluate_links(scorer, read_questions(scorer, asked.data / "test.txt", known))
        took = {"seconds": round(done.wall, 1), "CPU-seconds": round(done.processor, 1)}
        found[side] = {**took, "facts ranked": measured.examples, **measured.metrics}
        print(f"{side}: {found[side]}", flush=True)
    return {"quality": found}


def ranks(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Filtered measures of the same vectors on the same facts, by the code of either side."""
    if not asked.ranks:
        return {}
    from cloze.checkpoint.build import load_checkpoint
    from cloze.tasks.intrinsic.link_prediction import evaluate_links, read_questions, scorer_of

    out = folder / "cloze-quality"
    scorer: Any = scorer_of(load_checkpoint(out if out.exists() else ours(asked, out, asked.quality or 3).out))
    questions = read_questions(scorer, asked.data / "test.txt", [asked.data / "train.txt", asked.data / "valid.txt"])
    questions = replace(questions, facts=questions.facts[: asked.ranks])
    own = evaluate_links(scorer, questions).metrics
    np.savez(
        folder / "vectors.npz", entities=scorer.vectors.numpy(), relations=scorer.steps.numpy(), names=np.array(scorer.entities),
        kinds=np.array(scorer.relations), known=questions.known, test=questions.facts,
    )
    given = {"threads": asked.threads, "norm": SETTINGS["norm"], "vectors": str(folder / "vectors.npz")}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run([str(asked.peer), "-c", RANKS, json.dumps(given)], env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    theirs_own = json.loads(run.stdout.splitlines()[-1])
    found = {"cloze": {name: own[name] for name in theirs_own}, "pykeen": theirs_own}
    print(f"ranks of {len(questions.facts)} facts: {found}", flush=True)
    return {"ranks": found}


def ours(asked: argparse.Namespace, out: Path, epochs: int) -> Done:
    """Train with cloze in a process of its own."""
    command = [
        sys.executable, "-m", "cloze", "pretrain", "transe", "--corpus", str(asked.data / "train.txt"), "--out", str(out),
        "--budget", f"{epochs}epochs", "--seed", str(asked.seed), "--as-published", "--set", "training.engine=compiled",
    ]  # fmt: skip
    return Done(out, *taken(command, {**os.environ, "OMP_NUM_THREADS": str(asked.threads)}))


def theirs(asked: argparse.Namespace, out: Path, epochs: int) -> Done:
    """Train with PyKEEN in a process of its own."""
    given = {
        **SETTINGS, "train": str(asked.data / "train.txt"), "epochs": epochs, "seed": asked.seed, "threads": asked.threads,
        "filtered": asked.filtered, "out": f"{out}.npz",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(asked.peer), "-c", PEER, json.dumps(given)]
    return Done(Path(f"{out}.npz"), *taken(command, {**environment, "OMP_NUM_THREADS": str(asked.threads)}))


def taken(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The seconds that a process takes, of the wall and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return time.perf_counter() - started, busy


if __name__ == "__main__":
    main()
