"""`pretrain`: a recipe, a corpus and a budget in; a run folder that transformers opens out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.assembly.binding import bound_paths, make_tables, open_stores
from cloze.assembly.build import Loaded, build_data, built, build_step, first_length, in_turns, load_checkpoint, odds_of
from cloze.assembly.check import check_recipe
from cloze.assembly.load import load_recipe
from cloze.assembly.publish import Publisher
from cloze.assembly.recipe import Recipe
from cloze.assembly.samples import sampler
from cloze.batching import Cursor
from cloze.corpus import Store
from cloze.errors import BudgetError, CheckpointError, ClozeError
from cloze.text import Tokenizer
from cloze.training.budget import Budget
from cloze.training.distribution import Strategy
from cloze.training.loop import Outcome, train
from cloze.training.phases import Phase, phases_from_shares
from cloze.training.precision import choose_device
from cloze.training.run import Record, Run, Training
from cloze.training.step import Step

Say = Callable[[str], None]

_FEW_UPDATES = 1000


def pretrain(
    recipe: str | Path, *, corpus: Sequence[str | Path] | str | Path, out: Path | str, budget: str | None = None,
    size: str | None = None, overrides: Sequence[str] = (), tokenizer: Path | None = None,
    held_out: Sequence[str] | None = None, init: Path | None = None, text_format: str = "auto",
    binds: Sequence[str] = (), seed: int = 0, device: str = "auto", extend: bool = False,
    with_files: Sequence[Path] = (), tensorboard: bool = False, strategy: Strategy = "ddp", report: Say | None = None,
) -> Outcome:
    """Pre-train `recipe` on `corpus` within `budget`, into the folder `out`; resume if it holds this run already.

    `corpus` is text (files, folders, globs, `-`) or one token store; text is built into `out/cloze/corpus`, with
    `tokenizer` or one trained on it. `held_out` replaces the share of documents that is otherwise held out. `init` begins
    with the weights of a checkpoint. Under torchrun, `strategy` is ddp or fsdp. Raises a `ClozeError` for whatever cannot
    be run, before anything is trained.
    """
    out, new = Path(out), not Path(out).exists()
    paths = [str(corpus)] if isinstance(corpus, (str, Path)) else [str(path) for path in corpus]
    loaded = load_recipe(recipe, size=size, overrides=overrides, with_files=[str(path) for path in with_files])
    check_recipe(loaded)
    spend, phases = the_budget(loaded, budget), phases_of(loaded)
    place = choose_device(device)
    compiled = loaded.training.compile is True or (loaded.training.compile == "auto" and place.type == "cuda")
    say = report or print
    try:
        named = bound_paths(loaded, paths, binds)
        stores, chosen = open_stores(loaded, named, out, tokenizer=tokenizer, text_format=text_format, seed=seed, say=say)
        tables = make_tables(loaded, stores)
        step = build_step(
            loaded, vocab_size=chosen.size, seed=seed, tables=tables, store=next(iter(stores.values())), tokenizer=chosen
        )
        if init is not None:
            begin_with(step, loaded, init, chosen)
        rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        data = build_data(
            loaded, stores, step, chosen, seed=seed, rank=rank, ranks=ranks, compiled=compiled, tables=tables
        )
        if held_out:
            put_aside(data, loaded, held_out, out, chosen, step, text_format=text_format, seed=seed,
                      compiled=compiled, tables=tables, say=say)
        for entry in loaded.turns:  # what cannot be made into examples is found out before anything is written
            data.next(entry, Cursor())
            next(iter(data.held_out(entry)), None)
    except ClozeError:
        if new:
            shutil.rmtree(out, ignore_errors=True)
        raise
    run = Run(
        folder=out, step=step, data=data, export=Publisher(loaded, chosen, tables, languages_of(stores)), budget=spend,
        optimizer=built(loaded.training.optimizer), rate=built(loaded.training.rate),
        record=Record(loaded.canonical(), loaded.hash, {"corpus": describe(stores), "tokenizer": chosen.hash}),
        training=replace(training_of(loaded), tensorboard=tensorboard, strategy=strategy), phases=phases,
        odds=odds_of(loaded, stores),
        mixing=loaded.mixing,
        seed=seed, device=device, bytes_per_token=bytes_per_token(stores), extend=extend,
        samples=sampler(loaded, step, next(iter(stores.values())), chosen, tables=tables, seed=seed), say=report,
    )
    try:
        outcome = train(run)
    finally:
        data.close()
    if outcome.finished and outcome.step < _FEW_UPDATES and loaded.training.batch > 32:
        say(few_updates(loaded, outcome))
    return outcome


def few_updates(recipe: Recipe, outcome: Outcome) -> str:
    """What to change where a published batch meets a small budget: first progress is made in updates."""
    return (
        f"hint: the budget was spent in {outcome.step:,} updates of {recipe.training.batch} rows. So small a budget teaches\n"
        "  more in smaller batches at a higher rate, for example: --set training.batch=32 --set training.rate.peak=1e-3"
    )


def the_budget(recipe: Recipe, given: str | None) -> Budget:
    """What was asked for, else what the recipe publishes."""
    if given is not None:
        return Budget.parse(given)
    training = recipe.training
    for amount, unit in ((training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")):
        if amount:
            return Budget.parse(f"{amount}{unit}")
    raise BudgetError(f"{recipe.name}: names no budget of its own. Give one with --budget, such as 10m or 50Mtokens.")


def begin_with(step: Step, recipe: Recipe, folder: Path, tokenizer: Tokenizer) -> None:
    """Load the weights of a checkpoint into the exported network, and into its heads where they have the same shape."""
    given: Loaded = load_checkpoint(folder)
    if given.tokenizer.hash != tokenizer.hash:
        raise CheckpointError(
            f"{folder}: has a tokenizer of {given.tokenizer.size} ids, the corpus one of {tokenizer.size}, and they differ.\n"
            f"  Build the corpus with the checkpoint's: --tokenizer {folder}"
        )
    network = step.networks[recipe.export]
    mine, theirs = network.state_dict(), given.network.state_dict()
    wrong = [name for name in mine if name not in theirs or mine[name].shape != theirs[name].shape]
    if wrong:
        raise CheckpointError(
            f"{folder}: does not fit the network {recipe.export!r} of {recipe.name}: {wrong[0]} is "
            f"{tuple(theirs[wrong[0]].shape) if wrong[0] in theirs else 'missing'} there and {tuple(mine[wrong[0]].shape)} here."
        )
    network.load_state_dict(theirs)
    for name, head in given.heads.items():
        own = dict(step.objectives).get(name)
        if own is not None and {k: v.shape for k, v in own.state_dict().items()} == {
            k: v.shape for k, v in head.state_dict().items()
        }:
            own.load_state_dict(head.state_dict())


def put_aside(
    data: Any, recipe: Recipe, paths: Sequence[str], out: Path, tokenizer: Tokenizer, step: Step, *, text_format: str,
    seed: int, compiled: bool, tables: Mapping[str, Any], say: Say,
) -> None:
    """Take the held-out examples from a text or store of their own."""
    from cloze.assembly.build import build_feed
    from cloze.corpus.build import build_store
    from cloze.exercises import TokenFacts

    if len(paths) == 1 and Store.is_store(paths[0]):
        store = Store.open(paths[0])
        store.require_tokenizer(tokenizer.hash, whose="the training corpus")
    else:
        folder = out / "cloze" / "corpus" / "held_out" / "store"
        store = Store.open(folder) if Store.is_store(folder) else build_store(
            list(paths), tokenizer, folder, format=text_format, report=say
        )
    facts = TokenFacts.of(tokenizer)
    feeds = {
        name: build_feed(
            recipe, entry, store, step, facts, length=first_length(recipe), seed=seed, compiled=compiled, share=0.0,
            tables=tables,
        )
        for name, entry in recipe.entries.items()
    }
    data.held_out_feeds = dict(in_turns(recipe, feeds, odds_of(recipe, dict.fromkeys(recipe.sources, store)), seed=seed))


def training_of(recipe: Recipe) -> Training:
    """The values of `training:` that the loop reads."""
    t = recipe.training
    return Training(
        clip=t.clip, precision=t.precision, compile=t.compile, evaluate_every=t.evaluate_every,
        checkpoint_every=t.checkpoint_every, keep=t.keep, keep_steps=tuple(t.keep_steps), log_every=t.log_every,
        nominal_steps=t.steps, divide=t.divide, engine=t.engine,
    )


def phases_of(recipe: Recipe) -> tuple[Phase, ...]:
    """The schedule as shares of the budget. Phases in steps or epochs are taken in proportion to each other."""
    if not recipe.schedule:
        return ()
    sizes = [(phase.share or phase.steps or phase.epochs or 0.0, phase.set) for phase in recipe.schedule]
    return phases_from_shares(sizes)


def describe(stores: dict[str, Store]) -> dict[str, Any]:
    """What a run folder records of its corpora."""
    return {
        name: {"documents": store.documents, "sentences": store.sentences, "tokens": len(store.tokens)}
        for name, store in stores.items()
    }


def languages_of(stores: dict[str, Store]) -> tuple[str, ...]:
    """The names of the languages of the text, by number."""
    return next((store.languages for store in stores.values() if store.languages), ())


def bytes_per_token(stores: dict[str, Store]) -> float | None:
    """Bytes of text behind a token, over all corpora that know their size."""
    texts = [(store.report.get("bytes"), len(store.tokens)) for store in stores.values()]
    known = [(size, tokens) for size, tokens in texts if size and tokens]
    return sum(size for size, _ in known) / sum(tokens for _, tokens in known) if known else None
