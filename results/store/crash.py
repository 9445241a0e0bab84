"""Reports of bugs: in the folder of the run, or in a fresh one that nobody else can enter."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from linux.files.user_files import give
from model.errors import RailbedError
from results.store.records import write_record

REPORT = "crash.txt"


class Bug(RailbedError):
    """An error that Railbed did not expect, and the file with its report if there is one."""

    def __init__(self, error: Exception, report: Path | None) -> None:
        where = "no report could be written" if report is None else f"please report {report}"
        super().__init__(f"a bug in Railbed: {type(error).__name__}: {error}; {where}")


def report_bug(error: Exception, folder: Path | None = None) -> Bug:
    """Write a report of an error to the folder of its run, or else to a fresh one."""
    if folder is not None:
        with suppress(OSError, ValueError):
            return Bug(error, _written(error, folder))
    with suppress(OSError, ValueError), _private_folder() as apart:
        return Bug(error, _written(error, apart))
    return Bug(error, None)


def _written(error: Exception, folder: Path) -> Path:
    place = folder / REPORT
    write_record(place, "".join(traceback.format_exception(error)))
    return place


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A fresh folder, which stays if something was written to it."""
    folder = Path(mkdtemp(prefix="railbed-crash-"))
    try:
        give(folder)
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()
