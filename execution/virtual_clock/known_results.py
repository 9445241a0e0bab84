"""Results of commands that were executed under the virtual clock: none is computed twice.

    CACHE/results/KEY/output       what the command printed
    CACHE/results/KEY/exit-code
    CACHE/results/KEY/runs/RUN     the folders of its runs

The least recently used results are removed when all together have more than `MOST_BYTES`. Runs are
copied into the store of this machine's runs.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.store.records import read_json, write_json, write_record
from results.store.runs import copy_into_store, new_run_id, scenario_of
from results.store.tables import seal
from testbed.virtual_machine.cache import (
    RESULTS,
    by_last_use,
    cache_folder,
    hand_over,
    locked_folder,
    make_cache,
    size_of,
)

MOST_BYTES = 2 * 2**30
# Keys are hexadecimal; other processes' unfinished folders have other names.
KEYS = "[0-9a-f]*"
# Files of a run with the time or the place of its storage; all others are its records.
NOT_RECORDS = ("result.json", "state.json")


@dataclass(frozen=True)
class KnownResult:
    """A command's result in its folder."""

    folder: Path

    @property
    def output(self) -> str:
        """The standard output of the command."""
        return (self.folder / "output").read_text()

    @property
    def exit_code(self) -> int:
        """The command's exit code."""
        return int((self.folder / "exit-code").read_text())

    @property
    def runs(self) -> list[Path]:
        """The folders of its runs, oldest first."""
        return sorted((self.folder / "runs").glob("*"))

    def write(self, exit_code: int, output: str) -> None:
        """Write the fields that do not come as files."""
        (self.folder / "output").write_text(output)
        (self.folder / "exit-code").write_text(f"{exit_code}\n")


def results_folder() -> Path:
    """The folder of all results, made if missing."""
    folder = cache_folder() / RESULTS
    make_cache(folder)
    return folder


def find(key: str, target: Path) -> KnownResult | None:
    """Copy the result with this key, and mark it as used last; return `None` if unknown.

    It is a copy, as another process may replace the stored result later.
    """
    results = results_folder()
    with locked_folder(results):
        known = results / key
        if not (known / "exit-code").is_file():
            return None
        os.utime(known)
        return KnownResult(Path(shutil.copytree(known, target, dirs_exist_ok=True)))


def add(key: str, computed: KnownResult) -> None:
    """Copy a computed result to its place, where it replaces an earlier one."""
    results = results_folder()
    with locked_folder(results):
        known = results / key
        shutil.rmtree(known, ignore_errors=True)
        shutil.copytree(computed.folder, known)
        hand_over(known)
        _drop_oldest(results, known)


def _drop_oldest(results: Path, newest: Path) -> None:
    known = by_last_use(results.glob(KEYS))
    sizes = [size_of(place) for place in known]
    left = sum(sizes)
    for place, size in zip(known, sizes, strict=True):
        if left <= MOST_BYTES or place == newest:
            return
        left -= size
        shutil.rmtree(place)


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
    for file in sorted(place for place in run.rglob("*") if place.is_file()):
        if file.name not in NOT_RECORDS:
            whole.update(f"{file.relative_to(run)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]
