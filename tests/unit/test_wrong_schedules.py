"""Algorithms that are wrong, or refuse a grid of GPUs: bad input, with the workload's place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands.app import main
from model.errors import InputError
from model.fabric.spec import FabricKind
from model.prediction.closed_forms import RING
from model.workload.transfers.collective import Collective
from model.workload.transfers.proof import ScheduleError
from scenarios.load import load
from scenarios.planning.plan import estimate, plan, real_task
from tests.unit.fabrics import spec
from traffic_gen.workloads.algorithms.builder import Builder
from traffic_gen.workloads.algorithms.collectives import (
    ALGORITHMS,
    Algorithm,
    algorithms_of,
)
from traffic_gen.workloads.algorithms.reductions import ring_all_gather, ring_reduce_scatter
from traffic_gen.workloads.sized_collective import SizedCollective

SCENARIO = """\
fabric:
  domains: {domains}
  domain_size: {domain_size}
  platform: dgx-h100
  bandwidth_scale: 20000
workloads:
  - {{collective: all-gather, algorithm: ring, size: 12 MB}}
  - collective: all-gather
    algorithm: {algorithm}
    size: 12 MB
"""

Enter = Callable[[str, Callable[[Builder], object]], None]


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Enter a function as an AllGather for the time of the test; names are not used twice."""

    def entered(name: str, build: Callable[[Builder], object]) -> None:
        assert (Collective.ALL_GATHER, name) not in ALGORITHMS
        monkeypatch.setitem(ALGORITHMS, (Collective.ALL_GATHER, name), Algorithm(build, RING))

    return entered


def write(file: Path, algorithm: str, domains: int = 4, domain_size: int = 2) -> Path:
    file.write_text(SCENARIO.format(algorithm=algorithm, domains=domains, domain_size=domain_size))
    return file


def problem(file: Path, algorithm: str, domains: int = 4, domain_size: int = 2) -> str:
    """Return the one error message for a scenario with this algorithm."""
    with pytest.raises(InputError) as caught:
        load(write(file, algorithm, domains, domain_size))
    (found,) = caught.value.problems
    return str(found)


def power_of_two(build: Builder) -> None:
    """Refuse other numbers of GPUs than powers of two."""
    if build.gpus.bit_count() != 1:
        raise ScheduleError(f"needs a power of two of GPUs, got {build.gpus}")
    ring_all_gather(build)


def thirds(build: Builder) -> None:
    """Refuse other numbers of domains than multiples of three."""
    if build.domains % 3:
        raise ScheduleError(f"needs a multiple of three domains, got {build.domains}")
    ring_all_gather(build)


def nothing(_build: Builder) -> None:
    """Send nothing."""


def wrong_on_many(build: Builder) -> None:
    """Do the work of an AllGather on up to 64 GPUs only."""
    (ring_all_gather if build.gpus <= 64 else ring_reduce_scatter)(build)


@pytest.mark.parametrize("domains", [4, 40])
def test_a_wrong_schedule_is_refused_for_a_fabric_of_any_size(
    file: Path, enter: Enter, domains: int
) -> None:
    enter(f"scattered-{domains}", ring_reduce_scatter)
    said = problem(file, f"scattered-{domains}", domains)
    grid = f"{min(domains, 8)} x 2"
    start = (
        f"x.yaml:8 workloads.1: all-gather with the algorithm 'scattered-{domains}' on {grid} GPUs "
        "has a wrong schedule: transfer 0: sender does not hold chunk"
    )
    assert said.startswith(start)
    written = ring_reduce_scatter.__code__.co_filename
    assert said.endswith(f"(fix its function, ring_reduce_scatter in {written})")


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_wrong_schedule_is_exit_code_2_and_no_crash(
    file: Path,
    enter: Enter,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    enter(f"scattered-by-{command}", ring_reduce_scatter)
    write(file, f"scattered-by-{command}")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["railbed", command, "x.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "a bug in Railbed" not in capsys.readouterr().err


@pytest.mark.parametrize("domains", [4, 40])
def test_a_function_that_sends_nothing_is_refused(file: Path, enter: Enter, domains: int) -> None:
    enter(f"nothing-{domains}", nothing)
    assert "has a wrong schedule: no GPU sends to another GPU (" in problem(
        file, f"nothing-{domains}", domains
    )


def test_an_algorithm_says_which_grids_it_cannot_serve(file: Path, enter: Enter) -> None:
    enter("power-of-two", power_of_two)
    others = ", ".join(n for n in algorithms_of(Collective.ALL_GATHER) if n != "power-of-two")
    assert problem(file, "power-of-two", 3) == (
        "x.yaml:8 workloads.1: all-gather with the algorithm 'power-of-two' on 3 x 2 GPUs is not "
        "possible: needs a power of two of GPUs, got 6 (use another grid of GPUs, or another "
        f"algorithm: {others})"
    )
    assert load(write(file, "power-of-two", 4)).cases
    assert problem(file, "power-of-two", 2040).startswith("x.yaml:8 workloads.1: ")
    assert load(write(file, "power-of-two", 2048)).cases


def test_a_large_grid_is_represented_by_a_small_one_that_is_accepted(
    file: Path, enter: Enter
) -> None:
    enter("thirds", thirds)
    scenario = load(write(file, "thirds", 27))
    assert all(not planned.exact for planned in plan(scenario, None))
    task = SizedCollective(Collective.ALL_GATHER, "thirds", (27, 2), 1e6)
    assert estimate(real_task(task, spec(FabricKind.RAIL_ONLY, 27, 2))).steps == 53


def test_an_algorithm_that_accepts_no_small_grid_is_refused(file: Path, enter: Enter) -> None:
    def many(build: Builder) -> None:
        if build.gpus < 100:
            raise ScheduleError("needs 100 GPUs")
        ring_all_gather(build)

    enter("many", many)
    said = problem(file, "many", 100)
    assert "accepts no grid of up to 8 x 2 GPUs" in said


def test_a_run_proves_the_schedule_in_full(file: Path, enter: Enter) -> None:
    enter("wrong-on-many", wrong_on_many)
    scenario = load(write(file, "wrong-on-many", 33))
    _, case = scenario.cases_on(FabricKind.RAIL_ONLY)
    with pytest.raises(InputError) as caught:
        case.schedule(scenario.fabrics[0])
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith("x.yaml:8 workloads.1: all-gather with the algorithm 'wro")
