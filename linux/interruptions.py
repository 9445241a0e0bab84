"""Interruptions by signals, postponed while a library works that an exception would break."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Postponed(threading.local):
    """How many contexts of this thread postpone interruptions, and the one that came meanwhile.

    Python executes the handlers of signals in the main thread.
    """

    contexts = 0
    came: BaseException | None = None


_postponed = _Postponed()


def interrupt(how: BaseException) -> None:
    """Raise an exception, now or when it disturbs no library; for handlers of signals."""
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
