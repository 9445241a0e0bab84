"""Run a scenario on a virtual machine whose clock counts instructions: the virtual clock.

Nothing of the host can be seen inside, so a result is a function of the program, the machine's
image, the scenario and its `machine_seed`: what was computed before is not computed again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import RailbedError
from results.store.runs import new_run_id, write_json
from scenarios.spec.scenario import Scenario
from testbed.virtual_machine.guest import Guest, version
from testbed.virtual_machine.image import cache_folder
from testbed.virtual_machine.job import program_job
from testbed.virtual_machine.program import INSIDE, Program, program
from testbed.virtual_machine.work_folder import work_folder

INSTRUCTION_NS = 1
# Files of a run that say when it was stored, or where; all others are its records.
NOT_RECORDS = ("result.json", "state.json")


class EndedInside(RailbedError):
    """A run that ended with an error inside of the machine, which has printed the cause."""

    def __init__(self, exit_code: int, folder: Path | None) -> None:
        kept = "" if folder is None else f" What was recorded until then is in {folder}."
        super().__init__(
            f"virtual clock: the run ended with exit code {exit_code}; the lines above say why."
            + kept
        )
        self.exit_code = exit_code


@dataclass(frozen=True)
class VirtualRun:
    """A scenario's text and name, and the machine that executes it."""

    name: str
    text: str
    machine: Program
    seed: int

    @property
    def key(self) -> str:
        """A digest of everything that the result depends on."""
        parts = (self.machine.digest, version(), self.name, self.text, str(self.seed))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def facts(self) -> dict[str, Any]:
        """The clock, as in the result's JSON object."""
        return {
            "kind": "virtual",
            "instruction_ns": INSTRUCTION_NS,
            "image": self.machine.digest,
            "qemu": version(),
            "seed": self.seed,
        }

    def execute(self, back: Path) -> int:
        """Execute the run; its folder comes into `back`. Return the program's exit code."""
        scenario = f"{self.name}.yaml"
        words = ["run", f"$RAILBED_HANDED/{scenario}", "--json", "--proxies", "process"]
        guest = Guest(self.machine.kernel, self.machine.initrd, INSIDE)
        exit_code, _ = guest.execute(
            program_job(words, self.seed), {scenario: self.text}, back, shows_output=False
        )
        return exit_code


def run_virtually(scenario: Scenario, store: Path, *, fresh: bool) -> dict[str, Any]:
    """Run a scenario under the virtual clock; return its JSON object, which `store` keeps, too.

    A result that was computed before is copied, unless `fresh`. Raises `EndedInside` if the run
    ended without one.
    """
    run = VirtualRun(scenario.name, scenario.text, program(), scenario.machine_seed)
    known = cache_folder() / "results" / run.key
    if fresh or not known.exists():
        _compute(run, known, store)
    return _stored(run, known, store)


def _compute(run: VirtualRun, known: Path, store: Path) -> None:
    known.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(known.parent) as folder:
        exit_code = run.execute(folder)
        folders = list((folder / "runs").iterdir())
        if exit_code not in (0, 1) or len(folders) != 1:
            kept = [_copied(found, store, new_run_id(run.name)) for found in folders]
            raise EndedInside(exit_code, kept[0] if kept else None)
        shutil.rmtree(known, ignore_errors=True)
        folders[0].rename(known)


def _stored(run: VirtualRun, known: Path, store: Path) -> dict[str, Any]:
    """Copy a known run into the store, under an id of its own."""
    run_id = new_run_id(run.name)
    folder = _copied(known, store, run_id)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    clock = {**run.facts, "records": records_digest(folder)}
    result |= {"run_id": run_id, "folder": str(folder), "clock": clock}
    write_json(folder / "result.json", result)
    return result


def _copied(run: Path, store: Path, run_id: str) -> Path:
    target = store.resolve() / run_id
    shutil.copytree(run, target)
    return target


def records_digest(run: Path) -> str:
    """A digest of all records of a run, 16 hexadecimal digits: equal for equal records."""
    whole = hashlib.sha256()
    for file in _records(run):
        whole.update(f"{file.relative_to(run)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def _records(run: Path) -> Iterator[Path]:
    files = sorted(place for place in run.rglob("*") if place.is_file())
    return (file for file in files if file.name not in NOT_RECORDS)
