"""The controller's journal."""

import errno
import os

import pytest

from controller.journal import SOFTWARE_ERROR, Journal


class Ended(BaseException):
    """The process has ended."""


class FullJournal(Journal):
    """A journal on a file system without space."""

    def __init__(self) -> None:
        """Open no file."""

    def write(self, event: str, **facts: object) -> None:
        """Fail, as the kernel does."""
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_controller_that_cannot_write_its_error_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ryu goes on after an exception of a handler, with a wrong state."""

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended, match=str(SOFTWARE_ERROR)):
        FullJournal().end_with_error("on_refused")
