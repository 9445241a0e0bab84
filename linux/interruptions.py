"""Interruptions by signals, some of which libraries would swallow, or answer with other errors."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A swallowed interruption comes again so much later, in seconds: outside of what swallowed it.
AGAIN_S = 0.01


class _Postponed(threading.local):
    """How many contexts of this thread postpone interruptions, and the one that came meanwhile.

    Python executes the handlers of signals in the main thread.
    """

    contexts = 0
    came: BaseException | None = None


@dataclass
class _Program:
    """Whether a signal has asked the program to end, and the last exception for a signal."""

    is_ending: bool = False
    raised: BaseException | None = None


_postponed, _program = _Postponed(), _Program()


def end_program() -> None:
    """Raise `KeyboardInterrupt` as `interrupt` does, and remember it; for handlers of signals."""
    _program.is_ending = True
    interrupt(KeyboardInterrupt())


def repeat_swallowed() -> None:
    """From now on, let an interruption come again that Python swallows.

    It swallows what is raised in `__del__`, or in a callback of a weak reference.
    """
    before = sys.unraisablehook

    def swallowed(what: "sys.UnraisableHookArgs") -> None:
        how = what.exc_value
        if how is not None and how is _program.raised:
            signal.signal(signal.SIGALRM, lambda *_: interrupt(how))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            before(what)

    sys.unraisablehook = swallowed


def is_ending() -> bool:
    """Whether a signal has asked the program to end: errors since then may be of libraries.

    What a handler raises in their code, some of them answer with exceptions of their own.
    """
    return _program.is_ending


def interrupt(how: BaseException) -> None:
    """Raise an exception, now or when it disturbs no library; for handlers of signals."""
    _program.raised = how
    if not _postponed.contexts:
        raise how
    _postponed.came = how


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpone `interrupt` until the context ends, which should last milliseconds."""
    _postponed.contexts += 1
    try:
        yield
    finally:
        _postponed.contexts -= 1
        if not _postponed.contexts and _postponed.came is not None:
            how, _postponed.came = _postponed.came, None
            raise how
