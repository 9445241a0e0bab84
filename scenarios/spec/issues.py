"""Issues of a scenario whose keys and types are valid."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Issue:
    """An invalid value, or values that do not fit together."""

    place: tuple[str | int, ...]
    what: str
    hint: str = ""
