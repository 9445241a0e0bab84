"""The points of the paper's figures, each a scenario with changes; they are planned and measured.

Stored points are not run again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from execution.cases.progress import Listener
from execution.sweep.runner import human_remaining
from model.errors import InputError
from model.fabric.spec import PLATFORMS
from model.sweep import REAL
from results.store.records import reading
from results.store.runs import clock_of, digest_of, read_result, stored_runs
from results.verdicts.verdict import Verdict
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.planning.plan import predicted_profile
from scenarios.scenario import Scenario
from studies.paper import study

GPUS = 16
# The rate of an emulated NIC: with the fastest HB domain, 16 GPUs are no load for two cores.
NIC_BPS = 10e6
FIG8, FIG9, FIG10 = "fig8", "fig9", "fig10"
ALL_TO_ALL, TABLE2, FAULTS = "section-iv-b", "table2", "section-iv-c"

# Equivalents of a twin's domain in the paper: half a tensor-parallel group, one group (8 GPUs),
# groups of a few copies, of many, of all (the ideal network).
STANDS_FOR: dict[int, int | None] = {1: 4, 2: 8, 4: 32, 8: 256, 16: None}
IDEAL = GPUS
SMALL, LARGE = (size for size, full in STANDS_FOR.items() if full in study.DOMAIN_SIZES)
# Keys of figure 9's places, and its slowest bandwidths.
HB, NIC = "HB Tbit/s", "NIC Gbit/s"
SLOWEST = {HB: min(study.HB_RATES) / study.TBIT, NIC: min(study.NIC_RATES) / study.GBIT}
# Models of figure 8, and the dilations with which an iteration takes a few seconds.
DILATIONS = {"gpt-146b": 100, "gpt-1t": 20}
# Numbers of HB domains of section IV-B, with the platform that has the paper's larger slowdown.
DOMAINS, VARIED_PLATFORM = (2, 3, 4, 8), "dgx-h100"
USUAL_DOMAINS = 4
# The scenarios of table II, by the model of their iterations.
NETWORKS = {"gpt-1t": "paper-networks", "moe-1.3b": "paper-networks-moe"}
# Failure experiments of the library, by the part that fails and the job's recovery.
EXPERIMENTS = {
    "nic-link-down": "a NIC link; its traffic goes on by the other rails",
    "rail-switch-down": "a rail switch; its traffic goes on by the other rails",
    "gpu-lost-spare": "a GPU; a spare of its domain takes its place",
    "domain-lost": "an HB domain; a spare domain takes its place",
}

Result = dict[str, Any]
# Seconds until a fabric is up and its links are measured, until a case's idle paths are, and
# between two executions.
FABRIC_S, CASE_S, PAUSE_S = 5.0, 1.0, 0.3
# Phases of a failure experiment: baseline, during fault, degraded, recovered.
PHASES = 4

Place = Mapping[str, str | float]


@dataclass(frozen=True)
class Twin:
    """A scenario of the library with changes (`KEY=VALUE`), and its place in a figure."""

    figure: str
    place: Place
    scenario: str
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The figure and the place in words."""
        values = self.place.items()
        where = (
            f"{key} {one}" if isinstance(one, str) else f"{key} {one:g}" for key, one in values
        )
        return ", ".join((self.figure, *where))


def _iteration(figure: str, place: Place, *changes: str) -> Twin:
    """An iteration with HB domains of the place's size K."""
    size = int(place["K"])
    shape = (f"fabric.domains={GPUS // size}", f"fabric.domain_size={size}")
    return Twin(figure, place, "paper-iteration", (*shape, *changes))


def _figure_8() -> Iterator[Twin]:
    for model, dilation in DILATIONS.items():
        changes = f"workloads.0.iteration=paper-{model}", f"workloads.0.time_dilation={dilation}"
        for size in STANDS_FOR:
            yield _iteration(FIG8, {"model": model, "K": size}, *changes)


def _figure_9() -> Iterator[Twin]:
    for size, nic, hb in product((SMALL, LARGE), study.NIC_RATES, study.HB_RATES):
        rates = f"{hb / study.TBIT:g} Tbit/s", f"{nic / study.GBIT:g} Gbit/s"
        changes = (f"fabric.hb_rate={rates[0]}", f"fabric.nic_rate={rates[1]}")
        yield _iteration(FIG9, {"K": size, HB: hb / study.TBIT, NIC: nic / study.GBIT}, *changes)


def _figure_10() -> Iterator[Twin]:
    for size, batch in product((SMALL, LARGE, IDEAL), study.BATCHES):
        yield _iteration(FIG10, {"K": size, "batch": batch}, f"workloads.0.batch={batch}")


def _all_to_alls() -> Iterator[Twin]:
    for name in study.PLATFORM_NAMES:
        scale = PLATFORMS[name].nic_rate_bps / NIC_BPS
        changes = (f"fabric.platform={name}", f"fabric.bandwidth_scale={scale:g}")
        for domains in DOMAINS if name == VARIED_PLATFORM else (USUAL_DOMAINS,):
            place: Place = {"platform": name, "y": domains}
            shape = f"fabric.domains={domains}"
            yield Twin(ALL_TO_ALL, place, "paper-all-to-all", (*changes, shape))


TWINS = (
    *_all_to_alls(),
    *(Twin(TABLE2, {"model": model}, name) for model, name in NETWORKS.items()),
    *_figure_8(),
    *_figure_9(),
    *_figure_10(),
    *(Twin(FAULTS, {"experiment": name}, name) for name in EXPERIMENTS),
)


@dataclass(frozen=True)
class Planned:
    """A twin and its scenario; `stored` is its run, if there is one."""

    twin: Twin
    scenario: Scenario
    stored: Result | None

    @property
    def digest(self) -> str:
        """The digest of its scenario, by which stored runs are found."""
        return digest_of(self.scenario.text)

    @cached_property
    def estimated_s(self) -> float:
        """Estimated duration of its run: modeled times, and the preparations before them."""
        scenario = self.scenario
        executions = scenario.keys.warmup + scenario.repeats.least
        phases = PHASES if scenario.has_faults else 1
        fabrics = len(scenario.cases) if scenario.has_faults else len(scenario.fabrics)
        modeled_s = (
            predicted_profile(case, scenario.spec_of(case.kind)).completion_s
            for case in scenario.cases
        )
        cases_s = (CASE_S + phases * executions * (one + PAUSE_S) for one in modeled_s)
        return fabrics * FABRIC_S + sum(cases_s)


def scenario_of(twin: Twin) -> Scenario:
    """The scenario of a twin, with its changes."""
    return load(LIBRARY / f"{twin.scenario}.yaml", twin.changes)


def planned(twins: Sequence[Twin], store: Path) -> list[Planned]:
    """Plan twins; several may have the same scenario, which runs once.

    A stored run counts if it is complete, its scenario is the same to the letter, and it was
    measured by the real clock on a machine that kept up.
    """
    known, scenarios = dict(_stored(store)), [scenario_of(twin) for twin in twins]
    return [
        Planned(twin, scenario, known.get(digest_of(scenario.text)))
        for twin, scenario in zip(twins, scenarios, strict=True)
    ]


def _stored(store: Path) -> Iterator[tuple[str, Result]]:
    """Yield the scenario's digest and the JSON object of every run that counts, oldest first."""
    for folder in stored_runs(store):
        with suppress(InputError), reading(folder):
            result = read_result(folder)
            if "scenario_digest" in result and clock_of(result) == REAL and _kept_up(result):
                yield result["scenario_digest"], result


def _kept_up(result: Result) -> bool:
    """Whether the fidelity of no case or phase is *fail*, which is judged without the model."""
    of_cases = (case["fidelity"] for case in result["cases"])
    of_phases = (failure["fidelity"].values() for failure in result["failures"])
    return all(judged["verdict"] != Verdict.FAIL for judged in chain(of_cases, *of_phases))


def to_run(plan: Sequence[Planned]) -> dict[str, Planned]:
    """The points that must be run, by digest: one of those with the same scenario."""
    return {point.digest: point for point in plan if point.stored is None}


def measure(
    plan: Sequence[Planned], run: Callable[[Scenario], Result], listener: Listener
) -> list[Result]:
    """Return the JSON object of each point's run: the stored one, or that of a new run."""
    left_s = {digest: point.estimated_s for digest, point in to_run(plan).items()}
    done, points, estimated_s, took_s = dict[str, Result](), len(left_s), 0.0, 0.0
    for point in plan:
        if point.stored is not None:
            listener.step(f"{point.twin.name}: stored as {point.stored['run_id']}")
            done[point.digest] = point.stored
        elif point.digest not in done:
            # Points take as much longer than estimated as those that have ended.
            pace = took_s / estimated_s if estimated_s else 1.0
            left = human_remaining(pace * sum(left_s.values()))
            number = points - len(left_s) + 1
            listener.step(f"{point.twin.name}: point {number} of {points} begins; {left}")
            begun_s = time.monotonic()
            done[point.digest] = run(point.scenario)
            took_s += time.monotonic() - begun_s
            estimated_s += left_s.pop(point.digest)
    return [done[point.digest] for point in plan]
