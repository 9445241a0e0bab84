"""What is wrong with a scenario, found after its keys and types are known to be right."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Issue:
    """Something wrong with a value, or with how values go together."""

    place: tuple[str | int, ...]
    what: str
    hint: str = ""
