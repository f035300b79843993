"""`pretrain`: a recipe, a corpus and a budget in; a run folder that transformers opens out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cloze.assembly.baselines import baselines
from cloze.assembly.beginning import borrowed_parts, load_origins
from cloze.assembly.binding import bound_paths, check_binds, make_tables, open_stores, parse_binds, require_text
from cloze.assembly.build import build_data, build_step, built, first_length, in_turns, odds_of
from cloze.assembly.check import check_recipe
from cloze.assembly.claim import claimed
from cloze.assembly.corpora import open_held_out
from cloze.assembly.fitted import Load, fitted
from cloze.assembly.inputs import require_held_out_known, require_inputs, store_input, weights_input
from cloze.assembly.load import load_recipe, phase_recipes, recipe_names
from cloze.assembly.origins import borrowed, bound_checkpoints, checkpoint_names, never_moves, origins_of, reference_to
from cloze.assembly.publish import Publisher
from cloze.assembly.recipe import PartSpec, Recipe, Stage
from cloze.assembly.room import make_room, require_room
from cloze.assembly.samples import sampler
from cloze.batching import Cursor
from cloze.corpus import Store
from cloze.errors import BudgetError, CheckpointError, CorpusError, RecipeError
from cloze.networks.blocks.dropout import dropouts
from cloze.text import Tokenizer
from cloze.training.budget import Budget
from cloze.training.checkpoint import Checkpoints
from cloze.training.distribution import Strategy
from cloze.training.engine import choose
from cloze.training.loop import Outcome, train
from cloze.training.movement import Unfreezing, unfreezing_of
from cloze.training.phases import Phase, phases_from_shares, sets_dropout
from cloze.training.precision import choose_device
from cloze.training.run import Record, Run, Training, read_run_record, require_recipe
from cloze.training.step import Step

Say = Callable[[str], None]

_FEW_UPDATES = 1000


@dataclass(frozen=True)
class Request:
    """What the command line says of a run, except the recipe, the budget and the folder; see `pretrain`.

    `binds` are paths of sources by name, `checkpoints` the folders of the checkpoints that networks come `from`.
    `load` gives the recipe with further values set, where it is to be fitted to the budget; None: it is trained as it stands.
    """

    corpus: Sequence[str]
    binds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    tokenizer: Path | None = None
    held_out: Sequence[str] | None = None
    text_format: str = "auto"
    seed: int = 0
    device: str = "auto"
    extend: bool = False
    tensorboard: bool = False
    strategy: Strategy = "ddp"
    init: Path | None = None
    report: Say | None = None
    load: Load | None = None
    verbose: bool = False

    @property
    def say(self) -> Say:
        """Where to tell what happens before and after training."""
        return self.report or print


def pretrain(
    recipe: str | Path, *, corpus: Sequence[str | Path] | str | Path, out: Path | str, budget: str | None = None,
    size: str | None = None, overrides: Sequence[str] = (), tokenizer: Path | None = None,
    held_out: Sequence[str] | None = None, init: Path | None = None, text_format: str = "auto",
    binds: Sequence[str] = (), seed: int = 0, device: str = "auto", extend: bool = False,
    with_files: Sequence[Path] = (), tensorboard: bool = False, strategy: Strategy = "ddp", report: Say | None = None,
    as_published: bool = False, verbose: bool = False,
) -> Outcome:
    """Pre-train `recipe` on `corpus` within `budget`, into the folder `out`; resume if it holds this run already.

    `corpus` is text (files, folders, globs, `-`) or one token store; text is built into `out/cloze/corpus`, with
    `tokenizer` or one trained on it. `binds` are `NAME=PATH` for the recipe's other sources and for the checkpoints that its
    networks come from. `held_out` replaces the share of documents that is otherwise held out. `init` begins with the
    weights of a checkpoint. Under torchrun, `strategy` is ddp or fsdp. The stages of a recipe are runs of their own,
    the last in `out`, the others in `out/cloze/stages`.
    Where a budget or a size is given that is not the published one, a recipe of cloze's own is fitted to it (see `fit.py`),
    unless `as_published`. `verbose`: every log event is told. Raises a `ClozeError` for whatever cannot be run, before
    anything is trained.
    """
    paths = [_path(path) for path in ([corpus] if isinstance(corpus, (str, Path)) else corpus)]
    bound = parse_binds(binds)
    candidates = {name: Path(given[0]) for name, given in bound.items()}

    def load(more: Sequence[str]) -> Recipe:
        return load_recipe(
            recipe, size=size, overrides=[*more, *overrides], with_files=[str(path) for path in with_files],
            checkpoints=candidates,
        )

    loaded = load(())
    check_recipe(loaded)
    checkpoints = bound_checkpoints(loaded, bound)
    check_binds(loaded, bound, checkpoint_names(loaded))
    if init is not None and not Path(init).is_dir():  # before any text is read
        raise CheckpointError(f"{init}: there is no such folder. --init is a run folder or a Hugging Face folder to begin with.")
    request = Request(
        paths, {name: given for name, given in bound.items() if name not in checkpoints}, checkpoints, tokenizer, held_out,
        text_format, seed, device, extend, tensorboard, strategy, None if init is None else Path(init), report,
        load if to_be_fitted(recipe, loaded, budget=budget, size=size) and not as_published else None, verbose,
    )
    if init is None and Path(recipe).is_dir():
        request.say(
            f"{recipe}: its recipe is trained from a random start. To begin with its weights and its tokenizer: --init {recipe}"
        )
    with claimed(Path(out)):
        if loaded.stages:
            return _stages(loaded, request, Path(out), budget)
        spend = the_budget(loaded, budget, Path(out), extend=extend)
        return run_stage(loaded, request, Path(out), spend, begin_of(loaded, request, {}))


def _path(given: Any) -> str:
    """A path as text; text that was given in its place is a `CorpusError`."""
    shown = given if isinstance(given, str) else ""
    is_text = len(shown) > 1000 or "\n" in shown or (" " in shown and not re.search(r"[/*\\]|\.\w{1,7}$", shown))
    if not isinstance(given, (str, Path)) or (is_text and not os.path.exists(shown)):
        start = repr(shown[:40] + ("…" if len(shown) > 40 else ""))
        said = f"{start} names no file and looks like text" if shown else f"a {type(given).__name__} is no path"
        raise CorpusError(
            f"corpus: {said}; expected files, folders, patterns such as 'texts/*.txt', or a token store.\n"
            "  To train on texts in memory, write them to a file, a blank line between documents, and give its path."
        )
    return str(given)


def _stages(loaded: Recipe, request: Request, out: Path, budget: str | None) -> Outcome:
    """One run after the other; a run that is finished is passed over, so that the whole resumes where it stopped."""
    first = next(iter(loaded.stages[0].recipe.sources))
    folders = {stage.name: out / "cloze" / "stages" / stage.name for stage in loaded.stages[:-1]} | {loaded.stages[-1].name: out}
    spends = {
        stage.name: the_budget(stage.recipe, None, folders[stage.name], extend=request.extend) if budget is None
        else Budget.parse(budget).part(stage.share)
        for stage in loaded.stages
    }
    for stage in loaded.stages:  # a missing corpus is found out before the first of them is trained
        require_text(bound_paths(stage.recipe, *_bound(stage, request, first)), folders[stage.name])
    done: dict[str, Path] = {}
    outcome: Outcome | None = None
    for stage in loaded.stages:
        last = stage is loaded.stages[-1]
        folder = folders[stage.name]
        corpus, binds = _bound(stage, request, first)
        request.say(f"stage {stage.name}: {spends[stage.name]}")
        outcome = run_stage(
            replace(stage.recipe, stages=loaded.stages) if last else stage.recipe,
            replace(request, corpus=corpus, binds=binds, init=None if done else request.init), folder, spends[stage.name],
            begin_of(stage.recipe, request, done),
        )
        if not outcome.finished:
            break
        done[stage.name] = folder
    assert outcome is not None  # a recipe with stages has at least one
    return outcome


def _bound(stage: Stage, request: Request, first: str) -> tuple[list[str], dict[str, Sequence[str]]]:
    """The paths and the binds that concern the sources of a stage; `--corpus` is that of the first source of all."""
    binds = {name: paths for name, paths in request.binds.items() if name in stage.recipe.sources}
    return (list(request.corpus) if first in stage.recipe.sources else []), binds


def run_stage(
    loaded: Recipe, request: Request, out: Path, spend: Budget, begin: Mapping[str, Path]
) -> Outcome:
    """One run of a checked recipe within a budget; `begin` are the checkpoints whose weights its networks begin with."""
    with claimed(out):
        loaded, overrides = to_budget(loaded, request, out, spend, begin)
        run = _prepare(loaded, request, out, spend, begin)
        run.fitted = overrides
        try:
            outcome = train(run)
        finally:
            run.data.close()
    if outcome.finished and not outcome.compiled and outcome.step < _FEW_UPDATES and loaded.training.batch > 32:
        request.say(few_updates(loaded, outcome))
    return outcome


def to_be_fitted(given: str | Path, recipe: Recipe, *, budget: str | None, size: str | None) -> bool:
    """Whether a size or a budget is given that is not the published one, of a recipe that comes with cloze. The values in a
    file of the user's own, or in a run, are meant as they stand."""
    training = recipe.training
    published = [(training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")]
    same = {str(Budget.parse(f"{amount}{unit}")) for amount, unit in published if amount}
    other = size is not None or (budget is not None and str(Budget.parse(budget)) not in same)
    return other and str(given) in recipe_names()


def to_budget(
    loaded: Recipe, request: Request, out: Path, spend: Budget, begin: Mapping[str, Path]
) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe fitted to the budget, and the values that were set for it. A run that has begun keeps those it began with."""
    if request.load is None:
        return loaded, ()
    old = read_run_record(out)
    if old is not None:
        kept = tuple(old.get("fitted", ()))
        return request.load(kept), kept
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and spend.kind in ("seconds", "flops"):
        request.say(f"{loaded.name}: not fitted to {spend}: each process would measure a speed of its own. Give tokens or steps.")
        return loaded, ()
    made = fitted(
        loaded, request.load, budget=spend, corpus=request.corpus,
        tokenizer=request.tokenizer or next(iter(begin.values()), None),
        prepare=lambda recipe: _prepare(recipe, request, out, spend, begin, probe=True),
    )
    if made.changes:
        request.say(made.table(spend))
    return made.recipe, tuple(made.overrides)


def _prepare(
    loaded: Recipe, request: Request, out: Path, spend: Budget, begin: Mapping[str, Path], *, probe: bool = False
) -> Run:
    """The run, and of its folder no more than the corpus; what cannot be trained is refused here.

    A `probe` is only measured, and prints nothing.
    """
    old = read_run_record(out)
    require_recipe(out, loaded.canonical(), loaded.hash, old)
    phases, say, seed = phases_of(loaded), request.say, request.seed
    place = choose_device(request.device)
    compiled = loaded.training.compile is True or (loaded.training.compile == "auto" and place.type == "cuda")
    named = bound_paths(loaded, request.corpus, request.binds)
    stores, chosen = open_stores(
        loaded, named, out, tokenizer=tokenizer_for(loaded, request, begin), text_format=request.text_format, seed=seed, say=say,
        began=old is not None,
    )
    known = (old or {}).get("inputs")
    if request.held_out:
        require_held_out_known(out, known, request.held_out)
    aside = held_out_store(request, out, chosen, began=old is not None)
    inputs = require_inputs(out, known, inputs_of(loaded, request, named, stores, chosen, aside, begin, known))
    tables = make_tables(loaded, stores)
    given: dict[str, Any] = {"tables": tables, "store": next(iter(stores.values())), "tokenizer": chosen}
    require_room(loaded, vocab_size=chosen.size, tables=tables, device=place)
    step = build_step(loaded, vocab_size=chosen.size, seed=seed, **given)
    phases = with_dropouts(phases, loaded, step, vocab_size=chosen.size, **given)
    load_origins(step, loaded, begin, chosen, resumes=bool(Checkpoints(out).steps()), say=say)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    data = build_data(
        loaded, stores, step, chosen, seed=seed, rank=rank, ranks=ranks, compiled=compiled, tables=tables
    )
    if aside is not None:
        put_aside(data, loaded, aside, chosen, step, seed=seed, compiled=compiled, tables=tables)
    for entry in loaded.turns:  # what cannot be made into examples is found out before anything is written
        data.next(entry, Cursor())
        next(iter(data.held_out(entry)), None)
    run = Run(
        folder=out, step=step, data=data, budget=spend,
        export=Publisher(
            loaded, chosen, tables, languages_of(stores), out.resolve().name,
            {label: reference_to(begin[label], out) for label in borrowed(loaded) - {loaded.export}},
        ),
        borrowed=borrowed_parts(loaded),
        optimizer=built(loaded.training.optimizer), rate=built(loaded.training.rate),
        record=Record(loaded.canonical(), loaded.hash, {"corpus": describe(stores), "tokenizer": chosen.hash}, inputs),
        training=replace(training_of(loaded), tensorboard=request.tensorboard, strategy=request.strategy), phases=phases,
        odds=odds_of(loaded, stores),
        mixing=loaded.mixing, train={name: unfreezing(loaded, name) for name in loaded.networks},
        layerwise=None if loaded.training.layerwise_rates is None else built(loaded.training.layerwise_rates),
        seed=seed, device=request.device, bytes_per_token=bytes_per_token(stores), extend=request.extend,
        samples=sampler(loaded, step, next(iter(stores.values())), chosen, tables=tables, seed=seed), say=request.report,
        verbose=request.verbose,
    )
    run.check()
    if probe:
        return run
    if choose(run, ranks).engine is None:
        run.baselines = baselines(loaded, data, next(iter(stores.values())))
    make_room(run, loaded, ranks=ranks, kept=(old or {}).get("micro_batch"), resumes=old is not None, say=say)
    return run


def unfreezing(recipe: Recipe, label: str) -> Unfreezing:
    """What a network's `train:` says, as the loop asks it; a network that runs without gradient only never moves."""
    train = "none" if never_moves(recipe, label) else recipe.networks[label].train
    return unfreezing_of(built(train) if isinstance(train, PartSpec) else train)


def few_updates(recipe: Recipe, outcome: Outcome) -> str:
    """What to change where a published batch meets a small budget: first progress is made in updates."""
    return (
        f"hint: the budget was spent in {outcome.step:,} updates of {recipe.training.batch} rows. So small a budget teaches\n"
        "  more in smaller batches at a higher rate. Recipes of cloze's own are fitted to it without --as-published;\n"
        "  in your own recipe try: --set training.batch=32 --set training.rate.peak=1e-3"
    )


def the_budget(recipe: Recipe, given: str | None, out: Path, *, extend: bool = False) -> Budget:
    """What was asked for, else that of the run which `out` holds, else what the recipe publishes."""
    if given is not None:
        return Budget.parse(given)
    old = None if extend else read_run_record(out)
    if old is not None:
        return Budget.parse(old["budget"])
    training = recipe.training
    for amount, unit in ((training.steps, "steps"), (training.epochs, "epochs"), (training.tokens, "tokens")):
        if amount:
            return Budget.parse(f"{amount}{unit}")
    raise BudgetError(f"{recipe.name}: names no budget of its own. Give one with --budget, such as 10m or 50Mtokens.")


def begin_of(recipe: Recipe, request: Request, done: Mapping[str, Path]) -> dict[str, Path]:
    """The checkpoint that each network begins with, the exported network first; `done` are the folders of earlier stages.

    `--init` is that of an exported network which comes from nowhere else.
    """
    found = origins_of(recipe, {**request.checkpoints, **done})
    if recipe.export in found:
        if request.init is not None and not done:
            raise RecipeError(
                f"--init {request.init}: the network {recipe.export!r} of {recipe.name} comes from "
                f"{recipe.exported.origin!r} already. Leave --init out."
            )
    elif request.init is not None and not done:
        found = {recipe.export: request.init, **found}
    return dict(sorted(found.items(), key=lambda item: item[0] != recipe.export))


def tokenizer_for(recipe: Recipe, request: Request, begin: Mapping[str, Path]) -> Path | None:
    """The tokenizer that the text is read with: the one given, else that of a checkpoint to begin with.

    None where neither is, and where rows of one vocabulary become rows of another: that is trained on the text.
    """
    if request.tokenizer is not None:
        return request.tokenizer
    is_store = len(request.corpus) == 1 and Store.is_store(request.corpus[0])
    by_word = "main" in recipe.texts and recipe.texts["main"].tokenizer.name == "words"
    for label, folder in begin.items():
        network = recipe.networks[label]
        own = network.origin is None and (by_word or is_store)  # --init, which takes rows over word by word
        if not own and all(part.name != "vocabulary" for part in network.change):
            return folder
    return None


def inputs_of(
    recipe: Recipe, request: Request, named: Mapping[str, Sequence[str]], stores: Mapping[str, Store], tokenizer: Tokenizer,
    aside: Store | None, begin: Mapping[str, Path], known: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a run is started with, as `run.json` keeps it; `known` is what it keeps.

    An earlier stage belongs to the recipe; its weights are kept of a network that the run's own checkpoints do not hold.
    """
    never, init = borrowed(recipe), begin.get(recipe.export) if recipe.exported.origin is None else None
    old = (known or {}).get("networks", {})
    return {
        "corpus": {name: store_input(store, named[name]) for name, store in stores.items()},
        "tokenizer": tokenizer.hash,
        "held_out": None if aside is None else store_input(aside, request.held_out or ()),
        "init": None if init is None else weights_input(init, (known or {}).get("init")),
        "networks": {
            label: {"from": network.origin, **weights_input(begin[label], old.get(label))}
            for label, network in recipe.networks.items()
            if network.origin is not None and (network.origin in request.checkpoints or label in never)
        },
    }


def held_out_store(request: Request, out: Path, tokenizer: Tokenizer, *, began: bool) -> Store | None:
    """The store of the held-out text that was given, built in `out` where it is text; None where none was given."""
    if not request.held_out:
        return None
    return open_held_out(
        request.held_out, out / "cloze" / "corpus" / "held_out", tokenizer, text_format=request.text_format,
        run=out if began else None, report=request.say,
    )


def put_aside(
    data: Any, recipe: Recipe, store: Store, tokenizer: Tokenizer, step: Step, *, seed: int, compiled: bool,
    tables: Mapping[str, Any],
) -> None:
    """Take the held-out examples from a store of their own."""
    from cloze.assembly.build import build_feed
    from cloze.exercises import TokenFacts

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


def with_dropouts(phases: tuple[Phase, ...], recipe: Recipe, step: Step, **given: Any) -> tuple[Phase, ...]:
    """The phases with the rate that each dropout of `step` has in them: that of the recipe as the phase sets it, built without
    weights from what the step was built from. What follows from another value (`attention_dropout`) so follows here, too."""
    if not any(sets_dropout(path) for phase in phases for path in phase.set):
        return phases
    usual, found = dropouts(step), []
    for index, phase in enumerate(phases):
        asked = {path: value for path, value in phase.set.items() if sets_dropout(path)}  # odds and lengths are no dropouts
        for path, value in asked.items():  # each alone: beside one that is followed another would pass unseen
            changed = _in_phase(recipe, index, {path: value})
            means = changed.networks != recipe.networks or changed.entries != recipe.entries
            rates = dropouts(build_step(changed, device="meta", **given))
            if rates.keys() != usual.keys() or (means and rates == usual):
                raise RecipeError(
                    f"schedule[{index}].set: {path}: no layer of {recipe.name} follows this value while it is trained.\n"
                    "  Write it among the part's own arguments."
                )
        whole = build_step(_in_phase(recipe, index, asked), device="meta", **given)
        found.append(replace(phase, rates=dropouts(whole)))
    return tuple(found)


def _in_phase(recipe: Recipe, index: int, values: Mapping[str, Any]) -> Recipe:
    """The recipe as it stands in one phase, with these values set in it and no others."""
    alone = tuple(replace(phase, set=dict(values) if i == index else {}) for i, phase in enumerate(recipe.schedule))
    return phase_recipes(replace(recipe, schedule=alone))[index]


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
