"""Formats that tables share: verdicts with their colours, and numbers that may be missing."""

from rich.text import Text

VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def styled_verdict(verdict: str) -> Text:
    """Format a verdict in its colour."""
    return Text(verdict, VERDICT_STYLES[verdict])


def number_or_dash(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit, or a dash if there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"
