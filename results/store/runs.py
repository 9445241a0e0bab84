"""The store of runs: one folder a run, with everything that was measured.

    RUN/scenario.yaml  environment.json  state.json  result.json
    RUN/calibration-FABRIC.json  paths.json
    RUN/controller-FABRIC.jsonl  open-vswitch-FABRIC.log  capture-FABRIC/
    RUN/CASE/topology.json  prediction.json  and, until the run is complete, raw records
    RUN/CASE_during_fault/plan.json  records.json  prober.log  unaffected/  probes
    RUN/TABLE.parquet  the raw records of all cases, once it is complete (`tables.py`)
    RUN/crash.txt  the report of a bug (`records.py`)

`state.json` says `running`, `complete` or `incomplete` with the cause, and the run's number in its
store; `result.json` exists once the run is complete. The folder is locked (flock(2)) as long as the
run's process lives: a run that says `running` and is not locked has ended. Runs of a sweep's
points are in the sweep's folder (`results/store/sweeps.py`). All files are described in
docs/reference/commands.md, "The run folder".
"""

import csv
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linux.files.user_files import (
    WORK_PREFIX,
    complete_folder,
    give,
    is_locked,
    make_folder,
    sync,
    unfollowed,
    work_folder,
    write_table,
)
from model.errors import InputError, Problem, refusing
from model.fabric.spec import flat
from model.fabric.topology import Topology
from model.measurement.records import CaseExecutions, QueuePairSample, Repeat, TransferRecord
from model.sweep import REAL
from results.store.records import read_json, reading, write_json, write_record

if TYPE_CHECKING:
    from model.prediction.fluid import Prediction

DEFAULT_STORE = Path("runs")
SWEEPS = "sweeps"
UNREADABLE = "cannot be read"
SCHEMA = "railbed.run/2"
# A larger number is damage.
MOST_RUNS = 2**53
# Characters of a cause that the block of a small file has room for, in JSON: 4 KiB.
IN_A_BLOCK = 300
# The phases of a case with faults.
PHASES = BASELINE, DURING, DEGRADED, RECOVERED = "baseline", "during_fault", "degraded", "recovered"
# The form of the ids of `new_run_id`.
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-(?P<scenario>[a-z0-9-]+)-[0-9a-f]{4}")


def new_run_id(scenario: str) -> str:
    """Return a unique run id that sorts by time and contains the scenario's name."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{scenario}-{secrets.token_hex(2)}"


def require_store(store: Path) -> None:
    """Raise `InputError` unless a store is a folder; the default one may not be there yet."""
    # Unlike those of `Path`, these are false for a name that is too long, or in a closed folder.
    if not os.path.isdir(store) and (store != DEFAULT_STORE or os.path.exists(store)):
        raise InputError(Problem(str(store), "is not a folder of runs", "name another --store"))


def require_utf8(*names: object) -> None:
    """Raise `InputError` for a name that is not UTF-8, which DuckDB takes alone."""
    for name in names:
        try:
            str(name).encode()
        except UnicodeEncodeError:
            raise InputError(Problem(str(name), "must be UTF-8", "use another name")) from None


def scenario_of(run_id: str) -> str | None:
    """Return the scenario's name in a run id; `None` if a user has named the run's folder."""
    parts = RUN_ID.fullmatch(run_id)
    return parts["scenario"] if parts else None


def clock_of(result: Mapping[str, Any]) -> str:
    """The clock that measured a run, by its JSON object: `real` or `virtual`."""
    return str(result.get("clock", {}).get("kind", REAL))


def digest_of(text: str) -> str:
    """Return the digest of a text, such as a scenario's, 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Make a folder, and lock it; the kernel ends the lock with the process."""
    make_folder(folder)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run that is being written."""

    path: Path
    number: int

    @classmethod
    def planned(cls, store: Path, run_id: str) -> "RunFolder":
        """Return the folder of a new run, still without any file."""
        with storing("runs", store):
            return cls(store.resolve() / run_id, next_number(store.resolve()))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and lock it for as long as the context lasts."""
        with ExitStack() as lock:
            with storing("runs", self.path.parent):
                lock.enter_context(_locked(self.path, fcntl.LOCK_EX | fcntl.LOCK_NB))
            yield

    def begin(self, scenario: str, environment: Any) -> None:
        """Write scenario and environment, mark it `running`; raise `InputError` if that fails."""
        with storing("runs", self.path.parent):
            write_json(self.path / "environment.json", environment)
            self.keep("scenario.yaml", scenario)
            self._mark("running")

    def _mark(self, state: str, **more: str) -> None:
        write_json(self.path / "state.json", {"state": state, "number": self.number, **more})

    def begin_case(self, case: str, topology: Topology, prediction: "Prediction") -> Path:
        """Write a case's topology and prediction, and begin its tables; return its folder."""
        folder = self.folder_of(case)
        written = {**asdict(topology), "spec": flat(topology.spec), "digest": topology.digest}
        write_json(folder / "topology.json", written)
        modeled = {**asdict(prediction), "arrival_s": list(prediction.arrival_s)}
        write_json(folder / "prediction.json", modeled)
        for name, record in (("transfers", TransferRecord), ("queue-pairs", QueuePairSample)):
            write_table(folder / f"{name}.csv", [field.name for field in fields(record)])
        return folder

    def folder_of(self, case: str) -> Path:
        """Return the folder of a case."""
        return self.path / folder_name(case)

    def add_repeat(self, case: str, repeat: Repeat) -> None:
        """Append the raw records of an execution: transfers, and samples of queue pairs."""
        folder = self.folder_of(case)
        for name, records in (("transfers", repeat.records), ("queue-pairs", repeat.queue_pairs)):
            with open(folder / f"{name}.csv", "a", newline="", opener=unfollowed) as file:
                csv.writer(file).writerows(vars(record).values() for record in records)

    def end_case(
        self, case: str, done: CaseExecutions, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Write the executions, without transfer records, and the counters of all links."""
        folder, rows = self.folder_of(case), []
        for repeat in sorted(done.all, key=attrgetter("number")):
            row = {**vars(repeat), "retransmits": repeat.retransmits}
            row |= {"warmup": repeat in done.warmups, "disturbed": repeat in done.disturbed}
            del row["records"], row["queue_pairs"]
            rows.append(row)
        write_json(folder / "repeats.json", rows)
        links = {link: {"before": before[link], "after": after[link]} for link in before}
        write_json(folder / "counters.json", links)

    def keep(self, name: str, text: str) -> None:
        """Write a text file to the run's folder."""
        write_record(self.path / name, text)

    def complete(self, result: Mapping[str, Any]) -> None:
        """Write the result, and mark the run `complete` once all records are on the disk."""
        sync(self.path)
        write_json(self.path / "result.json", result)
        self._mark("complete")
        give(self.path)

    def incomplete(self, cause: str) -> None:
        """Mark the run `incomplete`, with the cause; files written so far stay.

        On a full file system, the mark `running` is overwritten, in its block (`IN_A_BLOCK`).
        """
        try:
            self._mark("incomplete", cause=cause)
        except OSError:
            state = {"state": "incomplete", "number": self.number, "cause": cause[:IN_A_BLOCK]}
            with open(self.path / "state.json", "r+", opener=unfollowed) as file:
                json.dump(state, file)
                file.truncate()
        give(self.path)


@contextmanager
def storing(things: str, store: Path, hint: str = "name another --store") -> Iterator[None]:
    """Raise `InputError` if a store cannot be written."""
    require_utf8(store.absolute())
    with refusing(store, f"{things} cannot be stored", hint):
        yield


def require_writable(store: Path, hint: str = "name another --store") -> None:
    """Make a store if it is missing; raise `InputError` if no run can be stored there."""
    with storing("runs", store, hint):
        make_folder(store)
        with work_folder(store):
            pass


@contextmanager
def copy_into_store(run: Path, target: Path) -> Iterator[Path]:
    """Yield a copy of a run's folder, which becomes the latest run of the store `target` is in.

    Raises `InputError` if it cannot be written.
    """
    number = next_number(target.parent)
    with storing("runs", target.parent):
        make_folder(target.parent)
        with _copy_of(run, target) as copy:
            _renumber(copy, number)
            yield copy


@contextmanager
def _copy_of(folder: Path, target: Path) -> Iterator[Path]:
    with complete_folder(target) as copy:
        shutil.copytree(folder, copy, symlinks=True, dirs_exist_ok=True)
        yield copy
        give(copy)


def _renumber(run: Path, number: int) -> None:
    """Give a run another number; one that is damaged keeps its own."""
    with suppress(InputError):
        write_json(run / "state.json", {**read_json(run / "state.json"), "number": number})


def copy_all(made: Path, store: Path) -> dict[str, Path]:
    """Copy everything in the folder `made` into a store, where nothing is replaced.

    Its runs, those of sweeps, too, become the latest ones, in their order. Returns the places of
    what has another name there, as its own was taken, by its path in `made`. Raises `InputError` if
    the store cannot be written.
    """
    copied = dict[str, Path]()
    # Names of virtual machines repeat: only one process at a time copies all into the store.
    with storing("runs", store), _locked(store, fcntl.LOCK_EX):
        for number, run in enumerate(stored_runs(made), next_number(store)):
            _renumber(run, number)
        for place in [*made.glob("*"), *made.glob(f"{SWEEPS}/*")]:
            if place != made / SWEEPS:
                name = str(place.relative_to(made))
                copied[name] = _copy_beside(place, store / name)
    return {name: place for name, place in copied.items() if place != store / name}


def _copy_beside(place: Path, target: Path) -> Path:
    """Copy a folder, file or link, under another name if its own is taken; return its place."""
    if os.path.lexists(target):
        scenario = scenario_of(target.name)
        other = new_run_id(scenario) if scenario else f"{target.name}-{secrets.token_hex(2)}"
        target = target.with_name(other)
    make_folder(target.parent)
    if place.is_dir() and not place.is_symlink():
        with _copy_of(place, target):
            pass
    else:
        shutil.copy2(place, target, follow_symlinks=False)
        give(target)
    return target


def folder_name(case: str) -> str:
    """Return the name of a case's folder."""
    return case.replace("/", "_")


def stored_runs(store: Path) -> list[Path]:
    """Return the folders of all runs, including those of sweeps' points, oldest first.

    Runs are ordered by their numbers, as a clock may be set back.
    """
    places = [*entries(store), *store.glob(f"{SWEEPS}/*/*/*")]
    with refusing(store, UNREADABLE):
        runs = [place for place in places if _is_run(place)]
    return sorted(runs, key=lambda run: (number_of(run), run.name))


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder, if there is one; raise `InputError` if it cannot be read.

    `Path.glob` of newer releases of Python takes such a folder for empty.
    """
    with refusing(folder, UNREADABLE), suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.iterdir())
    return []


def _is_run(place: Path) -> bool:
    """Whether this is the folder of a run, even if its records are lost or unreadable."""
    # Unlike `Path.exists`, it takes what cannot be read for missing.
    is_known = os.path.exists(place / "state.json") and not place.name.startswith(WORK_PREFIX)
    return is_known or bool(RUN_ID.fullmatch(place.name) and place.is_dir())


def number_of(run: Path) -> int:
    """Return the number of a run in its store; 0 if it is damaged."""
    try:
        number = read_json(run / "state.json").get("number")
    except InputError:
        return 0
    return number if isinstance(number, int) and 0 <= number < MOST_RUNS else 0


def next_number(folder: Path) -> int:
    """Return the number of the next run in a folder of runs, or in the store that it is in."""
    return 1 + max(map(number_of, stored_runs(_store_of(folder))), default=0)


def _store_of(folder: Path) -> Path:
    """Return the store of a folder of runs: itself, unless the runs are of a sweep's point."""
    return folder.parents[2] if folder.parent.parent.name == SWEEPS else folder


def find_run(store: Path, name: str) -> Path:
    """Return the run with this id, path or unique prefix, or the `latest`; else `InputError`."""
    runs = stored_runs(store)
    matches = _matching(runs, name)
    if not (runs or matches):
        hint = "store one by `./railbed run SCENARIO`, or name another --store"
        raise InputError(Problem(str(store), "has no runs", hint))
    if len(matches) == 1:
        return matches[0]
    count = f"{len(matches)} runs" if matches else "no run"
    known = ", ".join(run.name for run in runs[-5:])
    what = f"{store}: {count} named {name!r}"
    raise InputError(Problem(what, "name one run", f"the latest are: {known}"))


def _matching(runs: list[Path], name: str) -> list[Path]:
    """Return the runs that `name` may mean. A full id takes precedence over its use as a prefix."""
    if name == "latest":
        return runs[-1:]
    if exact := [run for run in runs if run.name == name]:
        return exact
    if name and os.path.isfile(os.path.join(name, "state.json")):
        return [Path(name).resolve()]
    return [run for run in runs if name and run.name.startswith(name)]


def read_state(run: Path) -> dict[str, str]:
    """Return a run's `state` and, if it is incomplete, the `cause`.

    The state is `ended` if the run's process is gone, without having said why.
    """
    kept = read_json(run / "state.json")
    with reading(run / "state.json"):
        cause = {"cause": str(kept["cause"])} if "cause" in kept else {}
        state = {"state": str(kept["state"]), **cause}
    if state["state"] == "running" and not is_locked(run.resolve(), os.O_DIRECTORY, unknown=True):
        return {"state": "ended"}
    return state


def _latest_complete(run: Path) -> str:
    """A hint: the latest complete run of the store that a run is in, if there is one."""
    for other in reversed(stored_runs(_store_of(run.parent))):
        with suppress(InputError):
            if read_state(other)["state"] == "complete":
                return f"the latest complete run is {other.name}"
    return ""


def read_result(run: Path) -> dict[str, Any]:
    """Return the JSON object of a run.

    Raises `InputError` if the run is not complete, or has another schema.
    The run's folder and id are those read, whatever the file says: a store may have been moved.
    """
    state = read_state(run)
    if state["state"] != "complete":
        gone = "its process is gone" if state["state"] == "ended" else "wait for it"
        what = f"the run is {state['state']}: {state.get('cause', gone)}"
        raise InputError(Problem(str(run), what, _latest_complete(run)))
    result = read_json(run / "result.json")
    if result.get("schema") != SCHEMA:
        what = f"schema {result.get('schema')}; this version reads {SCHEMA}: run it again"
        raise InputError(Problem(str(run), what))
    return {**result, "run_id": run.name, "folder": str(run.resolve())}
