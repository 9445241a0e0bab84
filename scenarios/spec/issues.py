"""Issues of a scenario whose keys and types are valid."""

from dataclasses import dataclass

# The keys that lead to a value in a scenario file, and numbers of list entries.
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Issue:
    """An invalid value, or values that do not fit together."""

    place: Place
    what: str
    hint: str = ""
