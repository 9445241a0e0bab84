"""The scenarios that come with Railbed: the files in `scenarios/library/`."""

from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "library"
# Scenarios that got a better name; the old one is still accepted.
OLD_NAMES = {"verify": "check-data"}


def library() -> list[Path]:
    """Return the files of all scenarios, sorted by name."""
    return sorted(LIBRARY.glob("*.yaml"))
