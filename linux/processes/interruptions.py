"""Interruptions by signals: raised again where Python or a library would swallow them."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds until a swallowed interruption is raised again: by then, the swallowing code has ended.
AGAIN_S = 0.01


class _Postponed(threading.local):
    """The number of contexts of this thread that postpone interruptions; the postponed exception.

    Python executes signal handlers in the main thread.
    """

    contexts = 0
    came: BaseException | None = None


class _Program:
    """Whether a signal has asked the program to end, and the last exception for a signal."""

    is_ending = False
    raised: BaseException | None = None


_postponed, _program = _Postponed(), _Program()


def end_program() -> None:
    """Raise `KeyboardInterrupt` as `interrupt` does, and remember it; for handlers of signals."""
    _program.is_ending = True
    interrupt(KeyboardInterrupt())


def repeat_swallowed() -> None:
    """From now on, raise an interruption again if Python swallows it.

    Python swallows exceptions in `__del__` and in callbacks of weak references.
    """
    before = sys.unraisablehook

    def swallowed(what: "sys.UnraisableHookArgs") -> None:
        error = what.exc_value
        if error is not None and error is _program.raised:
            signal.signal(signal.SIGALRM, lambda *_: interrupt(error))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            before(what)

    sys.unraisablehook = swallowed


def is_ending() -> bool:
    """Whether a signal has asked the program to end.

    Later errors may be consequences: some libraries turn an exception that a signal handler raises
    in their code into one of their own.
    """
    return _program.is_ending


def interrupt(error: BaseException) -> None:
    """Raise an exception, now or at the end of `uninterrupted`; for signal handlers."""
    _program.raised = error
    if not _postponed.contexts:
        raise error
    _postponed.came = error


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpone `interrupt` until the context ends, which should last milliseconds."""
    _postponed.contexts += 1
    try:
        yield
    finally:
        _postponed.contexts -= 1
        if not _postponed.contexts and _postponed.came is not None:
            error, _postponed.came = _postponed.came, None
            raise error
