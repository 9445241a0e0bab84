"""Our value of a claim, and why it differs, as far as the reason is known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One number, or several where the claim names several; `note` says how it is counted."""

    values: tuple[float, ...]
    note: str = ""
