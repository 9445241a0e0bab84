"""Which datapath the rail and spine switches get."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from commands.options import (
    require_datapaths,
    require_fabrics,
    require_possible,
)
from commands.verify import verify
from execution.cases.emulation import AGENT
from model.errors import EmulationError, InputError, NotReady
from model.fabric.build import build_topology
from model.fabric.spec import Datapath, FabricKind
from scenarios.library_files import LIBRARY
from scenarios.load import load
from scenarios.scenario import Scenario
from testbed.nodes import datapath as module
from testbed.nodes.datapath import DATAPATH_VARIABLE, default_datapath, require_datapath
from testbed.nodes.gpu_proxies import ProxyKind
from testbed.nodes.openvswitch import OpenVSwitch
from testbed.testbed import testbed as fabric_up
from tests.unit.fabrics import spec
from tests.unit.machines import TWO_CORES

QUICKSTART = LIBRARY / "quickstart.yaml"


@pytest.fixture
def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    has_modules(monkeypatch)


def has_modules(
    monkeypatch: pytest.MonkeyPatch, *, file: bool = False, loads: bool = False
) -> None:
    """Let the kernel have files of modules, or load them."""
    monkeypatch.setattr(module, "kernel_has", lambda _module: file)
    monkeypatch.setattr(module, "load_module", lambda _module: loads)


@pytest.mark.parametrize(
    ("user", "file", "loads", "expected"),
    [
        (0, True, True, Datapath.KERNEL),
        (0, True, False, Datapath.USER_SPACE),
        (0, False, False, Datapath.USER_SPACE),
        (1000, True, False, Datapath.KERNEL),
        (1000, False, False, Datapath.USER_SPACE),
    ],
)
def test_the_default_is_the_kernels_where_it_can_be_had(
    monkeypatch: pytest.MonkeyPatch, user: int, file: bool, loads: bool, expected: Datapath
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    has_modules(monkeypatch, file=file, loads=loads)
    assert default_datapath() is expected


def test_the_environment_chooses_another_default(monkeypatch: pytest.MonkeyPatch) -> None:
    has_modules(monkeypatch)
    monkeypatch.setenv(DATAPATH_VARIABLE, "")
    assert default_datapath() is Datapath.USER_SPACE
    monkeypatch.setenv(DATAPATH_VARIABLE, "kernel")
    assert default_datapath() is Datapath.KERNEL
    monkeypatch.setenv(DATAPATH_VARIABLE, "fpga")
    with pytest.raises(InputError, match="must be kernel or user-space, got 'fpga'"):
        default_datapath()


def test_what_cannot_be_had_is_said_with_what_can(without_module: None) -> None:
    with pytest.raises(
        NotReady, match=r"openvswitch, which cannot be loaded.*user-space .`fabric.datapath`"
    ):
        require_datapath(Datapath.KERNEL)


def test_user_space_needs_a_device(
    without_module: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "tun"
    monkeypatch.setattr(module, "TUN", device)
    with pytest.raises(NotReady, match=r"cannot be opened \(No such file.*modprobe tun"):
        require_datapath(Datapath.USER_SPACE)
    device.symlink_to(device)  # is there, and cannot be opened, as a node without its driver
    with pytest.raises(NotReady, match=r"cannot be opened \(Too many levels"):
        require_datapath(Datapath.USER_SPACE)


def begins(*_: object) -> None:
    """Stand in for what must not begin."""
    pytest.fail("it must not begin")


@pytest.fixture
def root_without_datapaths(
    without_module: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be root, who alone can probe the kernel; the kernel has neither module nor device."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(module, "TUN", tmp_path / "tun")


@pytest.mark.usefixtures("root_without_datapaths")
@pytest.mark.parametrize("refuse", [require_possible, require_fabrics, require_datapaths])
def test_a_scenario_whose_datapath_cannot_be_had_is_refused(
    refuse: Callable[[Scenario], None],
) -> None:
    refuse(load(QUICKSTART))
    for datapath in Datapath:
        with pytest.raises(NotReady, match=f"its {datapath} datapath"):
            refuse(load(QUICKSTART, [f"fabric.datapath={datapath}"]))


@pytest.mark.usefixtures("root_without_datapaths")
@pytest.mark.parametrize("datapath", Datapath)
def test_it_is_refused_before_fabrics_are_verified(
    datapath: Datapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.options.ready", lambda *_: ProxyKind.PROCESS)
    monkeypatch.setattr("execution.path_check.verify", begins)
    with pytest.raises(NotReady, match=f"its {datapath} datapath"):
        verify(QUICKSTART, datapath=datapath)


@pytest.mark.usefixtures("root_without_datapaths")
@pytest.mark.parametrize("datapath", Datapath)
def test_no_part_of_a_fabric_is_started_without_its_datapath(
    datapath: Datapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.testbed.reaper", begins)
    topology = build_topology(replace(spec(FabricKind.RAIL_ONLY, 2, 2), datapath=datapath))
    with (
        pytest.raises(NotReady, match=f"its {datapath} datapath"),
        fabric_up(topology, ProxyKind.PROCESS, AGENT, Mock(folder=Path())),
    ):
        pytest.fail("it must not come up")


@pytest.mark.parametrize(("complaints", "added"), [("", ""), ("|ERR|no ports", "no ports")])
def test_a_failed_start_is_told_in_the_words_of_open_vswitch(complaints: str, added: str) -> None:
    switch = Mock(complaints=lambda: complaints)
    with (
        pytest.raises(EmulationError, match=rf"(?s)timed out after 60 s.*{added}") as caught,
        OpenVSwitch.explaining(switch),
    ):
        raise EmulationError("the controller: ready: timed out after 60 s")
    assert ("Open vSwitch's log" in str(caught.value)) is bool(complaints)


@pytest.mark.parametrize("datapath", Datapath)
def test_a_scenario_chooses(datapath: Datapath) -> None:
    scenario = load(QUICKSTART, [f"fabric.datapath={datapath}"])
    assert {spec.datapath for spec in scenario.fabrics} == {datapath}
    assert {spec.datapath for spec in load(QUICKSTART).fabrics} == {None}


def test_a_wrong_one_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fabric\.datapath"):
        load(QUICKSTART, ["fabric.datapath=fpga"])


def test_what_was_measured_with_another_datapath_does_not_count() -> None:
    """The machine profile is too slow for this scale, and was measured in user space."""
    fast = ["fabric.bandwidth_scale=1000"]
    with pytest.raises(InputError):
        load(QUICKSTART, fast, TWO_CORES)
    other = next(kind for kind in Datapath if kind != TWO_CORES.key.datapath)
    assert load(QUICKSTART, [*fast, f"fabric.datapath={other}"], TWO_CORES)
