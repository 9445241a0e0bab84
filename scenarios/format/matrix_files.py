"""Matrices of bytes in files of their own, which a scenario names: their rows replace the names.

A line is a row of a byte matrix (`traffic_gen/traces/formats/byte_matrix.py`); empty lines do not
count.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linux.files.user_files import Unreadable, read_text
from scenarios.format.issues import Issue, Place, did_you_mean
from scenarios.format.workloads import entries
from traffic_gen.traces.formats.byte_matrix import row_of
from traffic_gen.workloads.algorithms.matrices import Preset

MOST_BYTES = 2**20
PRESETS = [str(preset) for preset in Preset]


def matrix_file_names(document: Any) -> dict[Place, str]:
    """Return the file names that `matrix` keys have, by the place of the workload or job."""
    named = {place: entry.get("matrix") for place, entry in entries(document)}
    return {
        place: name
        for place, name in named.items()
        if isinstance(name, str) and name not in PRESETS
    }


def insert_matrices(document: Any, folder: Path, named: Mapping[Place, str]) -> Iterator[Issue]:
    """Replace names by the rows of files, relative to a folder; yield issues of bad files."""
    found = dict(entries(document))
    for of, name in named.items():
        place = *of, "matrix"
        try:
            found[of]["matrix"] = read_matrix(folder / name)
        except ValueError as error:
            yield Issue(place, f"{name}: {error}")
        except Unreadable as error:
            hint = f"{did_you_mean(name, PRESETS)} presets: {', '.join(PRESETS)}".lstrip("; ")
            yield Issue(place, f"{name}: {error}", hint)


def read_matrix(path: Path) -> list[list[int]]:
    """Return the rows of a file; raise `ValueError` with a line and a sentence."""
    rows: dict[int, list[int]] = {}
    for number, line in enumerate(read_text(path, MOST_BYTES).splitlines(), start=1):
        try:
            row = row_of(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if row:
            rows[number] = row
    for number, row in rows.items():
        if len(row) != len(rows):
            what = f"has {len(row)} numbers, in a matrix of {len(rows)} rows"
            raise ValueError(f"line {number}: {what}")
    return list(rows.values())
