"""Folders of runs under the virtual clock, in the store of this machine's runs."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results.store.raw_tables import seal
from results.store.records import read_json, write_json, write_record
from results.store.runs import copy_into_store, new_run_id, scenario_of

# Files of a run with the time or the place of its storage; all others are its records.
NOT_RECORDS = ("result.json", "state.json")


def stored(
    run: Path, store: Path, clock: Mapping[str, Any], scenario: str | None = None
) -> dict[str, Any]:
    """Copy a complete run into the store, as `copied` does; return its JSON object with its clock.

    The digest of its records is that of the files that the machine wrote.
    """
    folder = copied(run, store, scenario)
    result = read_json(folder / "result.json")
    result |= {
        "run_id": folder.name,
        "folder": str(folder),
        "clock": {**clock, "records": records_digest(run)},
    }
    write_json(folder / "result.json", result)
    seal(folder)
    return result


def copied(run: Path, store: Path, scenario: str | None = None) -> Path:
    """Copy a run into the store, under an id of its own: inside, the date is always the same.

    The copy gets the text of its `scenario` on this machine: files have other paths inside.
    """
    folder = copy_into_store(run, store, new_run_id(scenario_of(run.name) or run.name))
    if scenario is not None:
        write_record(folder / "scenario.yaml", scenario)
    return folder


def records_digest(run: Path) -> str:
    """A digest of all records of a run, 16 hexadecimal digits: equal for equal records."""
    whole = hashlib.sha256()
    for file in _records(run):
        whole.update(f"{file.relative_to(run)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def _records(run: Path) -> Iterator[Path]:
    files = sorted(place for place in run.rglob("*") if place.is_file())
    return (file for file in files if file.name not in NOT_RECORDS)
