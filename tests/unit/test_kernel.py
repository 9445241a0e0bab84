"""Which modules the kernel has: loaded, or a file that can be loaded."""

from pathlib import Path

import pytest

from testbed.nodes import datapath as kernel


@pytest.fixture(autouse=True)
def some_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LOADED", tmp_path / "sys")
    monkeypatch.setattr(kernel, "MODULES", tmp_path / "lib")
    monkeypatch.setattr("platform.release", lambda: "6.1.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sys" / "bridge").mkdir(parents=True)
    listed = tmp_path / "lib" / "6.1.0" / "modules.dep"
    listed.parent.mkdir(parents=True)
    listed.write_text("net/openvswitch.ko.xz: net/nsh.ko.xz\nnet/cls-u32.ko:\n")
    listed.with_name("modules.builtin").write_text("kernel/net/sched/sch-htb.ko\n")


@pytest.mark.parametrize("module", ["bridge", "sch_htb", "openvswitch", "cls_u32"])
def test_what_is_loaded_built_in_or_loadable_is_there(module: str) -> None:
    assert kernel.kernel_has(module)


@pytest.mark.parametrize("module", ["nsh", "tun"])
def test_what_is_neither_is_not(module: str) -> None:
    assert not kernel.kernel_has(module)


def test_a_kernel_without_modules_has_what_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.18.0")
    assert kernel.kernel_has("bridge")
    assert not kernel.kernel_has("openvswitch")


def test_where_nothing_loads_modules_only_what_is_there_is_loaded() -> None:
    assert kernel.load_module("bridge")
    assert kernel.load_module("sch_htb")
    assert not kernel.load_module("tun")
