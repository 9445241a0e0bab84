"""The store of sweeps: one folder a sweep, with its points and their outcomes.

    STORE/sweeps/NAME/sweep.json                 the plan: points, their settings, the digest
    STORE/sweeps/NAME/001/scenario.yaml          the complete scenario of the point
    STORE/sweeps/NAME/001/point.json  log.txt    its state; the output of its run
    STORE/sweeps/NAME/001/RUN                    its run folder

A point without `point.json` is waiting; one whose `point.json` has no exit code is under way or was
interrupted.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from linux.files.program_files import program_version
from linux.files.user_files import cleared, give, make_folder, sync, take_lock
from model.errors import InputError, Problem, refusing
from model.sweep import Point, Setting, Sweep
from results.store.records import read_json, read_record, reading, write_json
from results.store.runs import SWEEPS, entries, read_result, storing

PLAN_FILE, SCENARIO, STATE = "sweep.json", "scenario.yaml", "point.json"
# Exit codes of completely measured runs: all expectations met, or not.
WITH_RESULT = (0, 1)


@dataclass(frozen=True)
class Outcome:
    """How a point ended: its run's exit code and folder, and the `cause` of a missing result."""

    exit_code: int
    run: Path | None
    took_s: float
    cause: str = ""

    @property
    def has_result(self) -> bool:
        """Whether the point has a result, of any verdict: its run did not end early."""
        return self.run is not None and self.exit_code in WITH_RESULT

    @property
    def how(self) -> str:
        """How the point ended, on one line."""
        if not self.has_result:
            return f"failed after {self.took_s:.1f} s: {self.cause.partition(chr(10))[0]}"
        verdict = "failed its expectations" if self.exit_code else "done"
        return f"{verdict} after {self.took_s:.1f} s"


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder, with one for each point; `version` is the program's at its begin."""

    path: Path
    sweep: Sweep
    version: str

    @property
    def name(self) -> str:
        """The name of the sweep, as `--resume` takes it."""
        return self.path.name

    def point_folder(self, point: Point) -> Path:
        """Return the folder of a point."""
        return self.path / f"{point.number:03}"

    def scenario(self, point: Point) -> Path:
        """Return the scenario file of a point."""
        return self.point_folder(point) / SCENARIO

    def begin(self, point: Point) -> None:
        """Mark the point as under way."""
        write_json(self.point_folder(point) / STATE, {"exit_code": None})

    def end(self, point: Point, outcome: Outcome) -> None:
        """Write the point's outcome; its run folder by name only, as the store may be moved."""
        run = None if outcome.run is None else outcome.run.name
        write_json(self.point_folder(point) / STATE, {**asdict(outcome), "run": run})

    def outcome(self, point: Point) -> Outcome | None:
        """Return how the point ended, `None` if it has not; raise `InputError` if it is damaged."""
        place = self.point_folder(point) / STATE
        if not os.path.isfile(place):
            return None
        kept = read_json(place)
        with reading(place):
            if kept["exit_code"] is None:
                return None
            run = self.point_folder(point) / Path(kept["run"]).name if kept["run"] else None
            return OUTCOME.validate_python({**kept, "run": run})

    def result(self, point: Point) -> dict[str, Any] | None:
        """Return a point's JSON object, if it has one; raise `InputError` if it is damaged."""
        outcome = self.outcome(point)
        if outcome is None or outcome.run is None or not outcome.has_result:
            return None
        return read_result(outcome.run)

    @property
    def took_s(self) -> list[float]:
        """Seconds that each point took that has a result."""
        took_s = list[float]()
        for point in self.sweep.points:
            with suppress(InputError):
                if (outcome := self.outcome(point)) and outcome.has_result:
                    took_s.append(outcome.took_s)
        return took_s

    @property
    def damage(self) -> dict[int, str]:
        """The issue of each damaged point, by their numbers."""
        return {point.number: issue for point, _, issue in self._results() if issue}

    @property
    def unfinished(self) -> tuple[Point, ...]:
        """The points without a result, in order; one that ended without a result is run again."""
        return tuple(point for point, result, _ in self._results() if result is None)

    def _results(self) -> Iterator[tuple[Point, dict[str, Any] | None, str]]:
        """Yield every point, its result if it has one, and the issue if it is damaged."""
        for point in self.sweep.points:
            try:
                result, issue = self.result(point), ""
            except InputError as error:
                result, issue = None, str(error)
            yield point, result, issue

    def require_version(self) -> None:
        """Raise `InputError` unless the program is the one with which the sweep began."""
        if self.version != (now := program_version()):
            what = f"must be resumed with Railbed {self.version}, got {now}"
            hint = "results of two versions are not comparable: start another --name"
            raise InputError(Problem(f"sweep {self.name}", what, hint))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the sweep; raise `InputError` if another process runs it, or it cannot be locked."""
        place, flags = self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        with refusing(place, "cannot be locked", "resume it as its owner, or with `sudo`"):
            descriptor = os.open(place, flags, 0o600)
            give(place)
        with os.fdopen(descriptor) as lock:
            if not take_lock(lock):
                what = "another process runs this sweep"
                raise InputError(Problem(str(self.path), what, "wait for it, or stop it"))
            yield


OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True)
class _Plan:
    """The content of sweep.json."""

    number: int
    version: str
    scenario: str
    proxies: str
    clock: str
    digest: str
    points: tuple["_PlannedPoint", ...]


@dataclass(frozen=True)
class _PlannedPoint:
    number: int
    settings: tuple[Setting, ...]
    files: str


PLAN = TypeAdapter(_Plan)


def begin_sweep(
    store: Path, name: str, sweep: Sweep, require: Callable[[], None] = lambda: None
) -> SweepFolder:
    """Create or find a sweep's folder; raise `InputError` if it belongs to another sweep.

    Raises it, too, if the store cannot be written. `require` is called for a new sweep: what it
    refuses gets no folder, and does not become the latest.
    """
    place = store.resolve() / SWEEPS / name
    if os.path.isfile(place / PLAN_FILE):
        folder = open_sweep(place)
        if folder.sweep.digest != sweep.digest:
            what = "already exists with another scenario, other values, proxies or clock"
            hint = f"give another --name, or resume it: --resume {name}"
            raise InputError(Problem(f"sweep {name}", what, hint))
        return folder
    require()
    folder = SweepFolder(place, sweep, program_version())
    with storing("sweeps", store):
        _write(folder, 1 + max(map(_number, _plans(store)), default=0))
    return folder


def _write(folder: SweepFolder, number: int) -> None:
    """Write the points, then the plan, with which the sweep is complete."""
    sweep = folder.sweep
    for point in sweep.points:
        make_folder(folder.point_folder(point))
        with cleared(folder.scenario(point)).open("x", encoding="utf-8") as file:
            file.write(point.text)
    give(folder.path)
    sync(folder.path)
    points = tuple(_PlannedPoint(p.number, p.settings, p.files) for p in sweep.points)
    made_of = sweep.scenario, sweep.proxies, sweep.clock, sweep.digest
    write_json(folder.path / PLAN_FILE, asdict(_Plan(number, folder.version, *made_of, points)))


def open_sweep(path: Path) -> SweepFolder:
    """Open a stored sweep; raise `InputError` if it is damaged, or a scenario has changed."""
    plan = _plan(path / PLAN_FILE)
    points = tuple(
        Point(p.number, p.settings, read_record(path / f"{p.number:03}" / SCENARIO), p.files)
        for p in plan.points
    )
    sweep = Sweep(plan.scenario, plan.proxies, points, plan.clock)
    if sweep.digest != plan.digest or not points:
        what = "a point's scenario.yaml has changed since the sweep began"
        hint = "its results would not be comparable: start another --name"
        raise InputError(Problem(str(path), what, hint))
    return SweepFolder(path, sweep, plan.version)


def _plan(place: Path) -> _Plan:
    content = read_json(place)
    with reading(place):
        return PLAN.validate_python(content)


def is_recorded(place: Path) -> bool:
    """Whether a place is the folder of a run or a sweep, or in one: all there are its records."""
    real = Path(os.path.realpath(place))
    return any(
        all(os.path.exists(above / name) for name in ("state.json", "environment.json"))
        or (above.parent.name == SWEEPS and os.path.exists(above / PLAN_FILE))
        for above in (real, *real.parents)
    )


def find_sweep(store: Path, name: str) -> SweepFolder:
    """Open the sweep with this name, or the `latest` begun; raise `InputError` if none."""
    plans = sorted(_plans(store), key=lambda plan: (_number(plan), plan.stat().st_mtime))
    names = [plan.parent.name for plan in plans]
    wanted = names[-1] if name == "latest" and names else name
    if not names:
        hint = "begin one by `./railbed sweep`, or name another --store"
        raise InputError(Problem(str(store), "has no sweeps", hint))
    if wanted not in names:
        known, what = ", ".join(names[-5:]), f"{store}: sweep {name!r} not found"
        raise InputError(Problem(what, "name one", f"known: {known}"))
    return open_sweep(store.resolve() / SWEEPS / wanted)


def _plans(store: Path) -> list[Path]:
    plans = (sweep / PLAN_FILE for sweep in entries(store / SWEEPS))
    return [plan for plan in plans if os.path.exists(plan)]


def _number(plan: Path) -> int:
    """The number of a sweep in its store; 0 if it is damaged."""
    try:
        return _plan(plan).number
    except InputError:
        return 0
