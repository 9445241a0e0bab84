"""The scenarios that come with Railbed: the files in `scenarios/library/`."""

import os
from pathlib import Path

from model.errors import InputError, Problem
from scenarios.format.issues import meant

LIBRARY = Path(__file__).parent / "library"


def library() -> list[Path]:
    """Return the files of all scenarios, sorted by name."""
    return sorted(LIBRARY.glob("*.yaml"), key=lambda file: file.stem)


def scenario_file(path: Path) -> Path:
    """Return a scenario's file: as given, or by its name in the library.

    Raises `InputError` if there is only a similar name.
    """
    if path.parent != Path() or path.suffix or os.path.exists(path):
        return path
    files = {file.stem: file for file in library()}
    if path.name not in files and (hint := meant(path.name, files)):
        raise InputError(Problem(str(path), "not found, and no scenario of this name", hint))
    return files.get(path.name, path)
