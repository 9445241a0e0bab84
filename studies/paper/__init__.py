"""The rail-only paper (arXiv 2307.12169): its published numbers, and ours beside them."""

import re
from pathlib import Path

from linux.files.program_files import rows_of

DATA = Path(__file__).parent / "data"


def published(name: str) -> list[dict[str, str]]:
    """The rows of a table of published numbers, `data/NAME.csv`."""
    return rows_of(DATA / f"{name}.csv")


def numbers(text: str) -> tuple[float, ...]:
    """The numbers of a published value: `95 and 99`, `38 to 77`."""
    return tuple(float(number) for number in re.findall(r"[\d.]+", text))


def claimed(name: str) -> tuple[float, ...]:
    """The numbers of a claim of the paper."""
    return next(numbers(row["value"]) for row in published("claims") if row["id"] == name)
