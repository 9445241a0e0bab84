"""A run: a scenario in, a run folder out.

For each fabric of the scenario: bring it up, execute its cases, take it down. For each case:
schedule, calibrate, predict, execute, compare.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import EmulationError
from model.fabric import FabricSpec
from results.comparison import CaseResult
from results.contract import run_object
from results.failures import Failure
from results.store import RunFolder, new_run_id
from scenarios.environment import environment
from scenarios.experiment import Experiment, case_schedule, experiment
from scenarios.failing import FailingCase
from scenarios.measuring import Measuring
from scenarios.progress import Listener
from scenarios.scenario import Case, Scenario
from testbed.marks import marked_run
from testbed.preflight import datapath
from testbed.proxies import ProxyKind


@dataclass(frozen=True)
class Run:
    """A run under way."""

    scenario: Scenario
    proxies: ProxyKind
    measuring: Measuring

    def execute(self) -> tuple[list[CaseResult], list[Failure]]:
        """All cases, fabric by fabric; where something breaks, each case has one of its own."""
        cases: list[CaseResult] = []
        failures: list[Failure] = []
        for spec in self.scenario.fabrics:
            on_fabric = self.scenario.cases_on(spec.kind)
            if not self.scenario.has_faults:
                with self._fabric(spec) as fabric:
                    cases += [self._case(case, fabric) for case in on_fabric]
                continue
            for case in on_fabric:
                with self._fabric(spec) as fabric:
                    failures.append(FailingCase(case, fabric, self.measuring).execute())
        return cases, failures

    @contextmanager
    def _fabric(self, spec: FabricSpec) -> Iterator[Experiment]:
        """A fabric that is up; what the controller and Open vSwitch have said is kept."""
        self.measuring.listener.step(f"{spec.kind}: {spec.gpus} GPUs come up")
        mark_id = f"run-{os.getpid()}-{spec.kind}"
        with marked_run(mark_id) as mark, experiment(spec, self.proxies, mark) as fabric:
            try:
                yield fabric
            finally:
                journal, log = fabric.bed.journal, fabric.bed.open_vswitch.log
                self.measuring.folder.keep(f"controller-{spec.kind}.jsonl", journal.read_text())
                self.measuring.folder.keep(f"open-vswitch-{spec.kind}.log", log.read_text())

    def _case(self, case: Case, fabric: Experiment) -> CaseResult:
        schedule = case_schedule(case, fabric.topology)
        warmup = self.scenario.warmup
        return self.measuring.measure(case.name, case.size_scale, schedule, fabric, warmup)


def run(scenario: Scenario, proxies: ProxyKind, store: Path, listener: Listener) -> dict[str, Any]:
    """Run a scenario; return its JSON object, which its folder in `store` keeps, too."""
    run_id = new_run_id(scenario.name)
    facts = environment(proxies.value, datapath())
    folder = RunFolder.create(store, run_id, scenario.text, facts)
    with _ending_recorded(folder):
        measuring = Measuring(scenario, folder, listener)
        cases, failures = Run(scenario, proxies, measuring).execute()
        listener.step("comparing")
        result = run_object(run_id, scenario.name, folder.path, cases, failures, machine=facts)
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
