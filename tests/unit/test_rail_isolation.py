"""What crosses rails on a rail-only fabric is told of cases and of jobs, before and in a run."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from execution.cases.case import Measuring
from execution.cases.emulation import Experiment
from execution.cases.progress import Listener
from execution.run import Run
from model.fabric.build import build_topology
from model.fabric.job_grid import JobGrid
from model.fabric.spec import FabricKind, FabricSpec
from model.workload.transfers.collective import Collective
from results.render.terminal import print_sections
from results.report.run import run_article
from results.report.run_data import read_run
from results.sections.run import run_sections
from results.store.records import plain
from results.verdicts.model_comparison import CaseResult
from results.verdicts.run import RunResult
from results.verdicts.verdict import Verdict
from scenarios.load import load
from scenarios.planning.plan import rail_crossings
from scenarios.scenario import Scenario
from testbed.nodes.gpu_proxies import ProxyKind
from tests.unit.articles import sections_of
from tests.unit.stored_runs import stored_run
from tests.unit.test_results import result
from traffic_gen.workloads.sized_collective import SizedCollective

HEAD = "fabric: {domains: 4, domain_size: 4, platform: dgx-h100, bandwidth_scale: 20000}\n"
PAIRWISE = "collective: all-to-all, algorithm: pairwise, size: 8 MB"
RING = "collective: all-reduce, algorithm: ring, size: 8 MB"
JOINED = "rails and HB domains do not connect its GPUs, other GPUs forward for them"
DIAGONAL = f"communicator d0g0+d1g1 crosses rails: {JOINED}"
APART = "share neither rail nor HB domain: other GPUs forward for them"
SHARE = f"144 of 240 sending pairs of GPUs {APART}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


@dataclass(frozen=True)
class Said(Listener):
    """Keeps the steps and the ratios of a run."""

    said: list[str]
    ratios: list[float | None] = field(default_factory=list)

    def judged(self, case: str, verdict: Verdict, ratio: float | None) -> None:
        self.ratios.append(ratio)

    def step(self, what: str) -> None:
        self.said.append(what)


@dataclass(frozen=True)
class Told:
    """Keeps what a run says; measures nothing."""

    scenario: Scenario
    said: list[str]
    changes: dict[str, Any] = field(default_factory=dict)
    ratios: list[float | None] = field(default_factory=list)

    @property
    def listener(self) -> Said:
        return Said(self.said, self.ratios)

    def measure(self, name: str, *_: Any) -> "Told":
        self.said.append(f"{name} is measured")
        return self

    def judged(self) -> CaseResult:
        return replace(result(), **self.changes)


class OnPaper(Run):
    """A run whose fabrics are never brought up."""

    @contextmanager
    def _fabric(self, spec: FabricSpec, name: str) -> Iterator[Experiment]:
        yield cast(Experiment, SimpleNamespace(topology=build_topology(spec)))


def test_a_run_tells_it_before_the_case_and_keeps_it(file: Path) -> None:
    file.write_text(f"{HEAD}workloads:\n- {{{PAIRWISE}}}\n- {{{RING}}}\n")
    told = Told(load(file), [])
    run = OnPaper(ProxyKind.PROCESS, cast(Measuring, told))
    cases, _ = run.execute()
    name = "all-to-all/pairwise"
    assert told.said[:2] == [f"rail-only/{name}: {SHARE}", f"rail-only/{name} is measured"]
    assert [case.rail_crossings for case in cases] == [(SHARE,), (), (), ()]


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [({}, result().ratio), ({"incomplete": True}, None), ({"data_is_right": True}, None)],
)
def test_times_that_mean_nothing_are_told_without_a_ratio(
    file: Path, changes: dict[str, Any], ratio: float | None
) -> None:
    file.write_text(f"{HEAD}workloads:\n- {{{RING}, kinds: rail-only}}\n")
    told = Told(load(file), [], changes)
    OnPaper(ProxyKind.PROCESS, cast(Measuring, told)).execute()
    assert told.ratios == [ratio]


def test_the_communicator_of_a_job_is_told_as_one(file: Path) -> None:
    top = f"{{name: top, domains: 0-1, {RING}, communicator: [d0g0, d1g1]}}"
    bottom = f"{{name: bottom, domains: 2-3, rails: 1-2, {PAIRWISE}}}"
    jobs = f"workloads:\n- time_dilation: 10000\n  kinds: rail-only\n  jobs: [{top}, {bottom}]\n"
    file.write_text(HEAD + jobs)
    few = f"4 of 12 sending pairs of GPUs {APART}"
    assert list(rail_crossings(load(file))) == [
        f"rail-only/jobs/top: job top: {DIAGONAL}",
        f"rail-only/jobs/bottom: job bottom: {few}",
        f"rail-only/jobs/top+bottom: job top: {DIAGONAL}",
        f"rail-only/jobs/top+bottom: job bottom: {few}",
    ]


def test_one_pair_that_crosses_is_told_in_the_singular() -> None:
    task, grid = SizedCollective(Collective.ALL_TO_ALL, "direct", (2, 2), 8), JobGrid(2, 2)
    told = "1 of 2 sending pairs of GPUs shares neither rail nor HB domain"
    assert task.crossing(np.array([[0, 0], [1, 3]]), grid).startswith(told)


def test_pairs_of_large_fabrics_are_not_counted(file: Path) -> None:
    file.write_text(f"{HEAD}workloads:\n- {{{PAIRWISE}}}\n")
    assert len(list(rail_crossings(load(file, ["fabric.domains=64"])))) == 1
    assert list(rail_crossings(load(file, ["fabric.domains=65"]))) == []


def test_the_object_and_the_table_of_a_run_have_it() -> None:
    crossing, other = (
        replace(result(), rail_crossings=(SHARE,)),
        result(kind=FabricKind.RAIL_OPTIMIZED),
    )
    found = plain(RunResult("id", "scenario", Path(), [crossing, other]))
    assert found["cases"][0]["rail_crossings"] == [SHARE]
    assert "rail_crossings" not in found["cases"][1]
    text = io.StringIO()
    print_sections(run_sections(found), Console(file=text, width=200))
    assert f"\nrail-only/all-to-all/two-step: {SHARE}\n" in text.getvalue()


def test_the_report_of_a_run_has_it(tmp_path: Path) -> None:
    run = read_run(stored_run(tmp_path))
    title = "Rails that are crossed without a spine switch"
    assert title not in [section.title for section in sections_of(run_article(run, {}))]
    run.result["cases"][1]["rail_crossings"] = [SHARE]
    (section,) = (one for one in sections_of(run_article(run, {})) if one.title == title)
    assert section.remarks == [f"rail-only/all-to-all/direct: {SHARE}"]
