"""Other ways to train than the loop's step: what an engine promises, and which one a run takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cloze.compiled import has_numba
from cloze.errors import MissingExtra
from cloze.training.interrupt import Interrupt
from cloze.training.precision import choose_device
from cloze.training.run import Run

if TYPE_CHECKING:
    from cloze.training.session import Session


class Worker(Protocol):
    """What does the work of a run: the loop itself, or an engine once it has begun."""

    def step(self, interrupt: Interrupt) -> None:
        """Some work, counted with `session.advance`, then `session.attend`; `session.stopping` is set when a signal came."""

    def settle(self) -> None:
        """Write everything learned into the parameters of the step and the state of the optimiser."""


class Engine(Protocol):
    """Trains recipes of some shape without autograd, such as word vectors in compiled code.

    It reads the live parts of the run (networks, objectives, edits, sources) and writes into the same parameters and
    optimiser state, so that checkpoints, held-out losses and exported folders do not know of it. One process only.
    `processor_only`: it trains on the CPU, and is so much faster than the loop that device `auto` means the CPU.
    """

    processor_only: bool

    def meant_for(self, run: Run) -> bool:
        """Whether a user of such a recipe expects this engine, so that a hint names the reason where it does not fit."""

    def fits(self, run: Run) -> str:
        """Why this run cannot be trained so, in a few words; empty if it can. Nothing is imported or changed for it."""

    def require(self, run: Run) -> str:
        """What to tell the user before it begins, if anything. Raises `MissingExtra` where a package is missing."""

    def begin(self, session: Session) -> Worker:
        """The worker of a session that has just begun or been resumed."""


def on_processor(run: Run) -> bool:
    """Whether an engine of the CPU may train: the CPU was asked for, or no device was."""
    return run.device == "auto" or choose_device(run.device).type == "cpu"


def require_numba(purpose: str, kernels: Callable[[], tuple[Any, ...]]) -> str:
    """What to tell the user of `kernels` that are not compiled yet; raises `MissingExtra` where numba is missing."""
    if not has_numba():
        raise MissingExtra("numba", "fast", purpose)
    from cloze.kernel import is_kept

    if is_kept(*kernels()):
        return ""
    return "hint: the code of this engine is compiled now, which takes a minute or two; later runs begin at once."
