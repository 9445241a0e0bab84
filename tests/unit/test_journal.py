"""The controller's journal."""

import errno
import json
import os
from pathlib import Path

import pytest

from controller.journal import SOFTWARE_ERROR, Journal
from testbed.nodes.controller_process import read_journal


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


def test_a_journal_is_read_again_only_once_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits look at it every few milliseconds, while the job needs the processor."""
    decoded, loads = list[str](), json.loads

    def counted(line: str) -> object:
        decoded.append(line)
        return loads(line)

    monkeypatch.setattr(json, "loads", counted)
    path = tmp_path / "journal.jsonl"
    assert read_journal(path) == []
    for number in range(1, 4):
        path.write_text("".join(f'{{"number": {one}}}\n' for one in range(1, number + 1)))
        before = len(decoded)
        for _ in range(2):
            assert [entry["number"] for entry in read_journal(path)] == [1, 2, 3][:number]
        assert len(decoded) - before == number
