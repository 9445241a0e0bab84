"""Quantities with units, as scenarios write them: `400 Gbit/s`, `12 MB`."""

import re

SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RATES = {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}

# A unit begins with no digit: a text that does not match is refused in linear time.
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9]\S*)\s*")


def parse(text: str, units: dict[str, float]) -> float:
    """Parse a positive number with one of `units`; raise `ValueError` with a message."""
    matched = _QUANTITY.fullmatch(text)
    if matched is None:
        raise ValueError(f"must be a number with a unit ({', '.join(units)}), got {text!r}")
    number, unit = matched.groups()
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r} in {text!r}; known are {', '.join(units)}")
    if float(number) <= 0:
        raise ValueError(f"must be more than 0, got {text!r}")
    return float(number) * units[unit]
