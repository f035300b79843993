"""Five claims of the Transformer family at tiny size: order or topic, sharing, fragments, memory, one network for all orders.

    python reproductions/family.py --data ../shared/data --work runs/family --jobs 2
    python reproductions/family.py --work runs/family --table

sop: sentence order (ALBERT) against next sentence (BERT) as second objective. sharing: ALBERT's four ways to share layers.
mass: the length of MASS's fragment. memory: Transformer-XL with and without. unilm: UniLM's mixture against each of its
masks alone, on minimal pairs of grammar (BLiMP). All on English Wikipedia text with one WordPiece vocabulary of 8,000
pieces, three seeds, and within an experiment equally many tokens. A finished run is a line in results/family.jsonl and is not
repeated (ledger.py). What comes out is written to reproductions/family.md, whatever it is.
"""

from __future__ import annotations

import json
import lzma
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from cells import parser, share
from ledger import RESULTS, Ledger

if TYPE_CHECKING:
    from cloze.corpus import Store
    from cloze.decoding.reader import Reader
    from cloze.recipe.recipe import Recipe
    from cloze.training.step import StepModule

SEEDS = (0, 1, 2)
#: So many tokens bring the losses of an experiment about 1.5 nats below those of single tokens.
BUDGETS = {"sop": "10Mtokens", "sharing": "10Mtokens", "mass": "6Mtokens", "memory": "3Mtokens", "unilm": "20Mtokens"}
COMMON = ["training.compile=false", "training.held_out=0.0", "training.keep=1", "training.evaluate_every=0.0",
          "training.checkpoint_every=1000000"]
# With learned positions a small network stays near token frequencies (reproductions/budgets.md), where no claim can be tested.
ROTARY = {"networks.main.transformer.positions": "quick"}
ADAMW = {"training.optimizer": "bert"}  # LAMB's rate is published for batches of 4,096
APART = {"networks.main.transformer.share": "bert"}  # every layer has weights of its own
ROWS = 256  # of the held-out text, at every measurement
PROBE = {"train": 1024, "test": 512}  # pairs a probe is trained and tested on
SHARES, MEMORIES = (0.2, 0.4, 0.6, 0.8), (0, 64, 128, 256)
ORDERS = {"bidirectional": ("open", 0), "left_to_right": ("left_to_right", 2), "right_to_left": ("right_to_left", 3)}
SHOWN = ["exercise.corrupt.mask=0.0", "exercise.corrupt.random=0.0", "exercise.corrupt.keep=1.0"]  # nothing is hidden


@dataclass(frozen=True)
class Variant:
    """A recipe with values set, and what is measured on it; `taken`: sections of other recipes, by path."""

    recipe: str
    set: Sequence[str]
    measure: Callable[[Trained, Choice], dict[str, Any]]
    taken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    store: Path
    work: Path
    tokens: str
    device: str
    pairs: int
    ledger: Ledger

    def budget(self, experiment: str) -> str:
        """The budget of a run: the one of the command line, or that of the experiment."""
        return self.tokens or BUDGETS[experiment]

    def key(self, experiment: str, **more: Any) -> dict[str, Any]:
        """What a run is known by in the ledger."""
        known = {"experiment": experiment, "budget": self.budget(experiment)}
        return known | ({"pairs": self.pairs} if experiment == "unilm" else {}) | more


def experiments() -> dict[str, dict[str, Variant]]:
    """Every variant of every experiment. Batch, rate and warm-up are those of the fit."""
    bert = [*COMMON, "length=64"]
    albert, mass, unilm = bert, [*COMMON, "length=64"], bert
    # The store has BERT's five roles: [SEP] stands behind a document. A row of 65 tokens asks for 64.
    memory = [*COMMON, "length=65", "corpus.separator=\"[SEP]\""]
    entries = ("bidirectional", "sequence_to_sequence", "left_to_right", "right_to_left")
    alone = {name: [f"mixture.{other}.odds=0" for other in entries if other != name] for name in ORDERS}
    return {
        "sop": {
            "order": Variant("bert", [*bert, "exercise.pair.wrong=swapped"], measure_sop, ROTARY),
            "next": Variant("bert", bert, measure_sop, ROTARY),
        },
        "sharing": {
            "none": Variant("albert-base", albert, measure_sharing, ROTARY | ADAMW | APART),
            **{
                part: Variant("albert-base", [*albert, f"network.share.weights={part}"], measure_sharing, ROTARY | ADAMW)
                for part in ("attention", "feed_forward", "all")
            },
        },
        "mass": {f"{share}": Variant("mass", [*mass, f"exercise.mask.rate={share}"], measure_mass) for share in SHARES},
        "memory": {
            f"{size}": Variant("transformer-xl", [*memory, f"network.memory.size={size}"], measure_memory) for size in (64, 0)
        },
        "unilm": {
            "mixture": Variant("unilm", unilm, measure_unilm, ROTARY),
            **{name: Variant("unilm", [*unilm, *odds], measure_unilm, ROTARY) for name, odds in alone.items()},
        },
    }


# ---- one run ----------------------------------------------------------------------------------------------------------


def prepare(chosen: Choice) -> None:
    """Stores with one tokenizer, and the paraphrases; done once."""
    from cloze.corpus import Store
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import trainable

    chosen.work.mkdir(parents=True, exist_ok=True)
    chosen.store.mkdir(parents=True, exist_ok=True)
    text = chosen.data / "text_en_wiki"
    if not Store.is_store(chosen.store / "large"):
        spec = trainable(load_recipe("bert", overrides=["text.tokenizer.size=8000"]).texts["main"])
        tokenizer = train_tokenizer_from([text / "train.txt.xz"], spec, budget_bytes=20_000_000, report=print)
        build_store([text / "train.txt.xz"], tokenizer, chosen.store / "large", report=print)
    if not Store.is_store(chosen.store / "valid"):
        tokenizer = Store.open(chosen.store / "large").tokenizer()
        build_store([text / "valid.txt.xz"], tokenizer, chosen.store / "valid", report=print)
    for part in ("dev", "test"):
        with lzma.open(chosen.data / "pair_pawsx" / f"{part}-en.tsv.xz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        records = [json.dumps({"text": a, "text_b": b, "label": label}) for a, b, label in rows]
        kept = {"paws-train": records[:-400], "paws-dev": records[-400:]} if part == "dev" else {"paws-test": records[:1000]}
        for name, some in kept.items():
            (chosen.work / f"{name}.jsonl").write_text("\n".join(some) + "\n", encoding="utf-8")


def one(chosen: Choice, experiment: str, name: str, seed: int) -> None:
    """One run and what is measured on it, into the ledger; the run itself is not kept."""
    from cloze.runs.run import pretrain

    label = f"{experiment}-{name}-{seed}"
    run = chosen.key(experiment, variant=name, seed=seed)
    started = time.time()
    variant = experiments()[experiment][name]
    recipe = recipe_of(variant, chosen.work, label)
    outcome = pretrain(
        recipe, corpus=chosen.store / "large", out=chosen.work / f"run-{label}", budget=chosen.budget(experiment), size="tiny",
        overrides=list(variant.set), seed=seed, device=chosen.device, fit=True, report=lambda text: None,
    )
    if not outcome.finished:
        raise SystemExit(f"{outcome.folder}: stopped by a signal at step {outcome.step}; the same command goes on.")
    log = [json.loads(line) for line in (outcome.folder / "cloze" / "log.jsonl").read_text().splitlines()]
    trained = [r for r in log if r["event"] == "train"]
    trained_for = time.time() - started
    measures = variant.measure(Trained(outcome.folder, seed, chosen), chosen)
    result = {
        "tokens": trained[-1]["tokens"], "updates": outcome.step, "examples": trained[-1]["examples"],
        "objectives": trained[-1]["objectives"],
        "seconds_pretraining": round(trained_for), "seconds": round(time.time() - started), **measures,
    }
    chosen.ledger.add(run, result, device=chosen.device)
    shutil.rmtree(outcome.folder)
    print(label, f"{trained_for:.0f} s + {time.time() - started - trained_for:.0f} s", json.dumps(measures), flush=True)


def recipe_of(variant: Variant, work: Path, label: str) -> str | Path:
    """The variant's recipe, or a file of it with sections of other recipes: `--set` sets values, never parts."""
    if not variant.taken:
        return variant.recipe
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.load import load_recipe

    whole = load_recipe(variant.recipe).canonical()
    for place, other in variant.taken.items():
        *folders, name = place.split(".")
        into, given = whole, load_recipe(other).canonical()
        for key in folders:
            into, given = into[key], given[key]
        into[name] = given[name]
    path = work / f"recipe-{label}.yaml"
    path.write_text(to_yaml(whole), encoding="utf-8")
    return path


# ---- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A finished run, to be opened with other values or another `recipe` than it was trained with; weights stay what they are.

    Of a run that kept a mean of its weights, the weights are the mean.
    """

    folder: Path
    seed: int
    chosen: Choice
    recipe: Path | None = None

    def open(self, *overrides: str, loaded: bool = True) -> tuple[Recipe, StepModule]:
        """The run's recipe and networks, ready to measure; not `loaded`: as they were before training."""
        from cloze.checkpoint.build import build_step
        from cloze.recipe.load import load_recipe
        from cloze.training.checkpoints.checkpoint import Checkpoints
        from cloze.training.checkpoints.state import load_parameters
        from cloze.training.precision import choose_device

        recipe = load_recipe(self.recipe or self.folder, overrides=overrides)
        step = build_step(recipe, vocab_size=self.valid.vocab_size, seed=self.seed)
        if loaded:
            _, weights, optimizer = Checkpoints(self.folder).load()
            means = {name.removesuffix(":average"): mean for name, mean in optimizer.items() if name.endswith(":average")}
            load_parameters(step, weights | means, where=str(self.folder))
        device = choose_device(self.chosen.device)
        step.to(device).eval()
        step.clock.to(device)
        return recipe, step

    @property
    def valid(self) -> Store:
        """The held-out text."""
        from cloze.corpus import Store

        return Store.open(self.chosen.store / "valid")

    def held_out(self, *overrides: str, rows: int = ROWS) -> dict[str, float]:
        """Mean losses and metrics on the held-out text with values set, by objective: the same rows and draws for all."""
        import torch

        from cloze.batching import Data
        from cloze.training.carry import Carries
        from cloze.training.precision import casting, choose_precision

        recipe, step = self.open(*overrides)
        feeds = feeds_of(recipe, step, self.valid, seed=0)
        data = Data(feeds, batch=recipe.training.batch, held_out=feeds, held_out_rows=rows)
        device = next(step.parameters()).device
        sums: dict[str, float] = defaultdict(float)
        counts: dict[str, float] = defaultdict(float)
        for entry in step.entries:
            carries = Carries()
            for micro in data.held_out(entry):
                step.clock.set(seed=0, step=0, first_row=micro.first_row, share=1.0)
                carry = carries.of(entry, micro.first_row, recipe.training.batch, device) if step.carries else None
                with torch.no_grad(), casting(choose_precision("auto", device), device):
                    losses = step(entry, micro.batch.to(device), carry)
                for name, count in step.count(entry, micro.batch).items():
                    counts[name] += count
                for name, loss in losses.items():
                    sums[name] += float(loss.total)
                    for metric, value in loss.metrics.items():
                        sums[f"{name}.{metric}"] += float(value)
        return {name: value / max(counts[name.partition(".")[0]], 1.0) for name, value in sums.items()}


def feeds_of(recipe: Recipe, step: StepModule, store: Store, *, seed: int) -> Mapping[str, Any]:
    """The examples of every turn over the whole of a store."""
    from cloze.checkpoint.feeds import build_feed, first_length, odds_of, step_feeds
    from cloze.exercises import TokenFacts

    facts, length = TokenFacts.of(store.tokenizer()), first_length(recipe)
    feeds = {
        name: build_feed(recipe, entry, store, step, facts, length=length, seed=seed, held_out_share=0.0)
        for name, entry in recipe.entries.items()
    }
    return step_feeds(recipe, feeds, odds_of(recipe, dict.fromkeys(recipe.sources, store)), seed=seed)


def measure_sop(run: Trained, chosen: Choice) -> dict[str, Any]:
    """Held-out losses; a linear probe of the summary for order and for topic; the network's own head; paraphrases."""
    name = run.folder.name.split("-")[2]
    held = run.held_out()
    found: dict[str, Any] = {"masked_loss": held["token_prediction"], "own_head": held["relation_prediction.correct"]}
    for task, wrong in (("order", "swapped"), ("topic", "random_document")):
        found[task], found[f"{task}_majority"] = probe(run, wrong, loaded=True)
        if name == "order":  # the networks of both variants begin alike
            found[f"{task}_untrained"], _ = probe(run, wrong, loaded=False)
    return found | {"paws": paraphrases(run, chosen)}


def probe(run: Trained, wrong: str, loaded: bool) -> tuple[float, float]:
    """Accuracy of logistic regression on the summaries of unmasked pairs, and of always giving the usual answer."""
    import numpy as np
    import torch

    from cloze.batching.data import to_batch
    from cloze.corpus import Store
    from cloze.training.precision import casting, choose_precision

    recipe, step = run.open(f"exercise.pair.wrong={wrong}", *SHOWN, loaded=loaded)
    device = next(step.parameters()).device
    made: dict[str, tuple[Any, Any]] = {}
    for part, store, seed in (("train", Store.open(run.chosen.store / "large"), 1000), ("test", run.valid, 0)):
        (feed,) = feeds_of(recipe, step, store, seed=seed).values()
        states, answers = [], []
        for first in range(0, PROBE[part], 64):
            (some,) = feed.micro_batches([(0, np.arange(first, first + 64))], [64])
            batch = to_batch(some)
            network: Any = step.networks[recipe.export]
            given = {name: batch[name].to(device) for name in network.takes if name in batch}
            with torch.no_grad(), casting(choose_precision("auto", device), device):
                summary = network(want=frozenset({"summary"}), order="open", **given)["summary"]
            asked = batch["positions/next"]
            states.append(summary[asked.to(device)].float().cpu())
            answers.append(batch["targets/next"].float())
        made[part] = torch.cat(states), torch.cat(answers)
    (x, y), (test_x, test_y) = made["train"], made["test"]
    centre, scale = x.mean(0), x.std(0) + 1e-6
    weight = torch.zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

    def scores(of: torch.Tensor) -> torch.Tensor:
        return (of - centre) / scale @ weight[:-1] + weight[-1]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores(x), y) + 0.01 * weight[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    usual = max(float(test_y.mean()), 1 - float(test_y.mean()))
    return float(((scores(test_x) > 0) == (test_y > 0.5)).float().mean()), usual


def paraphrases(run: Trained, chosen: Choice) -> float:
    """Accuracy on 1,000 test pairs of PAWS-X (English): two epochs of 1,600 pairs of its dev part, 400 choose the epoch."""
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    files = {part: str(chosen.work / f"paws-{part}.jsonl") for part in ("train", "dev", "test")}
    out = run.folder.with_name(f"{run.folder.name}-paws")
    shutil.rmtree(out, ignore_errors=True)
    tuned = finetune(
        run.folder, task="pair_classification", train=[files["train"]], dev=[files["dev"]], out=out, seeds=(run.seed + 1,),
        overrides=["training.epochs=2", "training.batch=32", "training.rate.peak=2e-4", "task.patience=0"], device=chosen.device,
    )
    return float(measure_on_files(tuned, [files["test"]], "test").task_json["test"]["accuracy"])


def measure_sharing(run: Trained, chosen: Choice) -> dict[str, Any]:
    """Held-out losses, and the parameters: of the layers, and of the whole network without heads."""
    recipe, step = run.open()
    network: Any = step.networks[recipe.export]
    layers = {id(p): p.numel() for group in network.depth_groups()[1:] for p in group.parameters()}
    held = run.held_out()
    return {
        "parameters": sum(p.numel() for p in network.parameters()), "layer_parameters": sum(layers.values()),
        "masked_loss": held["token_prediction"], "order_accuracy": held["relation_prediction.correct"],
    }


def measure_mass(run: Trained, chosen: Choice) -> dict[str, Any]:
    """The decoder's held-out loss at the run's own share, and at shares that are the same for all runs."""
    own = run.held_out()["token_prediction"]
    return {"own": own, **{f"at_{s}": run.held_out(f"exercise.mask.rate={s}")["token_prediction"] for s in (0.2, 0.5, 0.8)}}


def measure_memory(run: Trained, chosen: Choice) -> dict[str, Any]:
    """Held-out loss with other lengths of memory put into the trained network; eight long lanes."""
    return {f"memory_{size}": run.held_out(f"network.memory.size={size}",
        "training.batch=8")["token_prediction"] for size in MEMORIES}


def measure_unilm(run: Trained, chosen: Choice) -> dict[str, Any]:
    """Held-out loss and minimal pairs in every order that the network was trained in."""
    from cloze.decoding.scores.minimal_pairs import overall, prefer, read_pairs
    from cloze.training.precision import as_dtype

    pairs = read_pairs(chosen.data / "minpairs_en_blimp", limit=chosen.pairs)
    recipe, step = run.open()
    device = next(step.parameters()).device
    found: dict[str, Any] = {}
    for name, (order, segment) in ORDERS.items():
        if recipe.entries[name].odds == 0:
            continue
        held = run.held_out(*(f"mixture.{other}.odds={1 if other == name else 0}" for other in recipe.entries))
        reader = marked(segment)(
            step.networks[recipe.export], run.valid.tokenizer(), recipe.reading, order, as_dtype("auto", device)
        )
        # Each token is masked in a row of its own. Where only its left (right) can be seen, the sum is the log-probability.
        preferences = prefer(reader, step.objectives["token_prediction"], pairs, method="pseudo_log_likelihood")
        whole = overall(preferences)
        found[name] = {
            "masked_loss": held["token_prediction"], "accuracy": whole.accuracy, "pairs": whole.pairs,
            "files": {p.file: p.right for p in preferences},
        }
    return found


def marked(segment: int) -> type[Reader]:
    """A reader whose every token has this segment id, as the rows of one of UniLM's kinds have."""
    import torch

    from cloze.batch import Batch
    from cloze.decoding.reader import Reader

    class Marked(Reader):
        """See above."""

        def batch(self, rows: Sequence[Any]) -> Batch:
            made = super().batch(rows)
            return Batch({**made, "segments": torch.full_like(made["segments"], segment)}, checked=True)

    return Marked


# ---- tables -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard deviation over seeds; of one seed its value alone."""
    if len(values) < 2:
        return f"{values[0] * scale:.{digits}f}" if values else "–"
    return f"{mean(values) * scale:.{digits}f} ± {stdev(values) * scale:.{digits}f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(chosen: Choice) -> str:
    """All tables of what is finished."""

    def of(experiment: str, variant: str) -> list[dict[str, Any]]:
        return chosen.ledger.results(**chosen.key(experiment, variant=variant))

    def row(experiment: str, variant: str, columns: Sequence[tuple[str, float, int]]) -> list[str]:
        results = of(experiment, variant)
        tokens = f"{mean(r['tokens'] for r in results) / 1e6:.2f} M" if results else "–"
        return [variant, str(len(results)), tokens, *(spread([r[k] for r in results], s, d) for k, s, d in columns)]

    start, parts = ["variant", "seeds", "tokens"], []
    sop = [("masked_loss", 1, 3), ("own_head", 100, 1), ("order", 100, 1), ("topic", 100, 1), ("paws", 100, 1)]
    rows = [row("sop", name, sop) for name in ("order", "next")]
    both = [r for name in ("order", "next") for r in of("sop", name)]
    for title, key in (("the same network, untrained", "untrained"), ("always the usual answer", "majority")):
        probes = [spread([r[f"{task}_{key}"] for r in both if f"{task}_{key}" in r], 100, 1) for task in ("order", "topic")]
        rows.append([title, str(len(of("sop", "order"))), "0", "–", "–", *probes, "–"])
    parts.append(("sop", [*start, "masked-token loss", "own head, own task", "order probe", "topic probe", "PAWS-X test"], rows))
    rows = []
    for mode in ("none", "attention", "feed_forward", "all"):
        sizes = [f"{r['parameters'] / 1e6:.2f} M" for r in of("sharing", mode)[:1]] or ["–"]
        sizes += [f"{r['layer_parameters'] / 1e6:.2f} M" for r in of("sharing", mode)[:1]] or ["–"]
        line = row("sharing", mode, [("masked_loss", 1, 3), ("order_accuracy", 100, 1)])
        rows.append([*line[:3], *sizes, *line[3:]])
    parts.append(("sharing", [*start, "parameters", "of them in layers", "masked-token loss", "order accuracy"], rows))
    columns = [("updates", 1.0, 0), ("own", 1.0, 3), *((f"at_{s}", 1.0, 3) for s in (0.2, 0.5, 0.8))]
    rows = [row("mass", str(share), columns) for share in SHARES]
    parts.append(("mass", [*start, "updates", "loss at its own share", "at 0.2", "at 0.5", "at 0.8"], rows))
    rows = []
    for size in ("64", "0"):
        results = of("memory", size)
        perplexities = [spread([2.718281828459045 ** r[f"memory_{m}"] for r in results], 1.0, 1) for m in MEMORIES]
        rows.append([*row("memory", size, [])[:3], *perplexities])
    parts.append(("memory", [*start, *(f"perplexity, memory {m}" for m in MEMORIES)], rows))
    rows = []
    for variant in ("mixture", *ORDERS):
        for order in ORDERS:
            results = [r for r in of("unilm", variant) if order in r]
            if results:
                line = row("unilm", variant, [])[:3]
                rows.append([*line, order, spread([r[order]["masked_loss"] for r in results], 1.0, 3),
                             spread([r[order]["accuracy"] for r in results], 100, 1)])
    parts.append(("unilm", [*start, "scored in", "masked-token loss", "BLiMP accuracy"], rows))
    return "\n\n".join(f"### {name}\n\n{markdown(head, rows)}" for name, head, rows in parts) + "\n"


def main() -> None:
    """Prepare, run what has not been run, write the tables."""
    options = parser(__doc__, "runs/family", "NAME:VARIANT:SEED")
    options.add_argument("--store", type=Path, help="where the stores `large` and `valid` are, or will be (default: --work)")
    options.add_argument("--ledger", type=Path, default=RESULTS / "family.jsonl", help="finished runs, one a line")
    options.add_argument("--experiments", default=",".join(experiments()), help="those to run")
    options.add_argument("--device", default="cpu")
    options.add_argument("--tokens", default="", help="another budget than that of the experiment")
    options.add_argument("--pairs", type=int, default=50, help="BLiMP pairs per paradigm")
    said = options.parse_args()
    chosen = Choice(said.data, said.store or said.work, said.work, said.tokens, said.device, said.pairs, Ledger(said.ledger))
    if said.only:
        name, variant, seed = said.only.split(":")
        one(chosen, name, variant, int(seed))
        return
    if not said.table:
        wanted = [(name, v, seed) for seed in SEEDS for name in said.experiments.split(",") for v in experiments()[name]]
        waiting = [f"{n}:{v}:{seed}" for n, v, seed in wanted if not chosen.ledger.has(chosen.key(n, variant=v, seed=seed))]
        if waiting:
            prepare(chosen)
        share(waiting, said.jobs)
    print(tables(chosen))


if __name__ == "__main__":
    main()
