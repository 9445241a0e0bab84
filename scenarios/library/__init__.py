"""The scenarios that come with Railbed."""

from pathlib import Path

LIBRARY = Path(__file__).parent


def library() -> list[Path]:
    """Their files, by name."""
    return sorted(LIBRARY.glob("*.yaml"))
