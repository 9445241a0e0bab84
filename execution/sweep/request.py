"""Request of `railbed sweep`: to begin a sweep, or to resume one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from execution.sweep.points import Check, anything_elsewhere, check_again, planned
from model.errors import InputError, Problem
from model.sweep import REAL, VIRTUAL
from results.store.sweeps import SweepFolder, begin_sweep, find_sweep

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class SweepRequest:
    """Arguments of the command; None or empty if not given."""

    scenario: Path | None
    over: tuple[str, ...]
    overrides: tuple[str, ...]
    proxies: str | None
    name: str | None
    resume: str | None
    clock: str | None = None

    def folder(self, store: Path, check: Check) -> SweepFolder:
        """Return the sweep's folder, all points checked; raises `InputError` with all problems.

        `check` asks this kernel. With the virtual clock, points have a kernel of their own.
        """
        problems = tuple(self._problems())
        if problems:
            raise InputError(*problems)
        if self.scenario is None:
            folder = find_sweep(store, self.resume or "latest")
            check = check if folder.sweep.clock == REAL else anything_elsewhere
            check_again(folder.sweep.points, folder.scenario, check)
            return folder
        clock = self.clock or REAL
        check = check if clock == REAL else anything_elsewhere
        proxies = self.proxies or ("process" if clock == VIRTUAL else "container")
        sweep = planned(self.scenario, self.over, self.overrides, proxies, check, clock)
        return begin_sweep(store, self.name or sweep.name, sweep)

    def _problems(self) -> Iterator[Problem]:
        if self.scenario is None and self.resume is None:
            yield Problem(
                "sweep", "needs a scenario, or --resume NAME", "see docs/guides/sweeps.md"
            )
        given = {
            "SCENARIO": self.scenario,
            "--over": self.over,
            "--set": self.overrides,
            "--proxies": self.proxies,
            "--clock": self.clock,
            "--name": self.name,
        }
        beside = [option for option, value in given.items() if value]
        if self.resume is not None and beside:
            what = f"goes without {', '.join(beside)}"
            yield Problem("--resume", what, "a sweep goes on as it was begun")
        if self.name is not None and (self.name == "latest" or not NAME.fullmatch(self.name)):
            what = f"must be up to 80 letters, digits, '-', '_' and '.', got {self.name!r}"
            yield Problem("--name", what, "and not 'latest', which is the sweep begun last")
