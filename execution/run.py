"""A run: a scenario in, a run folder out.

For each fabric of the scenario: bring it up, calibrate its links, execute its cases, take it down.
For each case: schedule, measure idle paths, predict, execute, compare.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import starmap
from pathlib import Path
from typing import Any

from execution import link_check
from execution.cases.case import Measuring
from execution.cases.emulation import Experiment, experiment
from execution.cases.observer import captured, require_links
from execution.cases.progress import Listener
from execution.faults.fault_case import FaultCase
from execution.path_check import check_fabric
from linux.files.program_files import ROOT, program_version
from linux.machine.processor import model_name
from linux.machine.resources import full, of_the_machine
from linux.processes.interruptions import is_ending
from linux.processes.lifetime import first_line
from linux.processes.run_lock import RUNS
from model.errors import EmulationError, InputError, Interrupted, RailbedError
from model.fabric.spec import Datapath, FabricSpec
from model.measurement.link_quality import DirectionCalibration
from model.prediction.timeouts import with_timeout
from results.store.records import plain, report_bug, write_json
from results.store.runs import RunFolder, digest_of, folder_name, new_run_id
from results.store.tables import seal
from results.verdicts.fault_impact import FaultResult
from results.verdicts.model_comparison import CaseResult, with_paper
from results.verdicts.path_check import FabricCheck, verify_object
from results.verdicts.run import RunResult
from results.verdicts.verdict import is_timed
from scenarios.planning.machine_profile import in_virtual_clock
from scenarios.planning.on_paper import usual_s
from scenarios.planning.plan import crossings
from scenarios.scenario import Case, Scenario
from testbed.nodes.datapath import datapath_in_words, default_datapath
from testbed.nodes.docker_engine import IMAGE_FILE
from testbed.nodes.gpu_proxies import ProxyKind

LIBRARIES = ("docker", "mininet", "pyroute2", "ryu", "scapy")
SETTINGS = (
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/core/wmem_default",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
)
# Causes of an early end by the run's user.
INTERRUPTED = "interrupted"
UNREAD = "nobody read its output any more"


@dataclass(frozen=True)
class Run:
    """A run under way; frames on the links of `capture` are kept."""

    proxies: ProxyKind
    measuring: Measuring
    capture: Sequence[str] = ()
    checks: list[FabricCheck] = field(default_factory=list)
    calibrations: dict[str, tuple[DirectionCalibration, ...]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def execute(self) -> tuple[list[CaseResult], list[FaultResult]]:
        """Execute all cases, fabric by fabric; with faults, each case gets a fabric of its own."""
        cases: list[CaseResult] = []
        failures: list[FaultResult] = []
        scenario = self.measuring.scenario
        for given in scenario.fabrics:
            faults = scenario.faults.get(given.kind, ())
            spec = with_timeout(given, faults, self.measuring.listener.step)
            on_fabric = scenario.cases_on(spec.kind)
            if not scenario.has_faults:
                with self._fabric(spec, spec.kind) as fabric:
                    cases += [self._case(case, fabric) for case in on_fabric]
                continue
            for case in on_fabric:
                with self._fabric(spec, case.name) as fabric:
                    failures.append(self._fault_case(case, fabric))
        return cases, failures

    @contextmanager
    def _fabric(self, spec: FabricSpec, name: str) -> Iterator[Experiment]:
        """Bring up and check a fabric; keep its journal and Open vSwitch log under its name.

        Fabrics are named by their kind, or by the case that has one of its own.
        """
        listener, folder = self.measuring.listener, self.measuring.folder
        listener.step(f"{spec.kind}: {spec.gpus} GPUs come up")
        run_id, files = f"run-{os.getpid()}-{spec.kind}", folder_name(name)
        with experiment(spec, self.proxies, run_id, listener.step, self.others) as fabric:
            try:
                self._calibrate(fabric, name)
                if self.measuring.scenario.keys.check_paths:
                    self._check_paths(fabric)
                fabric.bed.links.impair()
                listener.show(fabric)
                with captured(fabric, self.capture, folder.path / f"capture-{files}"):
                    yield fabric
            finally:
                listener.show(None)
                journal, log = fabric.bed.controller.journal, fabric.bed.open_vswitch.log
                folder.keep(f"controller-{files}.jsonl", journal.read_text())
                folder.keep(f"open-vswitch-{files}.log", log.read_text())

    def _calibrate(self, fabric: Experiment, name: str) -> None:
        """Calibrate the links while they are idle; keep the results even if they end the run."""
        self.measuring.listener.step(f"{fabric.topology.spec.kind}: each class of links alone")
        measured = self.calibrations[name] = link_check.calibrate(fabric)
        kept = self.measuring.folder.path / f"calibration-{folder_name(name)}.json"
        write_json(kept, link_check.calibration_object(name, measured))
        link_check.require_calibrated(name, measured)
        self.measuring.known[fabric.topology.spec.kind] = tuple(
            link_check.inconclusive_reasons(name, measured)
        )

    def _check_paths(self, fabric: Experiment) -> None:
        """Check all paths while the fabric is idle; keep the results even if the run ends early."""
        self.measuring.listener.step(f"{fabric.topology.spec.kind}: the paths of all pairs")
        self.checks.append(check_fabric(fabric))
        write_json(self.measuring.folder.path / "paths.json", self.paths)

    @property
    def paths(self) -> dict[str, Any] | None:
        """Results of the path checks as a JSON object; `None` if there were no checks."""
        return verify_object(self.measuring.scenario.name, self.checks) if self.checks else None

    def _case(self, case: Case, fabric: Experiment) -> CaseResult:
        crossed = self._crossings(case, fabric)
        schedule = case.schedule(fabric.topology.spec)
        warmup = self.measuring.scenario.keys.warmup
        measured = self.measuring.measure(
            case.name, case.size_scale, schedule, fabric, warmup, case.generator
        )
        result = measured.judged()
        self._tell(case, result)
        result = with_paper(result, usual_s(case, fabric.topology.spec))
        return replace(result, rail_crossings=crossed)

    def _tell(self, case: Case, result: CaseResult | FaultResult) -> None:
        """Tell the verdict on a case, and its ratio unless its times mean nothing."""
        ratio = result.ratio if is_timed(vars(result)) else None
        self.measuring.listener.judged(case.name, result.verdict, ratio)

    def _crossings(self, case: Case, fabric: Experiment) -> tuple[str, ...]:
        """Tell how a case crosses rails on a rail-only fabric, and return it."""
        ways = tuple(crossings(case, fabric.topology.spec))
        for how in ways:
            self.measuring.listener.step(f"{case.name}: {how}")
        return ways

    def _fault_case(self, case: Case, fabric: Experiment) -> FaultResult:
        self._crossings(case, fabric)
        result = FaultCase(case, fabric, self.measuring).execute()
        self._tell(case, result)
        return result


def run(
    scenario: Scenario,
    proxies: ProxyKind,
    store: Path,
    listener: Listener,
    capture: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a scenario; return its JSON object, which its folder in `store` keeps, too.

    Frames on the links named in `capture` are kept as pcap files.
    """
    if capture:
        require_links(scenario, capture)
    datapath = scenario.fabrics[0].datapath or default_datapath()
    facts = environment(proxies, datapath)
    run_id, digest = new_run_id(scenario.name), digest_of(scenario.text)
    folder = RunFolder.planned(store, run_id)
    with recording_early_end(folder), folder.locked():
        folder.begin(scenario.text, facts)
        measuring = Measuring(scenario, folder, listener)
        under_way = Run(proxies, measuring, capture)
        cases, failures = under_way.execute()
        listener.step("comparing")
        measured = RunResult(
            run_id,
            scenario.name,
            folder.path,
            cases,
            failures,
            scenario_digest=digest,
            scales=[{"key": key, **asdict(chosen)} for key, chosen in scenario.chosen.items()],
            machine=facts,
            paths=under_way.paths,
            calibration=[*starmap(link_check.calibration_object, under_way.calibrations.items())],
        )
        result = plain(measured)
        folder.complete(result)
    seal(folder.path)
    return result


def environment(proxies: ProxyKind, datapath: Datapath) -> dict[str, Any]:
    """Read versions, sizes and settings of this machine."""
    return {
        "railbed": program_version(),
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "kernel": platform.release(),
        "cpu": model_name(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load_average": os.getloadavg(),
        "proxies": proxies.value,
        "datapath": datapath_in_words(datapath),
        "open_vswitch": first_line("ovs-vswitchd", "--version"),
        "docker": first_line("docker", "--version"),
        "image": _read(IMAGE_FILE),
        "libraries": {name: version(name) for name in LIBRARIES},
        "settings": {place: _read(Path(place)) for place in SETTINGS},
    }


def _read(place: Path) -> str:
    return place.read_text().strip() if place.exists() else "not there"


@contextmanager
def recording_early_end(folder: RunFolder) -> Iterator[None]:
    """Record an early end in the run's folder; add the folder's path to an `EmulationError`.

    If a file system is full, the cause names it: parts of the testbed die of that, too.
    """
    try:
        yield
    except BaseException as error:
        if is_ending() or isinstance(error, KeyboardInterrupt):
            _record(folder, INTERRUPTED)
            if isinstance(error, RailbedError):
                raise Interrupted(error) from error
            raise KeyboardInterrupt from error
        # What ends meanwhile may have made the folder again; a store that is refused never had one.
        failed = isinstance(error, Exception) and not isinstance(error, InputError)
        if failed and not (folder.path / "state.json").exists():
            raise EmulationError(f"{folder.path}: removed during the run ({error})") from error
        of_machine = of_the_machine(error)
        if of_machine or isinstance(error, EmulationError):
            cause = "\n".join(filter(None, (full((folder.path, RUNS)), of_machine or str(error))))
            _record(folder, cause)
            # The virtual clock's machine ends with its folders: outside, the copy is named.
            where = "" if in_virtual_clock() else f"\nThe records until then are in {folder.path}."
            raise EmulationError(f"{cause}{where}") from error
        unread = isinstance(error, SystemExit)  # Rich makes it of a broken pipe
        _record(folder, UNREAD if unread else f"{type(error).__name__}: {error}")
        if isinstance(error, Exception) and not isinstance(error, RailbedError):
            raise report_bug(error, folder.path) from error
        raise


def _record(folder: RunFolder, cause: str) -> None:
    with suppress(OSError):  # if nothing can be written any more, the cause is only printed
        folder.incomplete(cause)
