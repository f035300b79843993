"""One step as one module, which DDP and FSDP2 wrap: from a batch, through networks and heads, to sums of losses.

`checkpoint/build.py` makes a `StepModule` from a recipe. The loop calls `forward` with a micro-batch; it runs the passes of the
entry in order. Each pass reads one view of the batch, runs its network (`_run_network`), then its objectives (`_run_objectives`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.fields import sequence, split
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, size_of
from cloze.networks.network import PARAMETERS, Network
from cloze.networks.routing import routed, seen_by, takes_positions, worth_selecting
from cloze.objectives import Loss, StepObjective
from cloze.training.carry import Carry
from cloze.training.passes import Pass, PassObjective, Rewrite

#: Random numbers depend on a row's address: e · 2^32 + k · 2^24 + row, for the entry e of a step (the loop adds that)
#: and the repetition k of a network within the entry. A step has fewer than 2^24 rows.
_ROW_BITS = 24


class _ResolvedPass(NamedTuple):
    """A pass with its names resolved: the states and scores that are read (`want`), the objectives whose scores other parts read
    (`scored`), those among them whose scores are only read as a `Product`, so that they need not be multiplied out (`factored`),
    and whether the network may compute its last state only at the positions that objectives read."""

    pass_: Pass
    want: frozenset[str]
    scored: frozenset[str]
    factored: frozenset[str]
    only_positions: bool

    def reading(self, names: frozenset[str]) -> _ResolvedPass:
        """The same pass where these states and scores are read, too: whole, and at all positions."""
        return self._replace(
            want=self.want | names, scored=self.scored | names, factored=self.factored - names, only_positions=False
        )


class StepModule(nn.Module):
    """Networks, heads and rewriters, and the passes of every mixture entry.

    `averages` keep networks equal to averages of others (`average_network.py`), by the name of the network.

    `forward(entry, batch)` gives the sums of losses by objective name. Parameters that are shared (ties) appear once.
    """

    def __init__(
        self,
        *,
        networks: Mapping[str, nn.Module],
        objectives: Mapping[str, nn.Module],
        entries: Mapping[str, Sequence[Pass]],
        clock: Clock,
        rewriters: Mapping[str, nn.Module] | None = None,
        averages: Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        self.objectives = nn.ModuleDict(objectives)
        self.rewriters = nn.ModuleDict(rewriters or {})
        self.averages = nn.ModuleDict(averages or {})
        self.entries = {name: tuple(passes) for name, passes in entries.items()}
        self.clock = clock
        self._resolved_passes = {name: self._resolve_passes(passes) for name, passes in self.entries.items()}
        self._freeze()

    def begin_averages(self) -> None:
        """Give the networks that average others the weights of those; at the beginning of a run, before the first step."""
        for average in self._averages:
            average.begin()

    def update_averages(self) -> None:
        """Bring the networks that average others up to date, after an update."""
        for average in self._averages:
            average.follow()

    @property
    def _all_passes(self) -> list[_ResolvedPass]:
        return [resolved for passes in self._resolved_passes.values() for resolved in passes]

    @property
    def _averages(self) -> Iterable[Any]:
        return self.averages.values()

    @property
    def carries(self) -> bool:
        """Whether some network has a memory that the loop must give back in the next step."""
        return any(bool(network.carries) for network in self.networks.values())

    def step_scope_objectives(self, entry: str) -> list[StepObjective]:
        """The objectives of an entry that compare all rows of a step, whatever pieces it is divided into (`scope: step`)."""
        objectives = {
            pass_objective.key: self._objective(pass_objective)
            for pass_ in self.entries[entry] for pass_objective in pass_.objectives if pass_objective.weight != 0
        }
        return [objective for objective in objectives.values() if objective.scope == "step"]

    @property
    def batch_scope_objectives(self) -> list[str]:
        """The objectives that compare the rows of a step with each other, so that rows cannot be processed independently."""
        return [name for name, objective in self.objectives.items() if objective.scope == "batch"]

    @property
    def reads_parameters(self) -> bool:
        """Whether some objective reads the parameters of a network, which therefore cannot be divided among processes."""
        return any(PARAMETERS in resolved.want for resolved in self._all_passes)

    def forward(self, entry: str, batch: Batch, carry: Carry | None = None) -> dict[str, Loss]:
        """Run the passes of an entry on one micro-batch: objective name → loss sums. `carry` is read and replaced."""
        losses: dict[str, Loss] = {}
        self._run_passes(self._resolved_passes[entry], batch, losses, carry)
        return losses

    @torch.no_grad()
    def states_of(self, entry: str, batch: Batch, want: frozenset[str]) -> dict[str, Tensor]:
        """States by `pass.state` and scores by `pass.objective`, without losses or gradients."""
        passes = []
        for resolved in self._resolved_passes[entry]:
            prefix = resolved.pass_.name + "."
            names = frozenset(path.removeprefix(prefix) for path in want if path.startswith(prefix))
            passes.append(resolved.reading(names))
        states = self._run_passes(passes, batch, None, None)
        return {path: states[path] for path in want}

    def count(self, entry: str, batch: Batch) -> dict[str, float]:
        """The sum of target weights of every objective of an entry; the batch is still on the CPU."""
        counts: dict[str, float] = {}
        for pass_ in self.entries[entry]:
            fields = self._view_fields(pass_, batch)
            for pass_objective in pass_.objectives:
                counts[pass_objective.name] = float(self._objective(pass_objective).count(fields))
        return counts

    def weights(self, entry: str, share: float) -> dict[str, float]:
        """The objectives' weights when `share` of the budget is spent."""
        return {
            pass_objective.name: pass_objective.weight_at(share)
            for pass_ in self.entries[entry] for pass_objective in pass_.objectives
        }

    def flops(self, entry: str, batch: Batch) -> float:
        """Floating-point operations of the entry's networks and heads for a batch, forward and backward, as they are trained now.
        The batch is still on the CPU."""
        total = 0.0
        live: set[str] = set()  # the passes whose states need a gradient
        for resolved in self._resolved_passes[entry]:
            pass_ = resolved.pass_
            fields = self._static_fields(pass_, batch)
            positions = self._positions(pass_, fields) if resolved.only_positions else None
            sources = {path.partition(".")[0] for path in pass_.take.values() if isinstance(path, str)}
            counted = self._count_network(resolved, fields, positions, needs_grad=pass_.grad and bool(sources & live))
            if counted.needs_grad and pass_.grad:
                live.add(pass_.name)
            for pass_objective in pass_.objectives:
                if pass_objective.weight != 0 or pass_objective.name in resolved.scored:
                    head = counted.branch(needs_grad=counted.needs_grad or bool(_passes_read(pass_objective) & live))
                    self._objective(pass_objective).count_operations(head, fields)
                    total += head.total
            total += counted.total
        return total

    def flops_per_token(self, entry: str, length: int) -> float:
        """An estimate of `flops` for one token in rows of `length`, before there is a batch: of networks only, each of which is
        taken to read the same number of tokens."""
        tokens = torch.arange(length)[None]  # (1, length): the lowest ids, which matter where tables have clusters
        positions = torch.arange(0, length, 7)  # (length / 7): one token in seven, about as many as masking selects
        total = 0.0
        for resolved in self._resolved_passes[entry]:
            takes = self._network(resolved.pass_).takes
            fields = {"tokens": tokens, **{name: tokens for name in takes if split(name).field == "tokens"}}
            total += self._count_network(resolved, fields, positions if resolved.only_positions else None).total
        return total / length

    def _count_network(
        self, resolved: _ResolvedPass, fields: Mapping[str, Tensor], positions: Tensor | None, *, needs_grad: bool = False
    ) -> Operations:
        """What the network of a pass computes of these fields."""
        network, gradients = self._network(resolved.pass_), resolved.pass_.grad
        counted = Operations(fields, want=resolved.want, positions=positions, needs_grad=needs_grad, gradients=gradients)
        if self._runs_network(resolved):
            for hook in network.outside:
                hook.begin_operations(counted)
            size = size_of(counted.fields)
            network.count_operations(counted, size)
            for hook in network.outside:
                if hook.makes & resolved.want:
                    hook.end_operations(counted, size)
        return counted

    def fields(self, entry: str, name: str, batch: Batch) -> Batch:
        """The fields of a batch that the pass `name` of an entry reads, without those that `take` supplies."""
        return self._view_fields(next(pass_ for pass_ in self.entries[entry] if pass_.name == name), batch)

    def _view_fields(self, pass_: Pass, batch: Batch) -> Batch:
        """The fields of the pass's view, and of the further sequences that its network takes."""
        return seen_by(self._network(pass_), batch, pass_.view)

    def _static_fields(self, pass_: Pass, batch: Batch) -> Batch:
        """The fields of the pass that exist before any pass has run: of its view, and what it takes from others. What rewriters
        give has the sizes that they expect."""
        fields = {**self._view_fields(pass_, batch)}
        for name, path in pass_.take.items():
            if isinstance(path, str):
                view, _, field_name = path.rpartition(".")
                view_fields = batch.view(view or "main")
                if field_name in view_fields:
                    fields[name] = view_fields[field_name]
            else:
                expected = self._rewriter(path).expected(fields)
                fields = {**self._kept(path, fields), **expected}
        return Batch(fields, checked=True)

    def _kept(self, take: Rewrite, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The fields of a view that stay next to what a rewriter gives."""
        keeps = self._rewriter(take).keeps
        return {name: field for name, field in fields.items() if keeps is None or name in keeps}

    def _freeze(self) -> None:
        """Turn off gradients of parts that are used only in passes without gradient; DDP would wait for them."""
        with_gradient = [resolved for resolved in self._all_passes if resolved.pass_.grad]
        run = {id(self._network(resolved.pass_)) for resolved in with_gradient if self._runs_network(resolved)}
        idle = {id(self._network(resolved.pass_)) for resolved in with_gradient} - run
        parts = [part for resolved in with_gradient for part in self._parts(resolved.pass_) if id(part) not in idle]
        trained = {id(parameter) for part in parts for parameter in part.parameters()}
        for parameter in self.parameters():
            if id(parameter) not in trained:
                parameter.requires_grad_(False)

    def require_trained(self) -> None:
        """Raise a `RecipeError` if no parameter is trained, or if nothing reads the states that a change of a network makes."""
        for name, network in self.networks.items():
            passes = [resolved for resolved in self._all_passes if resolved.pass_.network == name and resolved.pass_.grad]
            wants = [resolved.want for resolved in passes]
            for hook in network.outside if isinstance(network, Network) else ():
                if wants and hook.makes and not any(hook.makes & want for want in wants):
                    read = ", ".join(sorted(set[str]().union(*wants)))
                    raise RecipeError(
                        f"networks.{name}: a change replaces {' and '.join(sorted(hook.makes))} of this network, but the "
                        f"recipe reads only {read}.\n  Use another change, such as lora, or train the network."
                    )
        if not any(parameter.requires_grad for parameter in self.parameters()):
            raise RecipeError(
                "nothing is trained: the network is frozen, and no head has parameters of its own.\n"
                "  Use a change that adds parameters to the network, such as lora, or train the network."
            )

    def _parts(self, pass_: Pass) -> list[nn.Module]:
        """The parts of a pass: its network, its heads and its rewriters."""
        rewriters = [self._rewriter(take) for take in pass_.take.values() if isinstance(take, Rewrite)]
        return [self._network(pass_), *map(self._objective, pass_.objectives), *rewriters]

    def _runs_network(self, resolved: _ResolvedPass) -> bool:
        """Whether a pass runs its network: some state of it is read."""
        return bool(resolved.want & self._network(resolved.pass_).gives.keys())

    # torch types a module's attributes as tensors or modules; these parts implement protocols.

    def _network(self, pass_: Pass) -> Any:
        return self.networks[pass_.network]

    def _objective(self, pass_objective: PassObjective) -> Any:
        return self.objectives[pass_objective.key]

    def _rewriter(self, take: Rewrite) -> Any:
        return self.rewriters[take.rewriter]

    def _run_passes(
        self, passes: Sequence[_ResolvedPass], batch: Batch, losses: dict[str, Loss] | None, carry: Carry | None
    ) -> dict[str, Tensor]:
        """Run the passes in order; returns their states and scores. Fills `losses` unless it is None."""
        states: dict[str, Any] = {}
        repeats: dict[str, int] = {}  # earlier passes of each network
        for resolved in passes:
            pass_ = resolved.pass_
            network = self._network(pass_)
            repeat = repeats[pass_.network] = repeats.get(pass_.network, -1) + 1
            with self._drawing(repeat), nullcontext() if pass_.grad else _without_training(self._parts(pass_)):
                fields = self._pass_inputs(pass_, batch, states)
                want = resolved.want & network.gives.keys()
                outputs = self._run_network(resolved, want, fields, carry) if want else {}
                if PARAMETERS in resolved.want:
                    outputs[PARAMETERS] = dict(network.named_parameters())
                states.update({f"{pass_.name}.{name}": state for name, state in outputs.items()})
                self._run_objectives(resolved, fields, states, losses)
        return states

    @contextmanager
    def _drawing(self, repeat: int) -> Iterator[None]:
        """Give the `repeat`-th pass of a network random numbers of its own: the clock moves to row numbers that no step uses."""
        first = self.clock.numbers[2]
        if repeat:
            self.clock.set(first_row=first + (repeat << _ROW_BITS))
        try:
            yield
        finally:
            if repeat:
                self.clock.set(first_row=first)

    def _run_network(
        self, resolved: _ResolvedPass, want: frozenset[str], fields: Batch, carry: Carry | None
    ) -> dict[str, Any]:
        """The wanted states of a pass's network."""
        pass_, network = resolved.pass_, self._network(resolved.pass_)
        inputs = routed(network, fields, pass_.order)
        carrying = carry is not None and network.carries and "restarts" in inputs
        if carry is not None and carrying:  # rows without `restarts` have no memory
            inputs["carry"] = carry.passes.get(pass_.name)
            want |= {"carry"}
        if resolved.only_positions:
            inputs["positions"] = self._positions(pass_, fields)
        states = dict(network(want=want, **inputs))
        if carry is not None and carrying:
            carry.passes[pass_.name] = states.pop("carry")
        return states

    def _run_objectives(
        self, resolved: _ResolvedPass, fields: Batch, states: dict[str, Any], losses: dict[str, Loss] | None
    ) -> None:
        """Add the losses of a pass's objectives to `losses`, and scores that other parts read to `states`."""
        for pass_objective in resolved.pass_.objectives:
            objective = self._objective(pass_objective)
            scored, has_loss = pass_objective.name in resolved.scored, losses is not None and pass_objective.weight != 0
            if not (scored or has_loss):
                continue
            readings = _readings(resolved.pass_, objective.reads, pass_objective.read, states)
            scores = None
            if scored:
                factored = pass_objective.name in resolved.factored
                scores = objective.product(readings, fields) if factored else objective.scores(readings, fields)
                states[f"{resolved.pass_.name}.{pass_objective.name}"] = scores
            if losses is not None and has_loss:
                # Scores that nothing reads whole need not exist all at once: the objective may compute them in parts.
                is_tensor = isinstance(scores, Tensor)
                losses[pass_objective.name] = objective.loss(scores, fields) if is_tensor else objective(readings, fields)

    def _pass_inputs(self, pass_: Pass, batch: Batch, states: dict[str, Tensor]) -> Batch:
        """The fields of the pass, with those that `take` supplies."""
        view_fields = self._view_fields(pass_, batch)
        if not pass_.take:
            return view_fields
        supplied: dict[str, Tensor] = {}
        for name, source in pass_.take.items():
            if isinstance(source, Rewrite):
                rewriter = self._rewriter(source)
                readings = _readings(pass_, rewriter.reads, source.read, states)
                supplied.update(rewriter(readings, view_fields))
                view_fields = Batch(self._kept(source, view_fields), checked=True)
            elif source in states:
                supplied[name] = states[source]
            else:
                view, _, field_name = source.rpartition(".")
                fields = batch.view(view or "main")
                if field_name != "block" or field_name in fields:  # a view without padding has no blocks
                    supplied[name] = fields[field_name]
        return Batch({**view_fields, **supplied}, checked=True)

    def _positions(self, pass_: Pass, fields: Batch) -> Tensor | None:
        """The flat positions that the objectives read, row · length + position in the row, as one vector.

        None if the network had better compute all positions.
        """
        state = _positions_state(self._network(pass_))
        readers = [self._objective(pass_objective) for pass_objective in pass_.objectives if self._reads(pass_objective, state)]
        if not readers:  # the last layer is read only at summaries
            name = sequence(fields)
            return None if name is None else torch.zeros(0, dtype=torch.long, device=fields[name].device)
        names = {name for reader in readers for name in reader.at}
        if not names or any(name not in fields for name in names):
            return None
        # Each field is (M), the position of each target, or (M, 2 · spans), those of both ends of each span.
        parts = [fields[name].flatten() for name in sorted(names)]
        positions = parts[0] if len(parts) == 1 else torch.cat(parts)
        return positions if worth_selecting(positions, fields) else None

    def _reads(self, pass_objective: PassObjective, state: str) -> bool:
        reads = self._objective(pass_objective).reads
        return any(pass_objective.read.get(name, name) == state for name in reads)

    def _resolve_passes(self, passes: Sequence[Pass]) -> tuple[_ResolvedPass, ...]:
        """Resolve every reading: which states each network must compute, and which heads' scores are read later."""
        want: dict[str, set[str]] = {pass_.name: set() for pass_ in passes}
        read_paths: set[str] = set()  # the paths (`pass.state`) that a later pass, `take` or a rewriter reads
        tensor_paths: set[str] = set()  # those that some part needs as a tensor, states of the pass itself among them
        for index, pass_ in enumerate(passes):
            sources = self._sources(pass_)
            read_paths.update(sources)
            tensor_paths.update(sources)
            for pass_objective in pass_.objectives:
                objective = self._objective(pass_objective)
                for name in objective.reads:
                    path = pass_objective.read.get(name, name)
                    if "." in path:
                        read_paths.add(path)
                    else:
                        want[pass_.name].add(path)
                    if name not in objective.factored:
                        tensor_paths.add(_qualified(pass_, path))
            earlier = {before.name for before in passes[:index]}
            for path in sources:
                self._check_source(path, pass_, earlier)
        for path in read_paths:
            source, _, state = path.partition(".")  # the name of a head may have a dot
            if source in want:
                want[source].add(state)
        return tuple(self._resolved(pass_, frozenset(want[pass_.name]), read_paths, tensor_paths) for pass_ in passes)

    def _sources(self, pass_: Pass) -> list[str]:
        """The paths that a pass takes its fields from, and those that its rewriters read."""
        sources: list[str] = []
        for take in pass_.take.values():
            if isinstance(take, Rewrite):
                sources += [take.read.get(name, name) for name in self._rewriter(take).reads]
            else:
                sources.append(take)
        return sources

    def _resolved(self, pass_: Pass, want: frozenset[str], read_paths: set[str], tensor_paths: set[str]) -> _ResolvedPass:
        network = self._network(pass_)
        objectives = {pass_objective.name for pass_objective in pass_.objectives}
        unknown = want - network.gives.keys() - objectives - {PARAMETERS}
        if unknown:
            raise RecipeError(
                f"pass {pass_.name!r}: {', '.join(sorted(unknown))} is read, but network {pass_.network!r} "
                f"({type(network).__name__}) gives: {', '.join(sorted(network.gives))}."
            )
        state = _positions_state(network)
        unread_elsewhere = f"{pass_.name}.{state}" not in read_paths and all(
            self._objective(pass_objective).at or not self._reads(pass_objective, state)
            for pass_objective in pass_.objectives
        )
        scored = frozenset(want & objectives)
        factored = frozenset(name for name in scored if f"{pass_.name}.{name}" not in tensor_paths)
        return _ResolvedPass(pass_, want, scored, factored, unread_elsewhere and takes_positions(network))

    def _check_source(self, path: str, pass_: Pass, earlier: Set[str]) -> None:
        source, _, _ = path.rpartition(".")
        later = {other.name for passes in self.entries.values() for other in passes} - earlier
        if source in later:
            raise RecipeError(
                f"pass {pass_.name!r} reads {path!r}, but pass {source!r} does not come before it. "
                "A pass reads earlier passes only."
            )


def _positions_state(network: Any) -> str:
    """The state that a network computes only at the given positions; `hidden` unless it says otherwise."""
    return str(network.positions_state)


def _passes_read(pass_objective: PassObjective) -> set[str]:
    """The earlier passes whose states an objective reads."""
    return {path.partition(".")[0] for path in pass_objective.read.values() if "." in path}


def _readings(
    pass_: Pass, reads: Sequence[str], bound: Mapping[str, str], states: Mapping[str, Any]
) -> dict[str, Any]:
    """The states that a part of a pass reads, by its names for them; an unbound name is a state of this pass."""
    return {name: states[_qualified(pass_, bound.get(name, name))] for name in reads}


def _qualified(pass_: Pass, path: str) -> str:
    """The path of a state with the pass that it belongs to: by default `pass_`."""
    return path if "." in path else f"{pass_.name}.{path}"


@contextmanager
def _without_training(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Eval mode and no gradient for these parts."""
    training = [(module, module.training) for part in parts for module in part.modules()]
    for module, _ in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was in training:
            module.training = was
