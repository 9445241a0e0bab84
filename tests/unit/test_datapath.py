"""Which datapath the rail and spine switches get."""

from pathlib import Path

import pytest

from model.errors import InputError, NotReady
from model.fabric.spec import Datapath
from scenarios.library import LIBRARY
from scenarios.loader import load
from testbed.nodes import openvswitch
from testbed.nodes.openvswitch import VARIABLE, default_datapath, require
from tests.unit.machines import TWO_CORES

QUICKSTART = LIBRARY / "quickstart.yaml"


@pytest.fixture
def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvswitch, "kernel_has", lambda _module: False)
    monkeypatch.setattr(openvswitch, "load_module", lambda _module: False)


def test_the_default_is_the_kernels_where_it_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvswitch, "kernel_has", lambda module: module == "openvswitch")
    assert default_datapath() is Datapath.KERNEL


def test_it_is_user_space_elsewhere(without_module: None) -> None:
    assert default_datapath() is Datapath.USER_SPACE


def test_the_environment_chooses_another_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "kernel")
    assert default_datapath() is Datapath.KERNEL
    monkeypatch.setenv(VARIABLE, "fpga")
    with pytest.raises(InputError, match="must be kernel or user-space, got 'fpga'"):
        default_datapath()


def test_what_cannot_be_had_is_said_with_what_can(without_module: None) -> None:
    with pytest.raises(NotReady, match=r"openvswitch cannot be loaded.*--datapath user-space"):
        require(Datapath.KERNEL)


def test_user_space_needs_a_device(
    without_module: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvswitch, "TUN", tmp_path / "tun")
    with pytest.raises(NotReady, match=r"module tun cannot be loaded.*modprobe tun"):
        require(Datapath.USER_SPACE)


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
    fast = ["fabric.bandwidth_scale=10"]
    with pytest.raises(InputError):
        load(QUICKSTART, fast, TWO_CORES)
    other = next(kind for kind in Datapath if kind != TWO_CORES.key.datapath)
    assert load(QUICKSTART, [*fast, f"fabric.datapath={other}"], TWO_CORES)
