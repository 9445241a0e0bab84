"""The store of sweeps: one folder a sweep, with its points and their outcomes.

    STORE/sweeps/NAME/sweep.json                 the plan: points, their settings, the digest
    STORE/sweeps/NAME/001/scenario.yaml          the complete scenario of the point
    STORE/sweeps/NAME/001/point.json  log.txt    its state; the output of its run
    STORE/sweeps/NAME/001/RUN                    its run folder

A point without `point.json` is waiting; one whose `point.json` has no exit code is under way or was
interrupted. The kernel releases the lock when the process that runs the sweep ends, in any way.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.errors import InputError, Problem
from model.sweep import REAL, Point, Setting, Sweep
from results.store.runs import write_json

SWEEPS = "sweeps"
# The exit codes of a run that was measured completely: all as expected, or not.
WITH_RESULT = (0, 1)


@dataclass(frozen=True)
class Outcome:
    """How a point ended: the exit code of its run, and the run folder if there is one.

    `cause` says why there is no result.
    """

    exit_code: int
    run: Path | None
    took_s: float
    cause: str = ""

    @property
    def result(self) -> Path | None:
        """The file with the point's result, of any verdict; `None` if its run ended early."""
        if self.run is None or self.exit_code not in WITH_RESULT:
            return None
        place = self.run / "result.json"
        return place if place.is_file() else None

    @property
    def how(self) -> str:
        """How the point ended, on one line."""
        if self.result is None:
            return f"failed after {self.took_s:.1f} s: {self.cause.partition(chr(10))[0]}"
        verdict = "failed its expectations" if self.exit_code else "done"
        return f"{verdict} after {self.took_s:.1f} s"


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder, which contains a folder for each point."""

    path: Path
    sweep: Sweep

    @property
    def name(self) -> str:
        """The name of the sweep, as `--resume` takes it."""
        return self.path.name

    def point_folder(self, point: Point) -> Path:
        """Return the folder of a point."""
        return self.path / _numbered(point.number)

    def scenario(self, point: Point) -> Path:
        """Return the scenario file of a point."""
        return self.point_folder(point) / "scenario.yaml"

    def begin(self, point: Point) -> None:
        """Mark the point as under way."""
        write_json(self._state(point), {"exit_code": None})

    def end(self, point: Point, outcome: Outcome) -> None:
        """Write the point's outcome; its run folder by name only, as the store may be moved."""
        run = None if outcome.run is None else outcome.run.name
        write_json(self._state(point), {**asdict(outcome), "run": run})

    def outcome(self, point: Point) -> Outcome | None:
        """Return how the point ended; `None` if it is waiting, under way or was interrupted."""
        if not self._state(point).is_file():
            return None
        kept: dict[str, Any] = json.loads(self._state(point).read_text())
        if kept["exit_code"] is None:
            return None
        run = self.point_folder(point) / kept["run"] if kept["run"] else None
        return Outcome(**{**kept, "run": run})

    @property
    def unfinished(self) -> tuple[Point, ...]:
        """The points without a result, in order; one that ended without a result is run again."""
        ended = [(point, self.outcome(point)) for point in self.sweep.points]
        return tuple(p for p, outcome in ended if outcome is None or outcome.result is None)

    def _state(self, point: Point) -> Path:
        return self.point_folder(point) / "point.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the sweep; raise `InputError` if another process runs it."""
        lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            what = "another process runs this sweep already"
            raise InputError(Problem(str(self.path), what, "wait for it, or stop it")) from None
        try:
            yield
        finally:
            os.close(lock)


def begin_sweep(store: Path, name: str, sweep: Sweep) -> SweepFolder:
    """Create or find a sweep's folder; raise `InputError` if it belongs to another sweep."""
    folder = SweepFolder(store.resolve() / SWEEPS / name, sweep)
    if (folder.path / "sweep.json").is_file():
        if open_sweep(folder.path).sweep.digest != sweep.digest:
            what = "is there already, with another scenario, other values, proxies or clock"
            hint = f"give another --name, or go on with the old one: --resume {name}"
            raise InputError(Problem(f"sweep {name}", what, hint))
        return folder
    for point in sweep.points:
        folder.point_folder(point).mkdir(parents=True, exist_ok=True)
        folder.scenario(point).write_text(point.text, encoding="utf-8")
    write_json(folder.path / "sweep.json", _plan(sweep))
    return folder


def _plan(sweep: Sweep) -> dict[str, Any]:
    points = [
        {"number": point.number, "settings": [vars(setting) for setting in point.settings]}
        for point in sweep.points
    ]
    return {
        "scenario": sweep.scenario,
        "proxies": sweep.proxies,
        "clock": sweep.clock,
        "digest": sweep.digest,
        "points": points,
    }


def open_sweep(path: Path) -> SweepFolder:
    """Open a stored sweep; raise `InputError` if a point's scenario has changed since it began."""
    plan = json.loads((path / "sweep.json").read_text())
    points = tuple(_point(path, entry) for entry in plan["points"])
    sweep = Sweep(plan["scenario"], plan["proxies"], points, plan.get("clock", REAL))
    if sweep.digest != plan["digest"]:
        what = "a point's scenario.yaml has changed since the sweep began"
        hint = "what is measured already would not fit: begin another sweep, with another --name"
        raise InputError(Problem(str(path), what, hint))
    return SweepFolder(path, sweep)


def _point(path: Path, entry: dict[str, Any]) -> Point:
    number: int = entry["number"]
    settings = tuple(Setting(**setting) for setting in entry["settings"])
    place = path / _numbered(number) / "scenario.yaml"
    return Point(number, settings, place.read_text(encoding="utf-8") if place.is_file() else "")


def _numbered(number: int) -> str:
    return f"{number:03}"


def find_sweep(store: Path, name: str) -> SweepFolder:
    """Open the sweep with this name, or the `latest` begun; raise `InputError` if none."""
    plans = sorted((store / SWEEPS).glob("*/sweep.json"), key=lambda plan: plan.stat().st_mtime)
    names = [plan.parent.name for plan in plans]
    wanted = names[-1] if name == "latest" and names else name
    if wanted not in names:
        known = ", ".join(names[-5:]) or "none"
        raise InputError(
            Problem(f"{store}: no sweep called {name!r}", "name one", f"there are: {known}")
        )
    return open_sweep(store.resolve() / SWEEPS / wanted)
