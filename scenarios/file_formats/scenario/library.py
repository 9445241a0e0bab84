"""The scenarios that come with Railbed: the files in `scenarios/library/`."""

import os
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "library"
# Scenarios that got a better name; the old one is still accepted.
OLD_NAMES = {"verify": "check-data"}


def library() -> list[Path]:
    """Return the files of all scenarios, sorted by name."""
    return sorted(LIBRARY.glob("*.yaml"))


def scenario_file(path: Path) -> Path:
    """Return a scenario's file: as given, or by its name in the library."""
    named = LIBRARY / f"{OLD_NAMES.get(path.name, path.name)}.yaml"
    is_name = path.parent == Path() and not os.path.exists(path)
    return named if is_name and named in library() else path
