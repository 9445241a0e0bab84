"""Threads for requests that may never be answered: the process can end without them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TypeVar

from model.errors import EmulationError

THREADS = 8
CHECK_EVERY_S = 0.1

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], check: Callable[[], None]
) -> list[Result]:
    """Return the result of `work` for each item, `THREADS` of them at once.

    `check` is called during the wait; it raises `EmulationError` if the work never ends, and then
    the threads are not waited for. After any other interruption, only work that has begun is
    finished.
    """
    orders = [(item, Future[Result]()) for item in items]
    left, futures = deque(orders), [future for _, future in orders]
    for _ in range(min(THREADS, len(orders))):
        Thread(target=_work_off, args=(work, left), daemon=True).start()
    try:
        _wait(futures, check)
    except BaseException:
        for future in futures:
            future.cancel()
        with suppress(EmulationError):
            _wait(futures, check)
        raise
    return [future.result() for future in futures]


@contextmanager
def real_time() -> Iterator[None]:
    """Let this thread run before all of normal priority, if permitted (sched(7), SCHED_RR)."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _work_off(work: Callable[[Item], Result], left: "deque[tuple[Item, Future[Result]]]") -> None:
    """Do the remaining work, beside other threads; errors are results."""
    while left:
        with suppress(IndexError):  # another thread was quicker
            item, future = left.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(item))
                except BaseException as error:
                    future.set_exception(error)


def _wait(futures: "Sequence[Future[Result]]", check: Callable[[], None]) -> None:
    while wait(futures, CHECK_EVERY_S).not_done:
        check()
