"""The scenarios that come with Railbed: the files in `scenarios/library/`."""

import os
from pathlib import Path

from model.errors import InputError, Problem
from scenarios.format.issues import meant

LIBRARY = Path(__file__).parent / "library"
# Scenarios that got a better name; the old one is still accepted.
OLD_NAMES = {"verify": "check-data"}


def library() -> list[Path]:
    """Return the files of all scenarios, sorted by name."""
    return sorted(LIBRARY.glob("*.yaml"))


def scenario_file(path: Path) -> Path:
    """Return a scenario's file: as given, or by its name in the library.

    Raises `InputError` if only a similar name is there.
    """
    if path.parent != Path() or path.suffix or os.path.exists(path):
        return path
    files = {file.stem: file for file in library()}
    name = OLD_NAMES.get(path.name, path.name)
    if name not in files and (hint := meant(name, files)):
        raise InputError(Problem(str(path), "no such file, and no scenario of this name", hint))
    return files.get(name, path)
