"""Other ways to train than the loop's step: what an engine promises, and which one a run takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cloze.errors import MissingExtra, RecipeError
from cloze.registry import lookup, names
from cloze.training.interrupt import Interrupt
from cloze.training.run import Run

if TYPE_CHECKING:
    from cloze.training.session import Session


_COMPILED = Path(__file__).parent / "kernels" / "__pycache__"  # where numba keeps what it has made, with an index in .nbi


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
    """

    def fits(self, run: Run) -> str:
        """Why this run cannot be trained so, in a few words; empty if it can. Nothing is imported or changed for it."""

    def require(self) -> str:
        """What to tell the user before it begins, if anything. Raises `MissingExtra` where a package is missing."""

    def begin(self, session: Session) -> Worker:
        """The worker of a session that has just begun or been resumed."""


class Choice(NamedTuple):
    """The engine that is to train a run, None for the loop, and what to tell the user of it."""

    engine: Engine | None
    hint: str = ""


def choose(run: Run, processes: int) -> Choice:
    """What is to train a run; decided before anything of it is written.

    Raises `RecipeError` where `engine: compiled` is asked for and none fits, `MissingExtra` where its package is missing.
    """
    from cloze.training import engines  # noqa: F401  the import registers them

    wanted = run.training.engine
    if wanted == "loop":
        return Choice(None)
    reasons = {}
    for name in names("engine"):
        engine: Any = lookup("engine", name)()
        reasons[name] = "several processes train" if processes > 1 else engine.fits(run)
        if not reasons[name]:
            try:
                return Choice(engine, engine.require())
            except MissingExtra as missing:
                if wanted == "compiled":
                    raise
                return Choice(None, f"hint: the loop trains this recipe, slowly. {missing}")
    if wanted == "compiled":
        told = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
        raise RecipeError(f"training.engine: compiled, but no compiled engine fits this recipe.\n{told}\n  Write `engine: auto`.")
    return Choice(None)


def require_numba(purpose: str) -> str:
    """What to tell the user of compiled code that is not there yet; raises `MissingExtra` where numba is missing."""
    try:
        import numba  # noqa: F401
    except ImportError:
        raise MissingExtra("numba", "fast", purpose) from None
    if any(_COMPILED.glob("*.nbi")):
        return ""
    return "hint: the code of this engine is compiled now, which takes a minute or two; later runs begin at once."
