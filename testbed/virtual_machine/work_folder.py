"""Folders for files without use after the end of their process, however it ends."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

PREFIX = "railbed-unfinished-"


@contextmanager
def work_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder that is removed afterwards; first remove the folders of killed processes.

    Without `parent` it is in the system's folder for temporary files.
    """
    above = parent or Path(gettempdir())
    for left in above.glob(f"{PREFIX}*"):
        if not is_in_work(left):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=above, prefix=f"{PREFIX}{os.getpid()}-") as folder:
        yield Path(folder)


def is_in_work(folder: Path) -> bool:
    """Whether this is the work folder of a process that has not ended."""
    process = folder.name.removeprefix(PREFIX).partition("-")[0]
    return folder.name.startswith(PREFIX) and Path("/proc", process).exists()
