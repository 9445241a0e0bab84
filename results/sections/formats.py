"""Formats of figures for people."""

from collections.abc import Collection

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def number_or_dash(value: float | None, form: str, unit: str = "") -> str:
    """Format a number with its unit, or a dash if there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"


def three_digits(number: float) -> str:
    """Format a number with its first three digits, and at most one behind the point if more."""
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.3g}"


def range_of(values: Collection[float]) -> str:
    """Format the least and the largest of some ratios, or one number if they look the same."""
    return " to ".join(dict.fromkeys((f"{min(values):.3f}", f"{max(values):.3f}")))


def human_seconds(seconds: float) -> str:
    """Format seconds in a suitable unit (s, ms, µs or ns)."""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def human_bytes(size: float) -> str:
    """Format a size in bytes, with three significant digits."""
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"
