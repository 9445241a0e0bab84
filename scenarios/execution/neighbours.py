"""Other runs on this machine at the same time: they disturb each other's measurements."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from linux.run_lock import RunLock, live_run_ids
from model.errors import EmulationError

Tell = Callable[[str], None]


def on_standard_error(sentence: str) -> None:
    """Print a sentence for people."""
    print(f"railbed: {sentence}", file=sys.stderr)


@contextmanager
def telling_of_others(
    lock: RunLock, tell: Tell = on_standard_error, known: set[str] | None = None
) -> Iterator[None]:
    """Tell of other runs that are under way at the beginning or at the end of the context.

    The first of two runs hears as much as the second. Those in `known` were told of; it grows.
    """
    known = set() if known is None else known
    _tell_of_others(lock, tell, known)
    yield
    # What was measured is there: it is not lost if nobody can say who else was.
    with suppress(EmulationError):
        _tell_of_others(lock, tell, known)


def _tell_of_others(lock: RunLock, tell: Tell, known: set[str]) -> None:
    others = live_run_ids() - {lock.run_id} - known
    if others:
        known.update(others)
        tell(f"other runs disturb this one, and it disturbs them: {', '.join(sorted(others))}")
