"""The controller's journal."""

import errno
import json
import os
import time
from pathlib import Path

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


def end(code: int) -> None:
    raise Ended(code)


def test_each_event_is_a_line_at_once_also_the_error_that_ends_the_controller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that begins again goes on with the same file."""
    monkeypatch.setattr(os, "_exit", end)
    path = tmp_path / "journal"
    journals = Journal(path), Journal(path)
    journals[0].write("ready", generation=2)
    try:
        raise ValueError("a wrong state")
    except ValueError:
        with pytest.raises(Ended, match="70"):
            journals[1].end_with_error("on_ports")
    ready, error = map(json.loads, path.read_text().splitlines())
    assert (ready["event"], ready["generation"]) == ("ready", 2)
    assert (error["event"], error["where"]) == ("error", "on_ports")
    assert "ValueError: a wrong state" in error["traceback"]
    assert ready["ns"] <= error["ns"] <= time.monotonic_ns()
    for journal in journals:
        journal._file.close()


def test_a_controller_that_cannot_write_its_error_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ryu goes on after an exception of a handler, with a wrong state."""
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended, match=str(SOFTWARE_ERROR)):
        FullJournal().end_with_error("on_refused")
