"""The phases of a failure experiment, and the executions in them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from execution.faults import fault_case
from execution.faults.fault_case import FaultCase, has_degraded_phase
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.faults import Component, Fault, FaultMode
from model.job.placement import RecoveryStrategy
from model.measurement.records import Repeat
from scenarios.library_files import LIBRARY
from scenarios.load import load
from tests.unit.fabrics import spec
from tests.unit.test_results import repeat

DOWN = Fault(Component.NIC_LINK, FaultMode.DOWN, "d0g0--rail0")
FLAPS = Fault(Component.NIC_LINK, FaultMode.FLAP, "d0g0--rail0", for_s=2.0)


@pytest.mark.parametrize(
    ("faults", "strategy", "executions", "has_it"),
    [
        ([DOWN], RecoveryStrategy.REROUTE, 1, True),
        ([DOWN, FLAPS], RecoveryStrategy.REROUTE, 1, False),
        ([DOWN], RecoveryStrategy.RESTART, 2, True),
        ([DOWN], RecoveryStrategy.RESTART, 1, False),
        ([DOWN], RecoveryStrategy.SPARE_RAIL_SWITCH, 1, False),
    ],
)
def test_a_job_that_never_aborted_has_no_degraded_phase(
    faults: list[Fault], strategy: RecoveryStrategy, executions: int, has_it: bool
) -> None:
    assert has_degraded_phase(faults, strategy, executions) is has_it


def test_an_execution_is_observed_from_its_begin() -> None:
    """Connections are opened before, which agents wait for cores for."""
    done: list[str] = []

    def repeats(*_: Any, before: Callable[[int], None], **__: Any) -> Iterator[Repeat]:
        done.append("connected")
        before(0)
        done.append("executed")
        yield repeat(0, 1.0)

    case = FaultCase.__new__(FaultCase)
    case.fabric = cast(Any, SimpleNamespace(repeats=repeats))
    case.scenario = cast(Any, SimpleNamespace(check_data=False))
    case.schedule = cast(Any, None)
    observer = SimpleNamespace(
        begin=lambda _: done.append("observed"), note=lambda _: done.append("noted")
    )
    executions: list[Repeat] = []
    case._run(executions, cast(Any, None), cast(Any, observer))
    assert done == ["connected", "observed", "executed", "noted"]
    assert [one.number for one in executions] == [0]


@pytest.mark.parametrize(
    ("faults", "runs", "expected"),
    [
        ([FLAPS], True, ["converged without it", "broken again", "converged with it"]),
        # Nobody responds.
        ([FLAPS], False, ["broken again", "converged with it"]),
        # It still lasts.
        ([DOWN], True, ["converged with it"]),
    ],
)
def test_the_response_to_the_end_of_a_fault_is_awaited_before_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, faults: list[Fault], runs: bool, expected: list[str]
) -> None:
    """Else its return would be timed from its end to that of the second fault."""
    done: list[str] = []

    def broken(*_: Any) -> Callable[[], None]:
        done.append("broken again")
        return lambda: None

    def converged(_: Any, failed: frozenset[str]) -> None:
        done.append("converged with it" if failed else "converged without it")

    case = FaultCase.__new__(FaultCase)
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2, 2))
    controller = SimpleNamespace(is_running=runs)
    replaced = {
        "faults": faults,
        "home": SimpleNamespace(topology=topology),
        "injector": None,
        "fabric": SimpleNamespace(bed=SimpleNamespace(controller=controller)),
        "_converge": lambda _: done.append("converged with it"),
    }
    vars(case).update(cast(Any, replaced))
    monkeypatch.setattr(fault_case, "break_component", broken)
    monkeypatch.setattr(fault_case, "wait_until_converged", converged)
    with ExitStack() as undos:
        case._break(undos)
    assert done == expected


@pytest.mark.parametrize(
    ("name", "executions"),
    [
        # Baseline, during the fault, and two phases with a warm-up each.
        ("nic-link-down", (1 + 3) + 1 + 2 * (1 + 3)),
        # The job aborts the execution during the fault, and executes again.
        ("abort-and-restart", (1 + 3) + 2 + 2 * (1 + 3)),
    ],
)
def test_the_executions_of_all_phases_are_counted(name: str, executions: int) -> None:
    changes = ["warmup=1", "repeats=3"]
    scenario = load(LIBRARY / f"{name}.yaml", changes)
    assert scenario.executions == len(scenario.cases) * executions
