"""The session of a run: its parts, set up once, and what is due between updates.

The loop calls `after_update` after each update. Logged losses are means: `Meter` adds up losses and counts and divides them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from cloze.batching import Cursor, MicroBatch
from cloze.batching.deck import Deck
from cloze.errors import RunError
from cloze.networks.blocks.dropout import set_dropouts
from cloze.networks.blocks.observer import Observer
from cloze.training.baselines import not_learning, with_measured
from cloze.training.carry import Carries, Carry
from cloze.training.clock import Clock
from cloze.training.distribution import Ranks
from cloze.training.hardware import allocator_hint, environment, keep_memory, matrix_rate
from cloze.training.interrupt import Interrupt
from cloze.training.log import Log, ProgressLine
from cloze.training.meter import Meter, combined
from cloze.training.optimizers.averaged import averages, observe_loss
from cloze.training.precision import casting, choose_precision
from cloze.training.run import Progress, Run, check_folder, read_run_record, write_run_record
from cloze.training.saving import Saver
from cloze.training.schedule.budget import Spent
from cloze.training.schedule.freezing import Freezing
from cloze.training.schedule.phases import phase_at
from cloze.training.schedule.rates import observe_losses
from cloze.training.selection import Standing
from cloze.training.step import compile_layers

_LOG_SHARE, _CHECKPOINT_SHARE = 1 / 500, 1 / 10


def _whole(epochs: float) -> float:
    """A sum of small shares; five epochs are not 4.9999999999."""
    nearest = float(round(epochs))
    return nearest if abs(epochs - nearest) < 1e-9 else epochs


class Session:
    """A run in progress on this rank: the wrapped module, the optimiser, progress, log and checkpoints."""

    def __init__(self, run: Run, ranks: Ranks) -> None:
        self.run, self.ranks = run, ranks
        check_folder(run, read_run_record(run.folder))
        self.line = ProgressLine(verbose=run.verbose)
        self.say = (run.say or self.line.say) if ranks.first else (lambda text: None)
        self.saver = Saver(run, ranks, say=self.say)
        self.checkpoints = self.saver.checkpoints
        saved = self.saver.load()
        self.precision = choose_precision(run.training.precision, ranks.device)
        memory_kept = keep_memory() if ranks.device.type == "cpu" else False
        self.model = run.step.to(ranks.device).train()
        self.model.clock.to(ranks.device)
        compile_layers(self.model, run.training.compile, ranks.device)
        self.module = ranks.wrap(self.model, half=self.precision == "bf16")
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.observers = [module for module in self.model.modules() if isinstance(module, Observer)]
        for observer in self.observers:
            observer.seen.zero_()  # what trials before the run have seen
        self.optimizer = run.optimizer.build(self.model.named_parameters())
        self.freezing = Freezing(
            self.model, dict(self.model.networks), train=run.train, layerwise=run.layerwise, wrapped=ranks.sharded
        )
        self.freezing.prepare(self.optimizer)
        self.progress = Progress(Spent(seconds=run.begun), {entry: Cursor() for entry in self.model.entries})
        self.stopping = self.worked = False
        self.held_out: float | None = None
        self.measured: dict[str, float] = {}  # held-out losses by the objectives' names in the log
        self.baselines = dict(run.baselines)
        self.warned = False
        self.first_losses: dict[str, float] = {}  # of the first step of a run, by the objectives' names in the log
        self.held_out_losses: list[float] = []
        self.standing: Standing | None = None
        self._epochs_before = 0.0
        self._evaluated = self._saved = -1  # the steps of the last evaluation and the last checkpoint of this process
        self._saved_at = 0.0  # seconds of training, as all ranks know them
        self.carries = Carries()
        self.learning_rate = 0.0
        if saved is None:
            self.model.begin_averages()
        else:
            self._restore(*saved)
        self._odds: dict[str, float] = {}
        self._set_phase(self.progress.phase)
        self.matrix_rate = matrix_rate(ranks.device, self.precision)
        self.clock = Clock(self.progress.spent)
        objectives = [w for passes in self.model.entries.values() for pass_ in passes for w in pass_.objectives]
        self.single_objective = len([w for w in objectives if w.weight != 0]) == 1
        self.meter = Meter(self.single_objective)
        self.log: Log | None = None
        try:
            self._open(saved is not None, hint=None if memory_kept else allocator_hint(ranks.device))
        except BaseException:
            self.close()
            raise

    def _open(self, resumed: bool, *, hint: str | None) -> None:
        """Write the run's record, open its log, and write the checkpoint of step 0 or publish the last one again."""
        run, device = self.run, self.ranks.device
        if self.ranks.first:
            described = environment(device, self.precision)
            described |= {"matrix_rate": self.matrix_rate, "ranks": self.ranks.world}
            self._guard(lambda: write_run_record(run, described))
            self.log = Log(run.folder, after=self.step if resumed else None, tensorboard=run.training.tensorboard)
            baselines = {name: baseline.to_json() for name, baseline in run.baselines.items()}
            self.log.write(
                "resume" if resumed else "start", self.step, budget=str(run.budget), baselines=baselines, **self._spent()
            )
            if resumed:
                self._guard(self.checkpoints.publish_last)
                self.saver.copy_behind()
        if resumed and self.stalled and self.share < 1:
            self.say(f"{run.folder}: finished at step {self.step}: no improvement in {run.selection.patience} evaluations.")  # type: ignore[union-attr]
        elif resumed and self.share >= 1:
            larger = "a larger --budget" if run.budget.passes is None else f"--budget {2 * run.budget.passes:g}epochs"
            self.say(f"{run.folder}: {run.budget.end(self.progress.spent, name=True)}. To continue, give {larger} and --extend.")
        elif resumed:
            self.say(f"{run.folder}: continues from step {self.step} ({self.share:.1%} of {run.budget.words} spent).")
        elif hint is not None:
            self.say(hint)
        if not resumed:
            if run.selection is not None and run.selection.from_start:
                self.evaluate()
            self.checkpoint()

    def _restore(self, state: Mapping[str, Any], parameters: Any, optimizer: Any, carry: Any) -> None:
        self.saver.restore(self.model, self.optimizer, state["step"], parameters, optimizer)
        self.progress = Progress.from_json(state)
        self._saved_at = self.progress.spent.seconds
        self.held_out = state.get("held_out")
        self.held_out_losses = list(state["held_out_losses"])
        observe_losses(self.run.rate, self.held_out_losses)
        self._set_standing(Standing.from_json(state.get("standing")))
        self.carries = Carries(carry)
        if str(self.run.budget) != state["budget"]:  # --extend: shares of the old budget are meaningless under the new one
            self.progress.share = self.share
            self.progress.phase = phase_at(self.run.phases, self.share)

    @property
    def step(self) -> int:
        """Steps done."""
        return self.progress.spent.steps

    @property
    def share(self) -> float:
        """Share of the budget spent, equal on all ranks."""
        return self.run.budget.share(self.progress.spent)

    @property
    def over(self) -> bool:
        """Whether the run ends here: `reached` or `stalled`."""
        return self.reached or self.stalled

    @property
    def reached(self) -> bool:
        """Whether the budget is spent, or the share of it at which the run is to pause; never before the first step."""
        return self.step > 0 and self.share >= self.run.until

    @property
    def stalled(self) -> bool:
        """Whether the metric has not improved for `patience` evaluations."""
        return self.run.selection is not None and self.run.selection.ends(self.standing)

    def _set_standing(self, standing: Standing | None) -> None:
        """Record which evaluation was best; a run that keeps its best checkpoint keeps that one."""
        self.standing = standing
        if standing is not None and self.run.selection is not None and self.run.selection.best:
            self.checkpoints.best = standing.step

    @property
    def _leads(self) -> bool:
        """Whether this step is the best so far of a run that keeps its best checkpoint."""
        selection = self.run.selection
        return selection is not None and selection.best and self.standing is not None and self.standing.step == self.step

    def clock_now(self) -> float:
        """Seconds of training so far, as rank 0 measures them; 0 on the other ranks, so that the sum is rank 0's."""
        return self.clock.now() if self.ranks.first else 0.0

    def ready(self, interrupt: Interrupt) -> bool:
        """Enter the coming step, on a run's only rank; false if a signal has come or the budget is spent."""
        self.enter_phase()
        self.progress.spent.seconds = self.clock_now()
        self.stopping = bool(interrupt)
        return not self.stopping and not self.reached

    # Which entries and values a step uses.

    def enter_phase(self) -> None:
        """Apply the values of the phase that the share spent has reached; a new length begins a new epoch.

        Also freezes and unfreezes depth groups.
        """
        self.freezing.enter(epochs=self.progress.spent.epochs, share=self.share)
        phase = phase_at(self.run.phases, self.share)
        while self.progress.phase < phase:
            self.progress.phase += 1
            if self._set_phase(self.progress.phase):
                self.progress.cursors = {
                    entry: Cursor(cursor.epoch + 1, 0) if cursor.item else cursor
                    for entry, cursor in self.progress.cursors.items()
                }

    def _set_phase(self, phase: int) -> bool:
        values = dict(self.run.phases[phase].set) if self.run.phases else {}
        odds = {entry: float(self.run.odds.get(entry, 1.0)) for entry in self.model.entries}
        self._odds = {entry: float(values.get(f"odds.{entry}", usual)) for entry, usual in odds.items()}
        self.deck = Deck(self._odds, seed=self.run.seed)
        if self.run.phases:
            set_dropouts(self.model, self.run.phases[phase].rates)
            for name, positions in self.run.phases[phase].positions.items():
                network: Any = self.model.networks[name]
                network.rotate_by(positions)
        return self.run.data.change(values)

    def entries(self) -> list[str]:
        """The mixture entries of the coming step."""
        return list(self.model.entries) if self.run.mixing == "all" else [self.deck.entry(self.step)]

    def name(self, entry: str, objective: str) -> str:
        """An objective's name in the log: its own if the run has one entry, else `entry/objective`."""
        return objective if len(self.model.entries) == 1 else f"{entry}/{objective}"

    def names(self, entry: str) -> list[str]:
        """The log names of an entry's objectives."""
        return [self.name(entry, w.name) for pass_ in self.model.entries[entry] for w in pass_.objectives]

    def flops(self, entry: str, micro: MicroBatch) -> float:
        """Forward and backward of a micro-batch, networks and heads."""
        return self.model.flops(entry, micro.batch)

    def carry(self, entry: str, micro: MicroBatch, carries: Carries) -> Carry | None:
        """The memory of a micro-batch's lanes among `carries`; None where no network has any."""
        if not self.model.carries:
            return None
        lanes, _ = micro.batch.shapes()[0]
        return carries.of(entry, micro.first_row, lanes, self.ranks.device)

    # Progress.

    def advance(
        self, cursors: Mapping[str, Cursor], *, tokens: float, examples: float, flops: float
    ) -> tuple[float, float]:
        """Count the step that is done; returns the shares spent before and after it, which decide what is due."""
        spent, total = self.progress.spent, sum(self._odds.values())
        self._epochs_before = spent.epochs
        for entry, after in cursors.items():
            old = self.progress.cursors[entry]
            read = after.epoch - old.epoch + (after.item - old.item) / max(self.run.data.items(entry), 1)
            spent.epochs = _whole(spent.epochs + read * self._odds[entry] / total)
            self.progress.cursors[entry] = after
        spent.steps += 1
        spent.tokens += int(tokens)
        spent.examples += int(examples)
        spent.flops += flops
        spent.bytes += tokens * (self.run.bytes_per_token or 0.0)
        self.worked = True
        before, self.progress.share = self.progress.share, self.share
        return before, self.progress.share

    def due_log(self, before: float, share: float) -> bool:
        """Whether a log event is due; the first step always logs."""
        return self.step == 1 or self._due(before, share, self.run.training.log_every, _LOG_SHARE)

    def due_evaluation(self, before: float, share: float) -> bool:
        """Whether the held-out loss is due; the end of the budget has its own."""
        every = self.run.training.evaluate_every
        if isinstance(every, str):  # an epoch
            return share < 1 and math.floor(self.progress.spent.epochs) > math.floor(self._epochs_before)
        return share < 1 and self._due(before, share, None, every)

    def due_checkpoint(self, before: float, share: float) -> bool:
        """Whether a checkpoint is due: by cadence, or because this step was named."""
        named = self.step in self.run.training.keep_steps
        seconds, steps = self.run.training.checkpoint_seconds, self.run.training.checkpoint_every
        named |= seconds is not None and self.progress.spent.seconds - self._saved_at >= seconds
        if steps is None and (self.run.selection is not None or seconds is not None):
            return share < 1 and (named or (self.run.selection is not None and self.due_evaluation(before, share)))
        return share < 1 and (named or self._due(before, share, steps, _CHECKPOINT_SHARE))

    def _due(self, before: float, share: float, steps: int | None, part: float) -> bool:
        if steps is not None:
            return self.step % steps == 0
        return part > 0 and math.floor(share / part) > math.floor(before / part)

    def after_update(self, before: float, share: float, settle: Callable[[], None] = lambda: None) -> None:
        """Do what is due after a step. `settle` first brings the parameters up to date if an engine holds newer ones."""
        self._observe()
        self.run.require_sound()
        if self.due_log(before, share):
            self.write_log()
        evaluating, saving = self.due_evaluation(before, share), self.due_checkpoint(before, share)
        if evaluating or saving:
            settle()
        if evaluating:
            self.evaluate()
            self._warn(share)
            saving |= self._leads
        if saving:
            self.checkpoint(behind=True)

    def _observe(self) -> None:
        """Give every observer the largest number that it or its copies on other ranks have seen in this step."""
        if not self.observers:
            return
        for observer, largest in zip(self.observers, self.ranks.most(torch.stack([o.seen for o in self.observers])), strict=True):
            if largest > 0:
                observer.learn(largest)
            observer.seen.zero_()

    def _warn(self, share: float) -> None:
        """Say once, after a third of the budget, if nothing has been learned."""
        if self.warned or share < 1 / 3:
            return
        self.warned = True
        peak = self.learning_rate < self.run.rate(min(share + 0.02, 1.0), self.run.training.nominal_steps)
        text = not_learning(
            self.baselines, self.measured, share=share, updates=self.step, warmed_up=not peak,
            labels=self.baselines.keys() - self.run.baselines.keys(),  # whose targets the step makes: which tokens were replaced
            first=self.first_losses,
        )
        if text is not None:
            self.say(text)

    # What is written.

    def write_log(self) -> None:
        """Write a `train` event: means over the steps since the last one. A collective: all ranks must call it."""
        if not self.meter.counts:
            return
        self.meter.check()
        means = self.meter.means(self.ranks)
        seconds, speed = self.meter.speed()
        self.first_losses = dict(means["objectives"]) if self.step == 1 else self.first_losses
        if self.log is not None:
            record = self.log.write(
                "train", self.step, **self._spent(), **means, learning_rate=self.learning_rate,
                grad_norm=float(self.meter.norms[-1][1]) if self.meter.norms else None,
                tokens_per_second=speed, filled=self.meter.tokens / max(self.meter.cells, 1.0),
                mfu=self.meter.flops / seconds / (self.matrix_rate * self.ranks.world),
            )
            self.baselines = with_measured(self.baselines, means["metrics"])
            self.line.show(record, self.baselines)
        self.meter.clear()

    def evaluate(self, *, observed: bool = True) -> None:
        """Write a `held_out` event per entry that has held-out examples, and the run's samples. A collective. Rates, optimisers
        and the choice of the best checkpoint learn of it only if it is `observed`."""
        self.write_log()
        self.model.eval()
        with averages(self.optimizer):
            self._evaluate_entries()
            dev = self._measure_dev() if observed else None
        self.model.train()
        self._evaluated = self.step
        loss = dev if dev is not None else self.held_out
        if observed and loss is not None:
            observe_loss(self.optimizer, loss)
            self.held_out_losses.append(loss)
            observe_losses(self.run.rate, self.held_out_losses)
        self.meter.clear()  # the time of an evaluation is not training time

    def _measure_dev(self) -> float | None:
        """Measure a run that chooses among its checkpoints: a `dev` event, and the metric as a loss."""
        selection = self.run.selection
        if selection is None:
            return None
        chosen = {selection.metric: self.measured.get(selection.metric, math.nan)}
        metrics = chosen if selection.measure is None else dict(selection.measure())
        self._set_standing(selection.after(self.standing, self.step, metrics))
        if selection.measure is None:
            return None
        if self.log is not None:
            self.log.write("dev", self.step, **self._spent(), metrics=metrics)
        when = f"step {self.step:,}  epoch {self.progress.spent.epochs:.2f}" if self.step else "frozen start, network untouched"
        self.say(f"{when}  dev: {'  '.join(f'{name} {value:.4f}' for name, value in metrics.items())}")
        return selection.loss(metrics)

    def _evaluate_entries(self) -> None:
        losses: dict[str, float] = {}
        for entry in self.model.entries:
            micros = list(self.run.data.held_out(entry))
            if self.ranks.sharded:
                micros = micros[: int(self.ranks.least(len(micros)))]
            meter, carries = Meter(self.single_objective), Carries()
            for micro in micros:
                self._measure(entry, micro, meter, carries)
            counts = dict(zip(meter.counts, self.ranks.add(list(meter.counts.values())), strict=True))
            if any(counts.values()):
                meter.counts = counts
                means = meter.means(self.ranks)
                losses[entry] = means["loss"]
                self.measured |= {self.name(entry, name): loss for name, loss in means["objectives"].items()}
                metrics = {self.name(entry, name): value for name, value in means["metrics"].items()}
                self.baselines = with_measured(self.baselines, metrics)
                if self.log is not None:
                    self.log.write("held_out", self.step, entry=entry, **self._spent(), **means)
                    if self.run.verbose:
                        self.say(f"step {self.step:,}  held-out loss of {entry}: {means['loss']:.3f}")
        if losses:
            self.held_out = combined(losses, None if self.run.mixing == "all" else self._odds)
        samples = self.run.samples(self.step) if self.run.samples is not None else None
        if samples and self.log is not None:
            self.log.write("samples", self.step, **samples)

    @torch.no_grad()
    def _measure(self, entry: str, micro: MicroBatch, meter: Meter, carries: Carries) -> None:
        """Losses of one held-out micro-batch; the same draws at every evaluation, so that only the model differs."""
        self.model.clock.set(seed=self.run.seed, step=0, first_row=micro.first_row, share=self.share)
        batch = micro.batch.to(self.ranks.device)
        with casting(self.precision, self.ranks.device):
            losses = self.model(entry, batch, self.carry(entry, micro, carries))
        meter.add_losses(losses)
        meter.add_step(self.step, None, self.model.count(entry, micro.batch), self.model.weights(entry, self.share))

    def pause(self) -> None:
        """Measure the held-out loss and write a checkpoint, unless this step has them. A collective.

        Nothing learns of this loss: the run goes on as if it had not paused.
        """
        if self._evaluated != self.step:
            self.evaluate(observed=False)
        if self._saved != self.step:
            self.checkpoint()

    def checkpoint(self, *, behind: bool = False) -> None:
        """Write a checkpoint of this step, on rank 0, at once or `behind` the next steps; all fail together. A collective."""
        self.write_log()
        self.meter.check()
        self.run.require_sound()
        self.saver.save(self._state(), self.model, self.optimizer, self.carries, behind=behind)
        self._saved, self._saved_at = self.step, self.progress.spent.seconds
        self.meter.clear()  # the time of writing a checkpoint is not training time

    def _state(self) -> dict[str, Any]:
        run, progress = self.run, self.progress.to_json()
        # Only the file gets rank 0's current time: while running, all ranks use the time they agreed on.
        progress["spent"]["seconds"] = self.clock_now()
        return {
            "step": self.step, **progress, "seed": run.seed, "budget": str(run.budget),
            "recipe_hash": run.record.recipe_hash, "held_out": self.held_out,
            "held_out_losses": list(self.held_out_losses), "ranks": self.ranks.world,
            "standing": None if self.standing is None else self.standing.to_json(),
        }

    def _spent(self) -> dict[str, Any]:
        spent = self.progress.spent
        seconds = self.clock_now() if self.ranks.first else spent.seconds
        share = self.run.budget.share(replace(spent, seconds=seconds))  # at this moment, like `seconds`: both give the time left
        return {"tokens": spent.tokens, "seconds": round(seconds, 3), "share": share, "epochs": spent.epochs,
                "flops": spent.flops, "examples": spent.examples}

    def _guard(self, write: Any) -> None:
        """Write; a full disk is reported as for a checkpoint."""
        try:
            write()
        except OSError as error:
            raise RunError(f"{self.run.folder}: cannot be written: {error.strerror or error}.") from error

    def stop(self, reason: str) -> None:
        """Write the last event, without which a run counts as interrupted; print how it ended, unless it had ended before."""
        if self.log is not None:
            self.log.write("stop", self.step, reason=reason, finished=not self.stopping, **self._spent())
        loss = "" if self.held_out is None or self.stopping else f", held-out loss {self.held_out:.4f}"
        baselines = {} if self.stopping else {name: self.baselines[name] for name in self.measured if name in self.baselines}
        worth = "".join(
            f"\n  {name} {self.measured[name]:.3f}: {baselines[name].describe(self.measured[name])}" for name in baselines
        )
        if self.worked or self.stopping:
            self.say(f"{self.run.folder}: {reason} at step {self.step:,}{loss}; checkpoint written.{worth}{self._which()}")

    def _which(self) -> str:
        """The checkpoint that the folder has, where a held-out loss has chosen another one than the last."""
        selection, standing = self.run.selection, self.standing
        if self.stopping or selection is None or selection.measure is not None or standing is None or standing.step == self.step:
            return ""
        loss = f"{selection.metric} {standing.metrics[selection.metric]:.4f}"
        return f"\n  the folder holds the checkpoint of step {standing.step:,}, with the lowest held-out loss: {loss}"

    def close(self) -> None:
        """Close the log, keep the progress line, and let a checkpoint that is being written become whole."""
        self.saver.close()
        self.line.close()
        if self.log is not None:
            self.log.close()
