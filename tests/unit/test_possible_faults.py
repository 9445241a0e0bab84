"""Possible faults: each mode is entered everywhere, and refused if this kernel cannot make it."""

import pytest

from commands.options import require_possible
from model.errors import InputError
from model.fabric.build import build_topology
from model.fabric.spec import FabricKind
from model.faults import (
    POSSIBLE,
    Component,
    Fault,
    FaultMode,
    broken_links,
    components,
    health_under,
    loses_links,
)
from scenarios.library_files import LIBRARY
from scenarios.load import load
from testbed.faults.injector import NEEDS
from tests.unit.fabrics import spec, with_hb_leaves


def test_every_component_and_every_mode_is_possible_somewhere() -> None:
    assert POSSIBLE.keys() == set(Component)
    assert frozenset().union(*POSSIBLE.values()) == set(FaultMode)


def test_every_mode_needs_something_of_the_kernel() -> None:
    assert NEEDS.keys() == set(FaultMode)


@pytest.mark.parametrize("mode", FaultMode)
def test_every_mode_loses_links_or_leaves_them_a_rate(mode: FaultMode) -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    link = topology.link_by_name["d0g0--rail0"]
    fault = Fault(Component.NIC_LINK, mode, link.name, rate_bps=link.rate_bps - 1)
    health = health_under(topology, [fault])
    assert (link.name in health.failed) is loses_links(mode)
    assert (link.name in health.rates_bps) is not loses_links(mode)


@pytest.mark.parametrize("component", sorted(set(Component) - {Component.CONTROLLER}))
def test_every_component_breaks_links(component: Component) -> None:
    topology = build_topology(with_hb_leaves(spec(FabricKind.RAIL_OPTIMIZED, 2, 4), 2))
    for target in components(topology, component):
        fault = Fault(component, FaultMode.DOWN, target)
        assert broken_links(topology, fault) <= topology.link_by_name.keys()
        assert broken_links(topology, fault)


def test_a_link_has_the_lowest_of_the_rates_that_faults_leave() -> None:
    topology = build_topology(spec(FabricKind.RAIL_ONLY, 2, 2))
    link = topology.link_by_name["d0g0--rail0"]
    faults = [
        Fault(Component.NIC_LINK, FaultMode.DEGRADE, link.name, rate_bps=link.rate_bps - less)
        for less in (1, 3, 2)
    ]
    assert health_under(topology, faults).rates_bps == {link.name: link.rate_bps - 3}


def lacks_blackholes(how: FaultMode) -> str | None:
    return "this kernel has no sch_blackhole" if how is FaultMode.BLACKHOLE else None


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be root, who alone can probe the kernel; the kernel has no blackholes."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("testbed.faults.injector.missing_for", lacks_blackholes)


@pytest.mark.usefixtures("root")
def test_what_the_kernel_lacks_is_bad_input() -> None:
    with pytest.raises(
        InputError, match=r"nic-link-blackhole.yaml:\d+ faults.0.how: this kernel has no sch"
    ):
        require_possible(load(LIBRARY / "nic-link-blackhole.yaml"))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["nic-link-down", "quickstart"])
def test_all_else_is_possible(name: str) -> None:
    require_possible(load(LIBRARY / f"{name}.yaml"))


def test_nobody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    require_possible(load(LIBRARY / "nic-link-blackhole.yaml"))
