"""A run: a scenario in, a run folder out.

For each fabric of the scenario: bring it up, execute its cases, take it down. For each case:
schedule, calibrate, predict, execute, compare.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.errors import EmulationError
from model.fabric import FabricSpec
from model.measurement import Repeat
from results.comparison import CaseResult, Measured, Thresholds, compare
from results.contract import run_object
from results.store import RunFolder, new_run_id
from scenarios.environment import environment
from scenarios.experiment import Experiment, case_schedule, experiment
from scenarios.progress import Listener
from scenarios.scenario import Case, Scenario
from testbed.marks import marked_run
from testbed.preflight import datapath
from testbed.proxies import ProxyKind
from traffic_gen.fleet import Incomplete


@dataclass(frozen=True)
class Run:
    """A run under way."""

    scenario: Scenario
    proxies: ProxyKind
    folder: RunFolder
    listener: Listener

    def execute(self) -> list[CaseResult]:
        """All cases, fabric by fabric."""
        return [result for spec in self.scenario.fabrics for result in self._on(spec)]

    def _on(self, spec: FabricSpec) -> Iterator[CaseResult]:
        """The cases of one fabric."""
        self.listener.step(f"{spec.kind}: {spec.gpus} GPUs come up")
        mark_id = f"run-{os.getpid()}-{spec.kind}"
        with marked_run(mark_id) as mark, experiment(spec, self.proxies, mark) as fabric:
            try:
                for case in self.scenario.cases_on(spec.kind):
                    yield self._case(case, fabric)
            finally:
                journal, log = fabric.bed.journal, fabric.bed.open_vswitch.log
                self.folder.keep(f"controller-{spec.kind}.jsonl", journal.read_text())
                self.folder.keep(f"open-vswitch-{spec.kind}.log", log.read_text())

    def _case(self, case: Case, fabric: Experiment) -> CaseResult:
        scenario = self.scenario
        schedule = case_schedule(case, fabric.topology)
        prediction = fabric.predict(schedule)
        self.folder.begin_case(case.name, fabric.topology, prediction, schedule.digest)
        before = fabric.counters()
        count = scenario.warmup + scenario.repeats
        executions: list[Repeat] = []
        self.listener.step(case.name)
        try:
            for repeat in fabric.repeats(schedule, prediction, count, verify=scenario.verify):
                executions.append(self._keep(case, repeat))
        except Incomplete as broken:
            executions.append(self._keep(case, broken.repeat))
            raise
        finally:
            after = fabric.counters()
            self.folder.end_case(
                case.name, scenario.warmup, tuple(executions), _plain(before), _plain(after)
            )
        measured = Measured(
            topology=fabric.topology,
            schedule=schedule,
            warmups=tuple(executions[: scenario.warmup]),
            repeats=tuple(executions[scenario.warmup :]),
            dropped_packets=_dropped(after) - _dropped(before),
        )
        expect = scenario.expect
        limits = Thresholds(expect.ratio_within, expect.ratio_limit)
        return compare(case.name, measured, prediction, case.size_scale, limits)

    def _keep(self, case: Case, repeat: Repeat) -> Repeat:
        self.folder.add_repeat(case.name, repeat)
        self.listener.done(case.name)
        return repeat


def run(scenario: Scenario, proxies: ProxyKind, store: Path, listener: Listener) -> dict[str, Any]:
    """Run a scenario; return its JSON object, which its folder in `store` keeps, too."""
    run_id = new_run_id(scenario.name)
    facts = environment(proxies.value, datapath())
    folder = RunFolder.create(store, run_id, scenario.text, facts)
    with _ending_recorded(folder):
        cases = Run(scenario, proxies, folder, listener).execute()
        listener.step("comparing")
        result = run_object(run_id, scenario.name, folder.path, cases, machine=facts)
        folder.complete(result)
    return result


@contextmanager
def _ending_recorded(folder: RunFolder) -> Iterator[None]:
    """A run that ends early says so in its folder, and where that is."""
    try:
        yield
    except EmulationError as error:
        folder.incomplete(str(error))
        message = f"{error}\nWhat was recorded until then is in {folder.path}."
        raise EmulationError(message) from error
    except BaseException as error:
        folder.incomplete(f"{type(error).__name__}: {error}")
        raise


def _plain(counters: Mapping[str, Any]) -> dict[str, Any]:
    return {link: asdict(values) for link, values in counters.items()}


def _dropped(counters: Mapping[str, Any]) -> int:
    return sum(values.dropped_packets for values in counters.values())
