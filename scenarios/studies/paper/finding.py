"""Our value of a claim, and the reason of its difference, if it is known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One number, or several where the claim names several; `note` says how it is counted."""

    values: tuple[float, ...]
    note: str = ""
