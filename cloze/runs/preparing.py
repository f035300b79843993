"""Prepares a `Run` from a recipe and a request, and the plan for its budget.

`prepare` opens or builds the stores, builds the step and the data (`checkpoint/build.py`), and refuses what cannot be trained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cloze.batching import Cursor, Feed
from cloze.budget.baselines import baselines
from cloze.budget.fitted import Fitted
from cloze.budget.micro_batch import choose_micro_batch, require_memory, require_one_process, why_no_forecast
from cloze.checkpoint.borrowed import reference_to
from cloze.checkpoint.build import build_part, build_step
from cloze.checkpoint.feeds import build_data, first_length, odds_of, step_feeds
from cloze.checkpoint.inputs import require_held_out_known, require_inputs, store_input, table_inputs, weights_input
from cloze.checkpoint.new_heads import scale_heads
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.warm_start import borrowed_parts, load_origins
from cloze.corpus import Store
from cloze.corpus.checks.held_out_copies import count_copies
from cloze.corpus.shards.verifying import Verification
from cloze.corpus.sources.bound import split_documents
from cloze.errors import Say
from cloze.hub import name_of
from cloze.processes import processes, rank
from cloze.recipe.builders import with_label_names
from cloze.recipe.changes import read_by_export
from cloze.recipe.origins import borrowed
from cloze.recipe.parts import class_of, engines
from cloze.recipe.recipe import NetworkSpec, Recipe
from cloze.recipe.user_files import changed_since, files_of, record_of
from cloze.runs.binds import bound_paths, languages_of, make_tables, open_stores
from cloze.runs.corpora import naming_texts, open_held_out, open_source_store
from cloze.runs.data_facts import with_data_facts
from cloze.runs.frozen_embeddings import with_learning_embeddings
from cloze.runs.frozen_start import fit_heads
from cloze.runs.out_folder import run_name
from cloze.runs.phasing import phases_of, positions_by_phase, unfreezing, with_dropouts, with_positions
from cloze.runs.plan import Plan, made_later, prospects_of, ways_out
from cloze.runs.recipe_tasks import selection_of, task_json_entries, with_example_facts
from cloze.runs.request import Request, tokenizer_for
from cloze.runs.samples import sampler
from cloze.runs.table_start import described_starts, start_tables
from cloze.runs.unanswered import without_unanswered
from cloze.text import Tokenizer
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.engine import choose
from cloze.training.forecasting.forecast import Forecast, Trials
from cloze.training.precision import choose_device
from cloze.training.run import Run, RunIdentity, Training, read_run_record, require_length, require_recipe, require_seed
from cloze.training.schedule.budget import Budget
from cloze.training.selection import Selection
from cloze.training.step import StepModule

MAX_SETUP_SHARE = 0.5  # at most this share of a budget in seconds is charged for what precedes the first step


def prepare(
    recipe: Recipe, request: Request, out: Path, budget: Budget, origins: Mapping[str, Path], *, dry_run: bool = False,
    fitted: Fitted | None = None, trials: Trials | None = None,
) -> tuple[Run, dict[str, Store], dict[str, Store]]:
    """The run, its stores and those put aside to measure it. Writes only the corpus into the run folder; raises a `ClozeError` if
    the recipe cannot be trained.

    `out` is the run folder, `origins` the folder of the checkpoint that each network starts from, by network.
    In a `dry_run`, the run is only measured and prints nothing. `fitted` is the fitted recipe, `trials` holds the measurements
    that fitted it.
    """
    old = _require_recipe(recipe, request, out)
    recipe, run, stores, dev_stores = _build_run(recipe, request, out, budget, origins, old, dry_run=dry_run, fitted=fitted)
    if not dry_run:
        if rank() == 0:
            run.verification = Verification([*stores.values(), *dev_stores.values()])
            if old is None:
                for line in copied(recipe, stores, dev_stores):
                    request.say(line)
        _choose_rows_and_forecast(recipe, request, run, stores, old, fitted=fitted, trials=trials)
    return run, stores, dev_stores


def _build_run(
    recipe: Recipe, request: Request, out: Path, budget: Budget, origins: Mapping[str, Path], old: Mapping[str, Any] | None, *,
    dry_run: bool, fitted: Fitted | None,
) -> tuple[Recipe, Run, dict[str, Store], dict[str, Store]]:
    """The recipe with what its text determines, the run with weights, heads and data, its stores, and its stores of dev rows.

    `old` is the record of the run in `out`.
    """
    options = request.options
    say, seed, ranks = request.say, options.seed, processes()
    device = choose_device(options.device)
    compiled = recipe.training.compile is True or (recipe.training.compile == "auto" and device.type == "cuda")
    stores, dev_stores, tokenizer, identity = open_inputs(recipe, request, out, origins, old)
    if request.fit:
        say_fit: Say = (lambda line: None) if dry_run else say
        recipe = with_learning_embeddings(without_unanswered(recipe, stores, say_fit), origins, tokenizer, say_fit)
    recipe = with_data_facts(recipe, stores)
    task_json = None if recipe.task is None else task_json_entries(recipe, stores)
    tables = make_tables(recipe, stores, origins)
    arguments: dict[str, Any] = {"tables": tables, "store": next(iter(stores.values())), "tokenizer": tokenizer}
    require_memory(recipe, vocab_size=tokenizer.size, tables=tables, device=device)
    step = build_step(recipe, vocab_size=tokenizer.size, seed=seed, to_be_loaded=frozenset(origins), **arguments)
    require_one_process(recipe, step, ranks, options.strategy)
    phases = with_positions(with_dropouts(phases_of(recipe), recipe, step, vocab_size=tokenizer.size, **arguments), recipe)

    resumes = bool(Checkpoints(out).steps())
    heads_to_start = load_origins(
        step, recipe, origins, tokenizer, resumes=resumes, say=say, tables=tables,
        build_random=partial(build_step, recipe, vocab_size=tokenizer.size, seed=seed, **arguments),
        class_names=(task_json or {}).get("labels") or (),
    )
    setup_seconds = float((old or {}).get("setup_seconds", 0.0))
    if not resumes and not dry_run:
        setup_seconds = start_tables(step, recipe, stores, dev_stores=dev_stores, origins=origins, seed=seed, say=say)
    if budget.kind == "seconds" and ranks == 1:  # several processes would have to agree on it
        budget = replace(budget, setup_seconds=min(setup_seconds, budget.amount * MAX_SETUP_SHARE))

    build = partial(_build_data, recipe, stores, dev_stores, step, tokenizer, compiled=compiled, tables=tables)
    with naming_texts(_texts_of_stores(recipe, request, stores, dev_stores, out)):
        data = build(seed=seed, process=rank(), ranks=ranks)
        for entry in recipe.step_entries:  # fails before anything is written if no examples can be made
            data.next(entry, Cursor())
            next(iter(data.held_out(entry)), None)
    new_heads = recipe.training.new_heads
    if new_heads == "scaled" and not dry_run:
        scale_heads(step, data, heads_to_start)

    loss_name = recipe.training.keep_best
    selection = None if loss_name is None else Selection(measure=None, metric=loss_name, higher_is_better=False)
    if task_json is not None and dev_stores:
        task_json = with_example_facts(recipe, task_json, stores, dev_stores, _max_tokens(data))
        selection = selection_of(recipe, step, tokenizer, stores, dev_stores, task_json, out, tables=tables)
    if new_heads == "fitted" and not dry_run:  # every process fits them to the same rows
        measure = None if selection is None else selection.measure
        start = fit_heads(step, build(seed=0, process=0, ranks=1), heads_to_start, device=device, say=say, measure=measure)
        selection = None if selection is None else replace(selection, start=start)
    publisher = publisher_of(recipe, out, origins, stores, tokenizer, tables, task_json)
    run = Run(
        folder=out, step=step, data=data, budget=budget, export=publisher,
        exports=[replace(publisher, positions=positions) for positions in positions_by_phase(recipe)],
        borrowed=borrowed_parts(recipe),
        optimizer=build_part(recipe.training.optimizer), rate=build_part(recipe.training.rate),
        identity=identity,
        selection=selection,
        training=replace(
            training_of(recipe), track=tuple(options.track), strategy=options.strategy, shard=options.shard
        ),
        phases=phases, odds=odds_of(recipe, stores),
        mixing=recipe.mixing, train={name: unfreezing(recipe, name) for name in recipe.networks},
        layerwise=None if recipe.training.layerwise_rates is None else build_part(recipe.training.layerwise_rates),
        seed=seed, device=options.device, bytes_per_token=bytes_per_token(stores), extend=options.extend,
        samples=sampler(recipe, step, next(iter(stores.values())), tokenizer, tables=tables, seed=seed), say=options.report,
        verbose=options.verbose, command=request.command, fitted=() if fitted is None else fitted.overrides, until=options.until,
        mirror=options.mirror, setup_seconds=setup_seconds,
    )
    run.check()
    return recipe, run, stores, dev_stores


def _choose_rows_and_forecast(
    recipe: Recipe, request: Request, run: Run, stores: Mapping[str, Store], old: Mapping[str, Any] | None, *,
    fitted: Fitted | None, trials: Trials | None,
) -> None:
    """Choose how many rows are read at once, set `run.baselines`, and print the forecast and reference losses of a new run."""
    ranks = processes()
    forecast = choose_micro_batch(
        run, recipe, ranks=ranks, rows=(old or {}).get("micro_batch"), resumes=old is not None, say=request.say, trials=trials,
        pace=None if fitted is None else fitted.pace,
    )
    plan = plan_of(recipe, request, run, stores, fitted, forecast, ranks=ranks)
    if old is None and rank() == 0 and plan.outlook():
        request.say("\n".join(["reference losses, before the first step:", *plan.outlook()]))


def copied(recipe: Recipe, stores: Mapping[str, Store], dev_stores: Mapping[str, Store]) -> Iterator[str]:
    """A note for each source of running text whose held-out documents are trained on as well; of shards, one is looked at."""
    for name, store in stores.items():
        sample, apart = store.sample, dev_stores.get(name)
        if type(sample) is not Store or sample.pairs:
            continue
        parts = split_documents(sample.documents, 0.0 if apart is not None else recipe.training.held_out)
        held_out = sample if apart is None else apart.sample
        held_documents = parts["held_out"] if apart is None else np.arange(held_out.documents)
        if (note := count_copies(held_out, held_documents, sample, parts["train"]).note) is not None:
            yield note


def _build_data(
    recipe: Recipe, stores: Mapping[str, Store], dev_stores: Mapping[str, Store], step: StepModule, tokenizer: Tokenizer, *,
    seed: int, process: int, ranks: int, compiled: bool, tables: Mapping[str, Any],
) -> Any:
    """The data of one of several processes, with held-out examples from `dev_stores` where there are any."""
    data = build_data(recipe, stores, step, tokenizer, seed=seed, rank=process, ranks=ranks, compiled=compiled, tables=tables)
    if dev_stores:
        use_dev_stores(data, recipe, dev_stores, tokenizer, step, seed=seed, compiled=compiled, tables=tables)
    return data


def _max_tokens(data: Any) -> dict[str, Any]:
    """The tokens of text that a row of every entry can hold, and those of each text if texts are shown apart."""
    exercises = {name: feed.exercise for name, feed in data.feeds.items() if isinstance(feed, Feed)}
    return {name: (exercise.row_max_tokens, exercise.text_max_tokens) for name, exercise in exercises.items()}


def require_same(recipe: Recipe, request: Request, out: Path, origins: Mapping[str, Path]) -> None:
    """Refuse a request that does not ask for the run in `out`: another recipe, seed, length, text or other weights."""
    old = _require_recipe(recipe, request, out)
    require_seed(out, request.options.seed, old)
    open_inputs(recipe, request, out, origins, old)


def _require_recipe(recipe: Recipe, request: Request, out: Path) -> dict[str, Any] | None:
    """The record of the run in `out`, if there is one; refuses one of another recipe, or with another length."""
    old = read_run_record(out)
    require_recipe(out, recipe.canonical(), recipe.hash, old)
    if request.options.budget is None and not request.options.extend:
        require_length(out, recipe.canonical(), old)
    return old


class RunInputs(NamedTuple):
    """What a run reads: the stores that it trains on and those put aside, its tokenizer, and the identity of the run."""

    stores: dict[str, Store]
    dev_stores: dict[str, Store]
    tokenizer: Tokenizer
    identity: RunIdentity


def open_inputs(
    recipe: Recipe, request: Request, out: Path, origins: Mapping[str, Path], old: Mapping[str, Any] | None
) -> RunInputs:
    """The stores and the tokenizer of a run, which are those of its record `old` if it resumes; or an error says what differs."""
    options = request.options
    paths = bound_paths(recipe, request.corpus, request.binds)
    stores, tokenizer = open_stores(
        recipe, paths, out, tokenizer=tokenizer_for(recipe, request, origins), text_format=options.text_format, seed=options.seed,
        say=request.say, began=old is not None,
    )
    old_inputs = (old or {}).get("inputs")
    if options.held_out:
        require_held_out_known(out, old_inputs, options.held_out)
    dev_stores = open_dev_stores(request, recipe, stores, out, tokenizer, began=old is not None)
    new_inputs = inputs_of(recipe, request, paths, stores, tokenizer, dev_stores, origins, old_inputs)
    inputs = require_inputs(out, old_inputs, new_inputs)
    code = files_of(recipe)
    for name in changed_since(old_inputs, code):
        request.say(f"{code[name].path}: has changed since the run began; the run resumes with the file as it is now.")
    data = {"corpus": describe(stores), "tokenizer": tokenizer.hash}
    return RunInputs(stores, dev_stores, tokenizer, RunIdentity(recipe.canonical(), recipe.hash, data, inputs))


def publisher_of(
    recipe: Recipe, out: Path, origins: Mapping[str, Path], stores: Mapping[str, Store], tokenizer: Tokenizer,
    tables: Mapping[str, Any], task_json: Mapping[str, Any] | None,
) -> Publisher:
    """What writes the folders of a run; `task_json` holds the entries of task.json, None without a task."""
    borrowed_names, read = borrowed(recipe), read_by_export(recipe)
    return Publisher(
        recipe, tokenizer, tables, languages_of(stores), run_name=run_name(out), home=out, code=files_of(recipe),
        task=task_json, labels=None if task_json is None else task_json.get("labels"),
        label_names={layer: store.label_names(layer) for store in stores.values() for layer in store.labels},
        references={name: reference_to(origins[name], out) for name in borrowed_names - {recipe.export, *read}},
        needed={network_name: origins[network_name] for network_name in read if network_name in borrowed_names},
        bases={network_name: name for network_name, folder in origins.items() if (name := name_of(folder)) is not None},
    )


def plan_of(
    recipe: Recipe, request: Request, run: Run, stores: Mapping[str, Store], fitted: Fitted | None, forecast: Forecast | None, *,
    ranks: int = 1,
) -> Plan:
    """The plan for the budget of a run. Sets `run.baselines`, which the loop writes into the log and compares losses with."""
    store, why = next(iter(stores.values())), why_no_forecast(run, ranks)
    data: Any = run.data
    unheld = recipe.training.held_out > 0 and not any(next(iter(data.held_out(entry)), None) for entry in recipe.step_entries)
    if choose(run, engines(), ranks).engine is None:
        run.baselines = baselines(recipe, data, store, run.step)
    plan = Plan(
        recipe, run.budget, fitted, forecast, why, sum(corpus.size for corpus in stores.values()), (),
        stage=request.options.stage, held_out=not unheld or recipe.task is not None,
        starts=tuple(described_starts(recipe, stores, origins={name or recipe.export for name in request.init})),
    )
    tokens = plan.worth if forecast is not None else fitted.tokens if fitted is not None else None
    tokens = None if tokens is None else plan.fresh(tokens)
    plan = replace(plan, made_later=made_later(recipe), prospects=tuple(prospects_of(
        recipe, run, tokens, vocab_size=store.vocab_size, continued=request.starts_from_stage or request.continues(recipe)
    )))
    if not plan.nothing or recipe.task is not None:  # labelled text has no published size to compare with
        return plan
    bytes_ = sum(corpus.report.get("bytes") or 0 for corpus in stores.values())
    return replace(plan, ways=ways_out(plan, request.options, vocab_size=store.vocab_size, text_bytes=bytes_ or None))


def inputs_of(
    recipe: Recipe, request: Request, texts: Mapping[str, Sequence[str]], stores: Mapping[str, Store], tokenizer: Tokenizer,
    dev_stores: Mapping[str, Store], origins: Mapping[str, Path], old_inputs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The inputs of a run as `run.json` records them. `old_inputs` are those that it already holds; None: a new run.

    An earlier stage is part of the recipe, so its weights are recorded only for networks that the run's own checkpoints do not
    hold.
    """
    borrowed_names, init = borrowed(recipe), origins.get(recipe.export) if recipe.exported.origin is None else None
    old = (old_inputs or {}).get("networks", {})
    return {
        "corpus": {name: store_input(store, texts[name]) for name, store in stores.items()},
        "tokenizer": tokenizer.hash,
        "held_out": store_input(next(iter(dev_stores.values())), request.options.held_out) if request.options.held_out else None,
        "dev": {name: store_input(dev_stores[name], paths) for name, paths in request.dev.items() if name in dev_stores},
        "init": None if init is None else weights_input(init, (old_inputs or {}).get("init")),
        "networks": {
            network_name: {"from": network.origin, **weights_input(origins[network_name], old.get(network_name))}
            for network_name, network in recipe.networks.items()
            if _starts_elsewhere(network_name, network, recipe, request, origins, borrowed_names)
        },
        "tables": table_inputs(
            {name: spec.arguments for name, spec in recipe.tables.items()}, (old_inputs or {}).get("tables", {})
        ),
        **record_of(files_of(recipe)),
    }


def _starts_elsewhere(
    network_name: str, network: NetworkSpec, recipe: Recipe, request: Request, origins: Mapping[str, Path],
    borrowed_names: Collection[str],
) -> bool:
    """Whether a network starts from a checkpoint that is recorded by its name; the exported one that of `--init` is `init`."""
    if network.origin is None:
        return network_name in origins and network_name != recipe.export
    return network.origin in request.checkpoints or network_name in borrowed_names


def open_dev_stores(
    request: Request, recipe: Recipe, stores: Mapping[str, Store], out: Path, tokenizer: Tokenizer, *, began: bool
) -> dict[str, Store]:
    """The stores of text that is not trained on, the dev sets or held-out text that the user gave, by source; text is built into
    `out`."""
    options = request.options
    folder, run = out / "cloze" / "corpus", out if began else None
    first = next(iter(stores))
    building_sources = {name for name, spec in recipe.sources.items() if class_of("source", spec.name).builds_store}
    dev = {first: options.held_out, **request.dev} if options.held_out and first in building_sources else request.dev
    if options.held_out and first not in building_sources:
        store = open_held_out(
            recipe, options.held_out, folder / "held_out", tokenizer, text_format=options.text_format, run=run, report=request.say
        )
        return {name: store for name in recipe.sources if name not in building_sources}
    return {
        name: open_source_store(
            recipe.sources[name], dev[name], folder / "dev" / name, tokenizer=tokenizer, base=store, run=run,
            report=request.say,
        )[0]
        for name, store in stores.items() if name in dev
    }


def _texts_of_stores(
    recipe: Recipe, request: Request, stores: Mapping[str, Store], dev_stores: Mapping[str, Store], out: Path
) -> dict[Path, Sequence[str]]:
    """The texts that the user gave, by the folders of the stores that the run in `out` has built of them."""
    paths, held_out = bound_paths(recipe, request.corpus, request.binds), request.options.held_out or ()
    texts: dict[Path, Sequence[str]] = {store.path: paths[name] for name, store in stores.items()}
    texts |= {store.path: request.dev.get(name, held_out) for name, store in dev_stores.items()}
    return {folder: text_paths for folder, text_paths in texts.items() if out in folder.parents}


def use_dev_stores(
    data: Any, recipe: Recipe, dev_stores: Mapping[str, Store], tokenizer: Tokenizer, step: StepModule, *, seed: int,
    compiled: bool, tables: Mapping[str, Any],
) -> None:
    """Take the held-out examples of some sources from the stores `dev_stores` instead of a share of the training text."""
    from cloze.checkpoint.feeds import build_feed
    from cloze.exercises import TokenFacts

    facts = TokenFacts.of(tokenizer)
    named_tables = {  # the labels of another text may have other numbers
        name: with_label_names(recipe.tables, tables, {layer: store.label_names(layer) for layer in store.labels})
        for name, store in dev_stores.items()
    }
    feeds = {
        name: build_feed(
            recipe, entry, dev_stores[entry.source], step, facts, length=first_length(recipe), seed=seed, compiled=compiled,
            held_out_share=0.0, tables=named_tables[entry.source], training=False,
        )
        for name, entry in recipe.entries.items() if entry.source in dev_stores
    }
    data.held_out_feeds = dict(step_feeds(recipe, feeds, odds_of(recipe, dev_stores), seed=seed))


def training_of(recipe: Recipe) -> Training:
    """The values of `training:` that the loop reads."""
    t = recipe.training
    return Training(
        clip=t.clip, precision=t.precision, compile=t.compile, evaluate_every=t.evaluate_every,
        checkpoint_every=t.checkpoint_every if isinstance(t.checkpoint_every, int) else None,
        checkpoint_seconds=Budget.parse(t.checkpoint_every).amount if isinstance(t.checkpoint_every, str) else None,
        keep=t.keep, keep_steps=tuple(t.keep_steps), log_every=t.log_every,
        nominal_steps=t.steps, divide=t.divide, engine=t.engine,
        average=None if t.average is None else t.average["decay"],
        group=t.group,
        growth=None if t.batch_warmup is None else build_part(t.batch_warmup),
    )


def describe(stores: dict[str, Store]) -> dict[str, Any]:
    """What a run folder records of its corpora."""
    return {
        name: {"documents": store.documents, "sentences": store.sentences, "tokens": store.size}
        for name, store in stores.items()
    }


def bytes_per_token(stores: dict[str, Store]) -> float | None:
    """Bytes of text per token, over all corpora that know their size."""
    texts = [(store.report.get("bytes"), store.size) for store in stores.values()]
    sizes = [(size, tokens) for size, tokens in texts if size and tokens]
    return sum(size for size, _ in sizes) / sum(tokens for _, tokens in sizes) if sizes else None
