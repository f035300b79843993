"""What no input may be answered with: an exception that is no answer to a person, more than `SECONDS` of computing (or `WAIT` in
all), and more than `BYTES` of memory."""

from __future__ import annotations

import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloze.cli.main import describe_error
from cloze.errors import ClozeError

SECONDS = 20
WAIT = 300
BYTES = 1 << 30


class Fault(AssertionError):
    """An input was answered as no input may be."""


@contextmanager
def judged() -> Iterator[None]:
    """Let answers to a person pass; everything else is a `Fault`."""
    _reserve_for_arrow()
    before = [signal.signal(one, _late) for one in _TIMERS.values()]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit((SECONDS, WAIT), (used + BYTES, limits[1]))
    try:
        yield
    except Fault:
        raise
    except ClozeError:
        pass
    except Exception as error:
        said = describe_error(error)[0]
        if "bug in cloze" in said or "out of memory" in said:
            raise Fault(f"{said}\n{traceback.format_exc()}") from None
    finally:
        _limit((0, 0), limits)
        for one, handler in zip(_TIMERS.values(), before, strict=True):
            signal.signal(one, handler)


@lru_cache(maxsize=1)
def _reserve_for_arrow() -> None:
    """Let Arrow reserve its first gigabyte of addresses, which takes no memory, before addresses are limited."""
    with suppress(ImportError):
        import pyarrow

        pyarrow.array([0])


_TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}


def _limit(seconds: tuple[float, float], memory: tuple[int, int]) -> None:
    for timer, some in zip(_TIMERS, seconds, strict=True):
        signal.setitimer(timer, some)
    resource.setrlimit(resource.RLIMIT_AS, memory)


def prepared(function: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes a legal input, called once, and never judged."""

    @lru_cache(maxsize=1)
    def make() -> Any:
        seconds = signal.getitimer(signal.ITIMER_PROF)[0], signal.getitimer(signal.ITIMER_REAL)[0]
        memory = resource.getrlimit(resource.RLIMIT_AS)
        _limit((0, 0), (memory[1], memory[1]))
        try:
            return function()
        finally:
            _limit(seconds, memory)

    return make


def _late(_signal: int, _frame: Any) -> None:
    raise Fault(f"no answer after {SECONDS} s\n{''.join(traceback.format_stack()[-12:])}")
