"""What each fast CPU function buys: the share of a training step that it saves, recipe by recipe.

    python benchmarks/fast.py [--recipes bert gpt2] [--size tiny] [--threads 1 2] [--rounds 15] [--only gelu] [--clock cpu]

A process trains a recipe (`--size`, rows of 128 tokens) on one batch, again and again. Every round takes a step with all fast
functions and one without each of them, in random order. A function saves (time without it - time with all) / time with all. The
output gives, in per cent, the median over rounds with its quartiles, and `best`, which compares the fastest step of each kind.
The row `noise` compares two steps with all functions: smaller figures mean nothing. A dash: the recipe does not use the function.
`--clock cpu` measures processor time instead of wall time, for a machine that does other work. With several threads it means
little, because they spin while they wait. Without `--corpus TEXT` the text is Python's documentation.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

RECIPES = ("bert", "gpt2", "t5-small", "bart-base", "xlnet-base", "electra-small", "modern", "roberta")
LONG = ("xlnet-base",)  # keeps its own length
WARM_UP = 3  # rounds that are not counted: compilation, first touches


class Switch:
    """A function that decides whether a fast function is used, replaced by one that can be told to say no."""

    def __init__(self, name: str, owner: Any, attribute: str, no: Any = False) -> None:
        self.name, self.no, self.off, self.used = name, no, False, False
        self.owner, self.attribute = owner, attribute
        self.decide: Callable[..., Any] = getattr(owner, attribute)
        setattr(owner, attribute, self)

    def undo(self) -> None:
        """Put the function back."""
        setattr(self.owner, self.attribute, self.decide)

    def __call__(self, *given: Any, **named: Any) -> Any:
        decided = self.decide(*given, **named)
        self.used |= bool(decided)
        return self.no if self.off else decided


class KernelSwitch(Switch):
    """A kernel of `cloze.kernels`, which is not found while the switch is off."""

    def __init__(self, kernel: str) -> None:
        from cloze import kernels

        super().__init__(f"{kernel} kernel", kernels, "find", None)
        self.kernel = kernel

    def __call__(self, *given: Any, **named: Any) -> Any:
        return super().__call__(*given, **named) if given[0] == self.kernel else self.decide(*given, **named)


def switches() -> list[Switch]:
    """The fast functions, each by the decision that selects it. Undo them in reverse order."""
    from cloze.kernels import KERNELS
    from cloze.networks import encoder_decoder
    from cloze.networks.blocks.attention import AttentionCall
    from cloze.networks.blocks.feed_forward import FeedForwardCall
    from cloze.networks.fast.choose import FAST
    from cloze.training import step

    class Fits:
        """The conditions of the parts in `FAST`, as attributes."""

        def __getattr__(self, name: str) -> Any:
            return FAST[{"attention": AttentionCall, "feed_forward": FeedForwardCall}[name]].fits

        def __setattr__(self, name: str, fits: Any) -> None:
            part = {"attention": AttentionCall, "feed_forward": FeedForwardCall}[name]
            FAST[part] = FAST[part]._replace(fits=fits)

    return [
        Switch("attention", Fits(), "attention"),
        Switch("feed-forward", Fits(), "feed_forward"),
        *(KernelSwitch(name) for name, kernel in KERNELS.items() if kernel.least),  # those that a step may call
        Switch("padding left out", encoder_decoder, "_real", None),
        Switch("read positions only", step, "worth_selecting"),
    ]


def main() -> None:
    """Measure every recipe with every number of threads, each in a process of its own."""
    asked = parse()
    if asked.one:
        print("FOUND", json.dumps(one(asked)))
        return
    records = []
    with tempfile.TemporaryDirectory() as folder:
        work = asked.work or folder
        for recipe in asked.recipes:
            for threads in asked.threads:
                records += in_a_process(recipe, threads, asked, str(work))
    from results import write_results

    write_results("fast", records)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", default="mini", help="size of the networks, such as tiny")
    parser.add_argument("--only", nargs="+", help="names of functions, such as gelu")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--corpus", default="python-docs", help="text or a folder of texts")
    parser.add_argument("--work", help="folder that keeps the token stores")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(recipe: str, threads: int, asked: argparse.Namespace, work: str) -> list[dict[str, Any]]:
    """Measure one recipe in a fresh process; prints and returns a record per function."""
    command = [sys.executable, __file__, "--one", recipe, "--threads", str(threads), "--rounds", str(asked.rounds)]
    command += ["--batch", str(asked.batch), "--size", asked.size, "--clock", asked.clock, "--corpus", asked.corpus]
    command += ["--work", work, *(["--only", *asked.only] if asked.only else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    if not lines:
        raise SystemExit(f"{recipe} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    records: list[dict[str, Any]] = json.loads(lines[-1].removeprefix("FOUND"))
    for record in records:
        print("{recipe:<14} {threads} thread(s) {milliseconds:>7.1f} ms  {function:<22}".format(**record), end="")
        saves = "{saves:>6.1f} %  [{low:.1f}, {high:.1f}]  best {best:.1f} %".format(**record)
        print(saves if record["used"] else "     –", flush=True)
    return records


def one(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a recipe with interleaved steps in this process; a record per function."""
    import torch

    from cloze.runs.run import pretrain
    from cloze.training.loop import Loop

    torch.set_num_threads(asked.threads[0])
    chosen = [each for each in switches() if not asked.only or any(each.name.startswith(name) for name in asked.only)]
    steps = Interleaved(Loop.step, chosen, time.perf_counter if asked.clock == "wall" else time.process_time)
    Loop.step = lambda loop, interrupt: steps.step(loop, interrupt)  # type: ignore[method-assign,assignment]
    store = store_of(asked.one, asked.corpus, Path(asked.work))
    with tempfile.TemporaryDirectory() as out:
        pretrain(
            asked.one, corpus=store, out=out, budget=f"{(asked.rounds + WARM_UP) * steps.steps_per_round}steps",
            overrides=values_of(asked.one, asked.batch), size=asked.size, device="cpu", report=lambda line: None, fit=False,
        )
    return steps.records(asked.one, asked.threads[0])


def store_of(recipe: str, corpus: str, work: Path) -> Path:
    """A token store of the corpus for this recipe, built once per work folder."""
    from cloze.corpus import Store
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import trainable

    store = work / recipe
    if not Store.is_store(store):
        spec = trainable(load_recipe(recipe, overrides=["text.tokenizer.size=8000"]).texts["main"])
        build_store([corpus], train_tokenizer_from([corpus], spec, budget_bytes=10_000_000), store)
    return store


def values_of(recipe: str, batch: int) -> list[str]:
    """What the recipe is changed in: one shape for all, and nothing but steps."""
    from cloze.recipe.load import load_recipe

    lengths = [f"schedule[{k}].set.length=128" for k, phase in enumerate(load_recipe(recipe).schedule) if "length" in phase.set]
    rows = max(batch // 4, 2) if recipe in LONG else batch
    return [
        *([] if recipe in LONG else lengths or ["length=128"]), f"training.batch={rows}", f"training.micro_batch={rows}",
        "text.tokenizer.size=8000", "training.log_every=1000000", "training.evaluate_every=0", "training.held_out=0.0",
        "training.checkpoint_every=1000000", "training.keep=1",
    ]  # fmt: skip


class Interleaved:
    """Steps of a run in rounds, all on the first batch: two steps with all functions, and one without each of them."""

    def __init__(self, step: Callable[[Any, Any], None], chosen: list[Switch], clock: Callable[[], float]) -> None:
        self.take, self.switches, self.clock = step, chosen, clock
        self.steps_per_round = len(chosen) + 2
        self.rounds: list[dict[str, float]] = []
        self.cursors: dict[str, Any] = {}
        self.draw = random.Random(0)

    def step(self, loop: Any, interrupt: Any) -> None:
        """One round."""
        self.cursors = self.cursors or dict(loop.session.run_progress.progress.cursors)
        sides: list[tuple[str, Switch | None]] = [("all", None), ("again", None), *((each.name, each) for each in self.switches)]
        self.draw.shuffle(sides)
        found: dict[str, float] = {}
        for name, switch in sides:
            loop.session.run_progress.progress.cursors = dict(self.cursors)
            if switch is not None:
                switch.off = True
            begun = self.clock()
            self.take(loop, interrupt)
            found[name] = self.clock() - begun
            if switch is not None:
                switch.off = False
        self.rounds.append(found)

    def records(self, recipe: str, threads: int) -> list[dict[str, Any]]:
        """Medians and quartiles of what each function saves, in per cent of a step with all of them."""
        rounds = self.rounds[WARM_UP:]
        usual = statistics.median(found["all"] for found in rounds)
        fastest = {side: min(found[side] for found in rounds) for side in rounds[0]}
        least = min(fastest["all"], fastest["again"])
        made = []
        for name, used in [("noise", True), *((each.name, each.used) for each in self.switches)]:
            side = "again" if name == "noise" else name
            shares = [100 * (found[side] - found["all"]) / found["all"] for found in rounds]
            low, middle, high = statistics.quantiles(shares, n=4)
            made.append({
                "recipe": recipe, "threads": threads, "milliseconds": round(1000 * usual, 1), "function": name, "used": used,
                "saves": round(middle, 1), "low": round(low, 1), "high": round(high, 1),
                "best": round(100 * (fastest[side] / (fastest["all"] if name == "noise" else least) - 1), 1),
                "rounds": len(rounds),
            })
        return made


if __name__ == "__main__":
    main()
