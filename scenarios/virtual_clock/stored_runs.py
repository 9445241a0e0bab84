"""Folders of runs under the virtual clock, in the store of this machine's runs."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results.store.runs import new_run_id, write_json

# Files of a run that say when it was stored, or where; all others are its records.
NOT_RECORDS = ("result.json", "state.json")


def stored(run: Path, store: Path, clock: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a complete run into the store; return its JSON object, with its clock."""
    folder = copied(run, store)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    result |= {
        "run_id": folder.name,
        "folder": str(folder),
        "clock": {**clock, "records": records_digest(folder)},
    }
    write_json(folder / "result.json", result)
    return result


def copied(run: Path, store: Path) -> Path:
    """Copy a run into the store, under an id of its own: inside, the date is always the same."""
    target = store.resolve() / new_run_id(_scenario_of(run.name))
    shutil.copytree(run, target)
    return target


def _scenario_of(run_id: str) -> str:
    """The scenario's name in a run id, `DATE-TIME-NAME-DIGITS`."""
    return run_id.split("-", 2)[2].rpartition("-")[0]


def records_digest(run: Path) -> str:
    """A digest of all records of a run, 16 hexadecimal digits: equal for equal records."""
    whole = hashlib.sha256()
    for file in _records(run):
        whole.update(f"{file.relative_to(run)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def _records(run: Path) -> Iterator[Path]:
    files = sorted(place for place in run.rglob("*") if place.is_file())
    return (file for file in files if file.name not in NOT_RECORDS)
